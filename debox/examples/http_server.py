# SPDX-License-Identifier: MIT OR Apache-2.0
"""A threaded HTTP server whose log lines say where the time of each request went.

    pip install .                             # at the top of a clone
    sudo python3 debox/examples/http_server.py      # or with a broker, without sudo
    curl localhost:8000/fsync

    GET /fsync 200 wall=2.31ms cpu=402us blocked=1.88ms runqueue=21.4us preempted=0 calls=9

Its pages are there to be slow in a known way: /fast, /sleep (20 ms), /fsync, /lock (100 ms under a
lock that all requests share), /spin (30 ms of CPU time). Each answers with the call that it waited in.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import debox

shared = threading.Lock()


def last_call():
    """A copy: behind other threads that compute, the interpreter's own waits soon take the place of a
    record that is read in place."""
    return debox.history(1) if debox.is_enabled() else []


def fast():
    return []


def sleep():
    time.sleep(0.020)
    return last_call()


def fsync():
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(b"x" * 100_000)
        file.flush()
        os.fsync(file.fileno())
        return last_call()


def lock():
    with shared:
        time.sleep(0.100)
        return last_call()


def spin():
    until = time.thread_time() + 0.030
    while time.thread_time() < until:
        sum(range(1000))
    return []


PAGES = {"/fast": fast, "/sleep": sleep, "/fsync": fsync, "/lock": lock, "/spin": spin}


def describe(calls):
    """The call that a page waited in, for the client; nothing where nothing is known."""
    if not calls:
        return {}
    (call,) = calls
    return {"call": call.name, "blocked_ns": call.blocked_ns}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        # The request has been read. That the client took its time to send it is not in the scope.
        with debox.scope("request") as scope:
            page = PAGES.get(self.path)
            status = 200 if page else 404
            body = json.dumps(describe(page() if page else [])).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        # In one piece: other threads write lines, too.
        sys.stdout.write(f"{self.command} {self.path} {status} {scope}\n")
        sys.stdout.flush()

    def log_request(self, code="-", size="-"):
        pass  # the line above is the log's


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    options = parser.parse_args()
    try:
        debox.enable()
    except debox.Error as error:
        # It serves all the same; its log says "unmeasured".
        print(f"http_server: nothing is measured: {error}", file=sys.stderr, flush=True)
    with Server(("127.0.0.1", options.port), Handler) as server:
        print(f"listening on port {server.server_address[1]}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
