# SPDX-License-Identifier: MIT OR Apache-2.0
"""Four threads want a lock, which a fifth has most of the time."""

import sys
import threading
import time

lock = threading.Lock()
end = 0.0


def wants():
    while time.monotonic() < end:
        with lock:
            pass
        time.sleep(0.001)


def has():
    while time.monotonic() < end:
        with lock:
            time.sleep(0.002)


print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
threads = [threading.Thread(target=body) for body in (has, wants, wants, wants, wants)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
