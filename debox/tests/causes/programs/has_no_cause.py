# SPDX-License-Identifier: MIT OR Apache-2.0
"""Does a little of everything, and as much of each: computes, has the kernel compute, sleeps, reads."""

import sys
import time

PART = 0.01


def goes_on():
    return time.monotonic() < part_ends


print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
with open("/dev/zero", "rb", buffering=0) as zeros, open(sys.argv[3], "rb") as lines:
    while time.monotonic() < end:
        part_ends = time.monotonic() + PART
        while goes_on():
            sum(range(2000))
        part_ends = time.monotonic() + PART
        while goes_on():
            zeros.read(1 << 20)
        time.sleep(PART)
        lines.readline()
