# SPDX-License-Identifier: MIT OR Apache-2.0
"""Directories and mounts for a while. What is mounted is never deleted: a directory in which an unmount failed stays, and
its name is said, because what is below it may be the host's own."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time

# Processes that have just been ended still have files open.
PATIENCE_S = 10


class Missing(Exception):
    """What this machine lacks."""


def run(*words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Missing(f"{words[0]} is not installed") from error
    if done.returncode != 0:
        raise Missing(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def below(path):
    """What is mounted at a path and below it, in the order in which it was mounted."""
    path = os.path.realpath(path)
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        points = [line.split()[1].replace("\\040", " ") for line in mounts]
    return [point for point in points if point == path or point.startswith(f"{path}/")]


def remove(path):
    """Removes a directory with all that is in it, if nothing is mounted there."""
    if left := below(path):
        raise Missing(f"{path} stays, because {left[0]} is still mounted: unmount it, and remove the directory then")
    shutil.rmtree(path, ignore_errors=True)


def unmount(point):
    """Also what is mounted below it."""
    until = time.monotonic() + PATIENCE_S
    while points := below(point):
        done = subprocess.run(["umount", points[-1]], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if time.monotonic() > until:
                raise Missing(done.stderr.strip())
            time.sleep(0.1)


@contextlib.contextmanager
def directory(work, name):
    path = os.path.join(work, name)
    os.makedirs(path)
    try:
        yield path
    finally:
        remove(path)


@contextlib.contextmanager
def mounted(point, *words, under=()):
    """`under`: words before those of the mount, of a program that starts it."""
    run(*under, "mount", *words, point)
    try:
        yield point
    finally:
        unmount(point)


@contextlib.contextmanager
def scratch(prefix):
    path = tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        yield path
    finally:
        remove(path)
