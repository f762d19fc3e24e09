# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends messages to a log daemon that is slow in taking them."""

import socket
import sys
import time

log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.connect(sys.argv[3])
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    log.send(b"<14>something happened")
