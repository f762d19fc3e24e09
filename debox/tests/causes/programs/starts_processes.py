# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks a program for what a function could have told."""

import subprocess
import sys
import time

print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    subprocess.run(["/bin/uname", "-r"], stdout=subprocess.DEVNULL, check=True)
