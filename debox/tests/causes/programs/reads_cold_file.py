# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads here and there in a file that is not in memory."""

import os
import random
import sys
import time

SIZE = 32 << 20
file = os.open(os.path.join(sys.argv[2], "table"), os.O_RDWR | os.O_CREAT)
os.write(file, bytes(SIZE))
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(200):
        os.pread(file, 100, random.randrange(SIZE))
