# SPDX-License-Identifier: MIT OR Apache-2.0
"""The example of an HTTP server, under load."""

import http.client
import json
import re
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MS = 1_000_000


class Server:
    def __init__(self, directory):
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "debox/examples/http_server.py", "--port", "0"],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = self.process.stdout.readline()
        if not said.startswith("listening on port "):
            self.process.kill()
            pytest.fail(f"{said}{self.process.stderr.read()}")
        self.port = int(said.split()[-1])
        self.lines = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        self.lines.extend(line.strip() for line in self.process.stdout)

    def get(self, *paths):
        """One connection, one request after the other."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        bodies = []
        for path in paths:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200
            bodies.append(json.loads(answer.read()))
        connection.close()
        return bodies

    def stop(self, lines=0):
        """A request is answered before its line is written."""
        until = time.monotonic() + 30
        while len(self.lines) < lines and time.monotonic() < until:
            time.sleep(0.01)
        self.process.terminate()
        self.reader.join()
        self.process.stderr.close()
        self.process.wait()

    def log(self, path):
        return [parse(line) for line in self.lines if line.startswith(f"GET {path} ")]


def parse(line):
    found = {}
    for name, value, unit in re.findall(r"(\w+)=([\d.]+)(ns|us|ms|s)?\b", line):
        found[name] = float(value) * UNITS.get(unit, 1)
    assert {"wall", "cpu", "blocked", "runqueue", "preempted", "calls"} <= set(found), line
    parts = found["cpu"] + found["blocked"] + found["runqueue"] + found["preempted"]
    assert abs(parts - found["wall"]) <= found["wall"] * 0.02 + 1000, line  # three digits each
    return found


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.stop()


def test_log_lines_say_what_requests_waited_for(server):
    mix = ["/fast", "/sleep", "/fsync", "/spin"] * 10
    answers = []
    clients = [
        threading.Thread(target=lambda: answers.extend(zip(mix, server.get(*mix))))
        for _ in range(6)
    ]
    lockers = [threading.Thread(target=server.get, args=("/lock", "/lock")) for _ in range(3)]
    for client in clients + lockers:
        client.start()
    for client in clients + lockers:
        client.join()
    server.stop(246)

    assert len(answers) == 240
    fast, sleep, spin = (server.log(path) for path in ("/fast", "/sleep", "/spin"))
    fsync, lock = server.log("/fsync"), server.log("/lock")
    assert [len(log) for log in (fast, sleep, spin, fsync, lock)] == [60, 60, 60, 60, 6]
    # If the machine hid switches, the line says so. And a thread may be interrupted, or lose its CPU, after
    # its timer was set and before it sleeps.
    seen = lambda log: [line for line in log if not line.get("unseen")]
    for line in seen(sleep):
        least = 19.9 * MS - line["preempted"] - line["cpu"]
        assert least <= line["blocked"] < 5000 * MS, line
    assert sorted(line["blocked"] for line in sleep)[30] >= 19.9 * MS
    assert all(line["wall"] >= 19.9 * MS for line in sleep)
    # thread_time() counts from the waking on, while the thread still waits for its CPU: see README.md.
    for line in spin:
        assert 29.5 * MS <= line["cpu"] + line["runqueue"] and line["cpu"] < 300 * MS, line
    assert sorted(line["cpu"] for line in spin)[0] >= 15 * MS
    for line in seen(lock):
        assert line["blocked"] >= 99 * MS - line["preempted"], line
    # Three at once, twice: some of them waited for one or two others.
    assert max(line["blocked"] for line in lock) >= 140 * MS
    assert max(line["wall"] for line in lock) < 10_000 * MS
    assert sorted(line["cpu"] for line in sleep)[30] < 10 * MS
    # A request waited at least as long as its fsync.
    fsynced = [answer for path, answer in answers if path == "/fsync"]
    blocked = sorted(answer.get("blocked_ns", 0) for answer in fsynced)
    waited = sorted(line["blocked"] for line in fsync)
    assert all(line >= call * 0.99 for line, call in zip(waited, blocked))
    # No call is known if more waits for the interpreter's lock came after it than there are records.
    assert {answer.get("call") for answer in fsynced} <= {"fsync", None}
    slept = {answer.get("call") for path, answer in answers if path == "/sleep"}
    assert "clock_nanosleep" in slept and slept <= {"clock_nanosleep", None}
