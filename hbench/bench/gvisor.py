# SPDX-License-Identifier: MIT OR Apache-2.0
"""A sandbox of gVisor's `runsc`, from PATH or where RUNSC says. It is built without cloning anything:

    go mod init x && go get gvisor.dev/gvisor/runsc@latest && CGO_ENABLED=0 go build gvisor.dev/gvisor/runsc
"""

import contextlib
import json
import os
import shutil
import subprocess

import mounts


# Of root in a container, as container platforms give them; runsc's own default has less.
CAPABILITIES = """CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_KILL CAP_MKNOD CAP_NET_BIND_SERVICE CAP_SETFCAP CAP_SETGID
CAP_SETPCAP CAP_SETUID CAP_SYS_CHROOT CAP_AUDIT_WRITE""".split()


class Unavailable(Exception):
    """Why there is no sandbox."""


@contextlib.contextmanager
def sandbox(root):
    """The words that start a command in a sandbox with this root directory. Its network is loopback alone."""
    runsc = os.environ.get("RUNSC") or shutil.which("runsc")
    if not runsc:
        raise Unavailable("runsc is not installed")
    with mounts.scratch("hbench-gvisor.") as work:
        # What is written goes to the image, as on the other machines.
        options = ["--root", f"{work}/state", "--network", "none", "--ignore-cgroups", "--overlay2", "none"]
        name = f"hbench-{os.getpid()}"

        def run(*words):
            # A sandbox inherits the descriptors, so nothing may wait for their end.
            with open(f"{work}/said", "w+", encoding="utf-8") as said:
                done = subprocess.run(
                    [runsc, *options, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False
                )
                said.seek(0)
                if done.returncode != 0:
                    raise Unavailable(f"runsc {words[0]}: {said.read().strip()[-300:]}")

        bundle = f"{work}/bundle"
        os.mkdir(bundle)
        run("spec", "--bundle", bundle, "--", "/usr/bin/sleep", "infinity")
        with open(f"{bundle}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        config["root"] = {"path": root, "readonly": False}
        config["process"]["terminal"] = False
        for part in ("bounding", "effective", "permitted"):
            config["process"]["capabilities"][part] = CAPABILITIES
        with open(f"{bundle}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        run("run", "--detach", "--bundle", bundle, name)
        try:
            yield [runsc, *options, "exec", name]
        finally:
            run("delete", "--force", name)
            # It leaves an empty network namespace mounted.
            mounts.unmount(work)
