# SPDX-License-Identifier: MIT OR Apache-2.0
"""fetch.py PORT FILES: eight clients fetch the files 1 to FILES of a server on this machine, each file
once; prints how long the answers took."""

import http.client
import queue
import sys
import threading
import time

CLIENTS = 8

port, files = int(sys.argv[1]), int(sys.argv[2])
names = queue.SimpleQueue()
for name in range(1, files + 1):
    names.put(name)
took = []


def connect():
    """The server may have written its process number, and not listen yet."""
    deadline = time.monotonic() + 30
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.connect()
            return connection
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def client():
    connection = connect()
    while True:
        try:
            name = names.get_nowait()
        except queue.Empty:
            return
        begin = time.perf_counter()
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (name, answer.status)
        took.append((time.perf_counter() - begin) * 1e3)


clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
for one in clients:
    one.start()
for one in clients:
    one.join()
assert len(took) == files, f"{files - len(took)} files did not come"
took.sort()
parts = [(50, took[len(took) // 2]), (99, took[len(took) * 99 // 100]), (100, took[-1])]
print(f"{files} answers in ms:", ", ".join(f"{part} % within {ms:.2f}" for part, ms in parts))
