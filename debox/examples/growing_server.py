#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server that forks a child for each request, and grows.

    debox record -o growing.parquet -- debox/examples/growing_server.py
    debox record -o helper.parquet -- debox/examples/growing_server.py --helper

For each request it opens a file, maps it, keeps both for later requests, and forks a child that would
answer. A fork copies what the process has: its table of files, its mappings, its page tables. So each
costs more than the one before, as in the Flash web server of the DeBox paper. With --helper the forks are
made by a process that was started first, is small, and stays small: what the paper did about it.

Prints what the first and the last forks took, by its own clock. debox/docs/example-growing.md is the page to it.
"""

import argparse
import mmap
import os
import resource
import statistics
import tempfile
import time

FILE_SIZE = 256 << 10
# So many forks make a figure.
SHOWN = 50


def answer_in_a_child():
    """Forks a child that does nothing, and waits for its end."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def start_helper():
    """A small process that forks on request; returns the function that requests it."""
    commands, to_helper = os.pipe()
    from_helper, answers = os.pipe()
    if os.fork() == 0:
        os.close(to_helper)
        # Until the server ends and closes its end.
        while os.read(commands, 1):
            answer_in_a_child()
            os.write(answers, b"\n")
        os._exit(0)

    def ask():
        os.write(to_helper, b"\n")
        os.read(from_helper, 1)

    return ask


def remember(path, cache):
    """What a server does with a file that it will be asked for again."""
    with open(path, "wb") as file:
        file.truncate(FILE_SIZE)
    file = open(path, "rb")
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    cache.append((file, memory))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("requests", type=int, nargs="?", default=2000)
    parser.add_argument("--helper", action="store_true", help="fork from a process that stays small")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    answer = start_helper() if options.helper else answer_in_a_child
    cache, took = [], []
    with tempfile.TemporaryDirectory() as directory:
        for request in range(options.requests):
            remember(os.path.join(directory, str(request)), cache)
            begin = time.perf_counter()
            answer()
            took.append((time.perf_counter() - begin) * 1e6)
    first, last = statistics.median(took[:SHOWN]), statistics.median(took[-SHOWN:])
    print(f"a child takes {first:.0f} us at first, {last:.0f} us at last")


if __name__ == "__main__":
    main()
