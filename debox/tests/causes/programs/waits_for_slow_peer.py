# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks a server that takes its time, one request after another."""

import sys
import time
import urllib.request

address = f"http://127.0.0.1:{sys.argv[3]}/"
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    with urllib.request.urlopen(address) as answer:
        answer.read()
