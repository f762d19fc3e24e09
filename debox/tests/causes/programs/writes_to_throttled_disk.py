# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes past the page cache to a disk whose rate is limited for it."""

import mmap
import os
import sys
import time

block = mmap.mmap(-1, 65536)
file = os.open(os.path.join(sys.argv[2], "data"), os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    os.pwrite(file, block, 0)
