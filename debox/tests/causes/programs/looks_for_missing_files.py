# SPDX-License-Identifier: MIT OR Apache-2.0
"""Looks whether files are there, which are not."""

import os
import sys
import time

names = [os.path.join(sys.argv[2], "deep", "down", str(i)) for i in range(50)]
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for name in names:
        os.access(name, os.R_OK)
