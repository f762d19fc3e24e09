# SPDX-License-Identifier: MIT OR Apache-2.0
"""Answers by the library what the path asks for."""

import fcntl
import os
import signal
import socket
import struct
import time
from pathlib import Path

import flash_application

TEXT = [("Content-Type", "text/plain")]


def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)


def application(request):
    path = request.variables["PATH_INFO"]
    if path == "/variables":
        lines = [f"{name}={value}\n" for name, value in request.variables.items()]
        request.answer(200, TEXT, "".join(lines).encode("latin-1"))
    elif path == "/pid":
        request.answer(200, TEXT, str(os.getpid()).encode())
    elif path == "/stream":
        request.begin("201 Made", [*TEXT, ("Connection", "upgrade")])
        request.write(b"one")
        request.write(b"")
        request.write(b"two")
    elif path == "/empty":
        request.answer(204)
    elif path == "/echo":
        request.answer(200, TEXT, request.read())
    elif path == "/ignore":
        request.answer(200, TEXT, b"ignored")
    elif path == "/large":
        request.begin(200, [*TEXT, ("Content-Length", str(64 << 20))])
        for _ in range(64):
            request.write(b"x" * (1 << 20))
    elif path == "/bytes":
        length = int(request.variables["QUERY_STRING"])
        request.answer(200, TEXT, (b"%09d\n" * (length // 10) % tuple(range(length // 10)))[:length])
    elif path == "/family":
        request.answer(200, TEXT, request._client.family.name.encode())
    elif path == "/part":
        request.begin(200, TEXT)
        request.write(b"part")
        request.read()
    elif path == "/error":
        raise RuntimeError("said by the application")
    elif path == "/late-error":
        request.begin(200, TEXT)
        request.write(b"part")
        raise RuntimeError("said by the application")
    elif path == "/short":
        request.begin(200, [("Content-Length", "10")])
        request.write(b"short")
    elif path == "/split":
        request.answer(200, [("X-A", "b\r\nX-Evil: 1")], b"")
    elif path == "/die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif path == "/late-die":
        request.begin(200, [("Content-Length", "10")])
        request.write(b"part")
        os.kill(os.getpid(), signal.SIGKILL)
    elif path == "/hang":
        time.sleep(60)
    elif path == "/late-hang":
        request.begin(200, [("Content-Length", "10")])
        request.write(b"part")
        time.sleep(60)
    elif path == "/slow":
        for _ in range(10):
            request.progress()
            time.sleep(0.1)
        request.answer(200, TEXT, b"done")
    elif path == "/wait":
        Path("waits").touch()
        wait_for("go")
        request.answer(200, TEXT, b"done")
    elif path == "/stream-wait":
        request.begin(200, TEXT)
        request.write(b"first ")
        wait_for("go")
        request.write(b"last")
    elif path == "/rude":
        # What a program must not do: the server has this socket, too.
        kept = request._client.dup()
        fcntl.fcntl(kept, fcntl.F_SETFL, 0)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
        application.kept = kept
        request.answer(200, TEXT, b"rude")
    else:
        request.answer(404, TEXT, b"none")


flash_application.serve(application)
