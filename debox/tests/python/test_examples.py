# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands of the pages debox/docs/example-*.md, run as they stand there, but on less work."""

import os
import re
import shutil
import socket
import subprocess

import pytest
from conftest import ROOT

# What each page shows, made small: seconds, not minutes. How long a disk takes here nobody knows.
SMALLER = {
    "./rare_open spool/mail": "./rare_open spool/mail 60000",
    "blocked > 20us": "class == lock",
    "growing_server.py": "growing_server.py 600",
}

UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def page(debox, tmp_path):
    """Runs the shell blocks of a page from its top, each in the same directory; gives what they print."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "debox").symlink_to(debox)
    (programs / "sudo").write_text('#!/bin/sh\nexec env "$@"\n')
    (programs / "sudo").chmod(0o755)
    there = tmp_path / "here"
    there.mkdir()
    (there / "debox").symlink_to(ROOT / "debox")
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PORT": str(free_port()),
        "FILES": "60",
        "WRITES": "1000",
        "NO_COLOR": "1",
    }

    def run_block(block):
        for large, small in SMALLER.items():
            block = block.replace(large, small)
        done = subprocess.run(
            ["sh", "-eu", "-c", block],
            cwd=there,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        # Of a terminal's lines, and of the report's columns.
        return " ".join(done.stdout.split())

    def run(name, has_come=lambda printed: True):
        """What is waited for comes by chance: a block in which it has not come is run again, twice."""
        text = (ROOT / "debox/docs" / name).read_text()
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        assert blocks, "the page has no commands"
        printed = []
        for block in blocks:
            for _ in range(3):
                output = run_block(block)
                if has_come(output):
                    break
            printed.append(output)
        return " ".join(printed)

    yield run
    if os.path.ismount(there / "spool"):
        subprocess.run(["umount", there / "spool"], check=True)


def can_mount(tmp_path):
    """Whether an image of ext4 can be mounted here."""
    image, place = tmp_path / "try.img", tmp_path / "try"
    place.mkdir()
    if not shutil.which("mkfs.ext4"):
        return False
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True).returncode:
        return False
    subprocess.run(["umount", place], check=True)
    image.unlink()
    return True


def test_the_calls_that_block_a_server(page):
    printed = page("example-blocking.md")
    # redis: the log is synced by the loop itself, and later by a thread beside it.
    assert "fdatasync" in printed and "flushAppendOnlyFile" in printed
    assert printed.count("requests per second") >= 3
    # nginx: files that are not in memory.
    assert "page read" in printed and "sendfile" in printed
    assert "ngx_linux_sendfile_chain" in printed
    assert printed.count("answers in ms") >= 3


def test_one_rare_open(page, tmp_path):
    if not can_mount(tmp_path):
        pytest.skip("no image of ext4 can be mounted here: the page's directory is in one")
    # It may find the directory free, once in ten times or so.
    found = "Fired for 1 call", "1 call of 1 thread", " slept "
    has_come = lambda text: "60000 opens" not in text or any(words in text for words in found)
    printed = page("example-rare-open.md", has_come)
    # One of 60,000, with who asked, for what, and who had it. A path is looked up later, if it still can be.
    assert "1 call of 1 thread" in printed, printed
    assert re.search(
        r"The main thread of rare_open \(\d+\) waited [\d.]+ [mu]?s for directory lock \(inode lock of "
        r"\S*/mail( \(device [^)]*\))?\) in openat, called from is_there\S* \(rare_open.c:\d+\); "
        r"thread \d+ \(deliver\) held it",
        printed,
    ), printed
    assert "read_notice" in printed and "serve_message+" not in printed, printed
    assert "Fired for 1 call" in printed, printed


def test_a_call_that_grows(page):
    printed = page("example-growing.md")
    # Of the first of the two reports. Whether it is a finding depends on what else the machine does.
    row = re.search(r"clone [\d,]+ ([\d.]+)([mun]?s) \S+ ([\d.]+)([mun]?s) -?[\d.]+", printed)
    assert row, printed
    first, last = (float(row[at]) * UNITS[row[at + 1]] for at in (1, 3))
    assert last > 1.2 * first, printed
    # Where the time goes: by samples here, or by function probes.
    assert "dup_mmap" in printed or "copy_process" in printed, printed
