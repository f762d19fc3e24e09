# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts words."""

import sys
import time


def counts(text):
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return found


text = "one two three two three three " * 2000
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    counts(text)
