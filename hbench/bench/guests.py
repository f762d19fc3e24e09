# SPDX-License-Identifier: MIT OR Apache-2.0
"""Guests with other kernels, booted under emulation by `scripts/guests --serve`, with an image on a disk of their own."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

BOOT_SECONDS = 300
# Options of mkfs.ext4 with which nothing is left for the kernel to do.
AT_ONCE = "lazy_itable_init=0,lazy_journal_init=0"


class Unavailable(Exception):
    """Why there is no guest."""


def disk_of(root, path):
    """An ext4 file system with the files below a directory."""
    with open(path, "wb") as file:
        file.truncate(6 << 30)
    made = ["mkfs.ext4", "-q", "-F", "-E", AT_ONCE, "-d", root, path]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"mkfs.ext4: {done.stderr.strip()}")


@contextlib.contextmanager
def booted(driver, cache, kernel, root, mitigated):
    """The words that start a command in a guest whose disk is a copy of `root`."""
    if not os.path.exists(driver):
        raise Unavailable(f"{driver} is not built")
    with tempfile.TemporaryDirectory(prefix="hbench-guest.", dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
        disk, socket, log = (os.path.join(work, name) for name in ("disk", "socket", "log"))
        disk_of(root, disk)
        words = [driver, "--cache", cache, "--serve", socket, "--disk", disk]
        words += ["--mitigated"] * mitigated
        with open(log, "wb") as said:
            guest = subprocess.Popen([*words, kernel], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            end = time.monotonic() + BOOT_SECONDS
            while not os.path.exists(socket):
                if guest.poll() is not None or time.monotonic() > end:
                    with open(log, encoding="utf-8", errors="replace") as said:
                        raise Unavailable(f"the guest did not boot: {said.read().strip()[-500:]}")
                time.sleep(0.1)
            yield [driver, "--enter", socket, "--"]
        finally:
            guest.send_signal(signal.SIGTERM)
            guest.wait()
