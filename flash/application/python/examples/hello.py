# SPDX-License-Identifier: MIT OR Apache-2.0
"""A greeting, an answer in parts, one that takes long, and what the client has sent.

flash.toml:

    [[server]]
    listen = ["127.0.0.1:8080"]
    root = "/srv/www"

    [[server.location]]
    path = "/app"
    application = { command = ["python3", "hello.py"] }
"""

import time
import urllib.parse

import flash_application

TEXT = [("Content-Type", "text/plain; charset=utf-8")]


def application(request):
    path = request.variables["PATH_INFO"]
    query = dict(urllib.parse.parse_qsl(request.variables["QUERY_STRING"]))
    if path == "/stream":
        request.begin(200, TEXT)
        for number in range(int(query.get("parts", 5))):
            request.write(f"part {number}\n".encode())
            time.sleep(float(query.get("pause", 0.1)))
    elif path == "/slow":
        until = time.monotonic() + float(query.get("seconds", 5))
        while time.monotonic() < until:
            # Otherwise the server would take this process for one that hangs.
            request.progress()
            time.sleep(0.1)
        request.answer(200, TEXT, b"done\n")
    elif path == "/echo":
        request.answer(200, TEXT, request.read())
    else:
        request.answer(200, TEXT, b"hello\n")


flash_application.serve(application)
