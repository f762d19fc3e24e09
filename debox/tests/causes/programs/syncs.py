# SPDX-License-Identifier: MIT OR Apache-2.0
"""Adds lines to a file and has each on the disk before the next."""

import os
import sys
import time

file = os.open(os.path.join(sys.argv[2], "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    os.write(file, b"a line\n")
    os.fsync(file)
