# SPDX-License-Identifier: MIT OR Apache-2.0
"""Looks up a name, of a name server that does not answer."""

import socket
import sys
import time

print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        socket.getaddrinfo("www.example.org", 80)
    except socket.gaierror:
        pass
