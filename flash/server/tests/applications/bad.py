# SPDX-License-Identifier: MIT OR Apache-2.0
"""Speaks the protocol without the library, and wrongly where the path says so."""

import os
import socket
import struct
import sys
import time

channel = socket.socket(fileno=int(os.environ["FLASH_APPLICATION"]))
MODE = sys.argv[1] if len(sys.argv) > 1 else ""


def said(kind, number=0, status=0, flags=0, content=0, unread=0, version=1):
    return struct.pack("<BBHIQQQ", version, kind, status, flags, number, content, unread)


if MODE == "silent":
    time.sleep(60)
elif MODE == "garbage":
    channel.send(os.urandom(100))
    time.sleep(60)
elif MODE == "later":
    channel.send(said(1, version=9))
    time.sleep(60)
elif MODE == "ends":
    sys.exit(3)

channel.send(said(1))
while True:
    message, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 4)
    if not message:
        sys.exit(0)
    number = struct.unpack_from("<Q", message, 8)[0]
    client = socket.socket(fileno=descriptors[0])
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    done = said(4, number, 200, 1, 2)
    if b"PATH_INFO=/garbage\0" in message:
        channel.send(os.urandom(7))
    elif b"PATH_INFO=/much\0" in message:
        for _ in range(1000):
            channel.send(os.urandom(32))
    elif b"PATH_INFO=/long\0" in message:
        channel.send(os.urandom(100_000))
    elif b"PATH_INFO=/number\0" in message:
        channel.send(said(4, number + 1, 200, 1, 2))
    elif b"PATH_INFO=/hello\0" in message:
        channel.send(said(1))
    elif b"PATH_INFO=/status\0" in message:
        channel.send(said(4, number, 99, 1, 2))
    elif b"PATH_INFO=/closes\0" in message:
        channel.close()
        time.sleep(60)
    elif b"PATH_INFO=/twice\0" in message:
        client.send(answer)
        channel.send(done)
        channel.send(done)
    elif b"PATH_INFO=/unread\0" in message:
        client.send(answer)
        channel.send(said(4, number, 200, 1, 2, 5))
    elif b"PATH_INFO=/half\0" in message:
        client.send(answer[:-1])
        channel.send(said(4, number, 200, 2, 1))
    else:
        client.send(answer)
        channel.send(done)
    client.close()
