# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the programs that the benchmarks measure, and takes them down again."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path


def fail(why):
    """Ends the program: it could not be measured."""
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(2)


def run(*command, statuses=(0,)):
    """Runs a command that must end with one of these statuses, and returns what it wrote."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        fail(f"there is no {command[0]}")
    if done.returncode not in statuses:
        fail(f"{' '.join(str(word) for word in command)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout


@contextlib.contextmanager
def mounted(latlab, name, files, mount, *options):
    """A slow disk with these files, mounted."""
    run(latlab, "disk", "up", name, *options, "--from", files, "--mount", mount)
    try:
        yield
    finally:
        subprocess.run([latlab, "disk", "down", name, "--force"], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def started(command):
    """A program that starts flash; the process, and flash's URLs by what is at them."""
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        urls = {}
        for line in it.stdout:
            if found := re.match(r"(serving|counters) at (\S+)", line):
                urls[found[1]] = found[2]
            if line.startswith("sandbox:"):
                break
        if "serving" not in urls:
            fail(f"flash did not start: {it.stderr.read()}")
        try:
            yield it, urls
        finally:
            end(it)


def end(it):
    """Asks the server below the program to end, and waits for both."""
    if it.poll() is None:
        children = Path(f"/proc/{it.pid}/task/{it.pid}/children").read_text(encoding="ascii").split()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)
    it.wait(timeout=60)
