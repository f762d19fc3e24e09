# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two threads take two locks in opposite orders, and wait for ever."""

import os
import signal
import sys
import threading

one, other = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def take(first, second):
    with first:
        both.wait()
        with second:
            pass


print("ready", flush=True)
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
threads = [threading.Thread(target=take, args=pair) for pair in ((one, other), (other, one))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
