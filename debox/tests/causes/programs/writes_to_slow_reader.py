# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes more than the reader of a FIFO takes."""

import sys
import time

print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
with open(sys.argv[3], "wb", buffering=0) as fifo:
    while time.monotonic() < end:
        fifo.write(b"x" * 4096)
