# SPDX-License-Identifier: MIT OR Apache-2.0
"""Waits for the alarm of an interval timer."""

import signal
import sys
import time

signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    signal.pause()
# At its end, Python gives signals back their default action, which is to end the process.
signal.setitimer(signal.ITIMER_REAL, 0)
