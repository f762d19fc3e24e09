# SPDX-License-Identifier: MIT OR Apache-2.0
"""Guests with other kernels, booted under emulation by `debox-guests --serve`, each with a disk of its own."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

BOOT_SECONDS = 300


class Unavailable(Exception):
    """Why there is no guest."""


@contextlib.contextmanager
def booted(driver, cache, kernel, disk, mitigated):
    """The words that start a command in a guest with this file as its disk."""
    if not os.path.exists(driver):
        raise Unavailable(f"{driver} is not built")
    with tempfile.TemporaryDirectory(prefix="hbench-guest.", dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
        socket, log = (os.path.join(work, name) for name in ("socket", "log"))
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
