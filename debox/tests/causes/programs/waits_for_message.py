# SPDX-License-Identifier: MIT OR Apache-2.0
"""Waits for what a worker process of its own works out."""

import multiprocessing
import sys
import time


def work(answers, end):
    while time.monotonic() < end:
        time.sleep(0.04)
        answers.send(sum(range(1000)))
    answers.send(None)


if __name__ == "__main__":
    here, there = multiprocessing.Pipe()
    print("ready", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    worker = multiprocessing.get_context("fork").Process(target=work, args=(there, end))
    worker.start()
    while here.recv() is not None:
        pass
    worker.join()
