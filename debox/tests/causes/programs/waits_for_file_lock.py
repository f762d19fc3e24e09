# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wants a file's lock, which another process has most of the time."""

import fcntl
import sys
import time

print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
with open(sys.argv[3], "r+") as file:
    while time.monotonic() < end:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(0.002)
