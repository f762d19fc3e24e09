#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures what flash/README.md says about costs: TLS handshakes, idle connections, the sandbox, and open files.

On a machine that does nothing else; a minute. Needs openssl and wrk (scripts/setup test bench).

    python3 flash/bench/costs.py --flash target/release/flash

Handshakes: `openssl s_time -new` against one loop; mean and longest by flash's own counters, of TLS 1.2 and 1.3 together.
Idle connections: growth of the resident memory (VmRSS) by so many connections, divided by their number.
Sandbox and open files: requests per second with and without, in turn; the median of the ratios, with the lowest and the
highest.
"""

import argparse
import contextlib
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

KEYS = {
    "ECDSA P-256": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "RSA 2048": ["-newkey", "rsa:2048"],
    "RSA 4096": ["-newkey", "rsa:4096"],
}


@contextlib.contextmanager
def flash(program, root, *options):
    """A server; its process and the addresses that it says, by scheme, and of its counters."""
    command = [program, "serve", str(root), "--metrics", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            said = {}
            for line in server.stdout:
                if found := re.match(r"serving at (https?)://(\S+)/", line):
                    said[found[1]] = found[2]
                elif found := re.match(r"counters at (\S+)", line):
                    said["counters"] = found[1]
                elif line.startswith("sandbox:"):
                    break
            if "counters" not in said:
                sys.exit("flash did not start")
            yield server, said
        finally:
            server.terminate()


def counters(url):
    """Flash's counters by name, summed over what their labels tell apart."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    sums = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def certificate(place, kind):
    """Options for a server with a new certificate of this kind."""
    name = kind.replace(" ", "-")
    cert, key = place / f"{name}.pem", place / f"{name}.key"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", *KEYS[kind]]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
    return ["--tls-listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key)]


def handshakes(program, place, root, seconds):
    """Prints mean and longest handshake for each kind of certificate."""
    for kind in KEYS:
        with flash(program, root, "--loops", "1", *certificate(place, kind)) as (_, said):
            for version in ["-tls1_2", "-tls1_3"]:
                command = ["openssl", "s_time", "-connect", said["https"], "-new", "-time", str(seconds), version]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            now = counters(said["counters"])
        count = now["flash_tls_handshakes_total"]
        mean = now["flash_tls_handshake_ns_total"] / count / 1e6
        longest = now["flash_tls_handshake_longest_ns"] / 1e6
        print(f"handshake, {kind}: mean {mean:.3f} ms, longest {longest:.2f} ms, of {count:.0f}")


def resident_kib(pid):
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def idle(program, place, root, connections):
    """Prints the memory that an idle connection takes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    options = ["--listen", "127.0.0.1:0", *certificate(place, "ECDSA P-256")]
    for scheme in ["http", "https"]:
        with flash(program, root, *options) as (server, said), contextlib.ExitStack() as all_of_them:
            host, port = said[scheme].rsplit(":", 1)

            def connect():
                client = socket.create_connection((host, int(port)), timeout=10)
                if scheme == "https":
                    client = context.wrap_socket(client)
                client.sendall(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(4096)
                all_of_them.enter_context(client)

            for _ in range(50):
                connect()
            before = resident_kib(server.pid)
            for _ in range(connections):
                connect()
            each = (resident_kib(server.pid) - before) / connections
        print(f"idle connection, {scheme}: {each:.2f} KiB, of {connections}")


def rate(program, root, seconds, *options):
    """Requests per second for a small file."""
    with flash(program, root, "--listen", "127.0.0.1:0", *options) as (_, said):
        url = f"http://{said['http']}/small"
        command = ["wrk", "-t", "2", "-c", "32", "-d", f"{seconds}s", url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])


def compare(program, root, rounds, seconds, words, options):
    """Prints the requests per second without and with these options."""
    pairs = []
    for number in range(rounds):
        # Each goes first in half of the rounds.
        order = [[], options][:: 1 if number % 2 == 0 else -1]
        measured = {bool(chosen): rate(program, root, seconds, *chosen) for chosen in order}
        pairs.append((measured[False], measured[True]))
    ratios = [usual / changed for usual, changed in pairs]
    if words[0] == "without":
        ratios = [1 / ratio for ratio in ratios]
    usual, changed = (statistics.median(column) for column in zip(*pairs))
    spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    print(f"requests/s: {usual:.0f} {words[0]} {words[1]}, {changed:.0f} {words[2]}; ratio {spread} in {rounds} rounds")


def sandbox(program, root, rounds, seconds):
    """Prints what the sandbox costs."""
    compare(program, root, rounds, seconds, ("with", "the sandbox", "without"), ["--no-sandbox"])


def open_files(program, root, rounds, seconds):
    """Prints what it brings to keep files open."""
    options = ["--open-files", "1000"]
    compare(program, root, rounds, seconds, ("without", "files kept open", "with"), options)


def main():
    """Measures all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flash", default="target/release/flash", help="the program to measure")
    parser.add_argument("--seconds", type=int, default=3, help="of each run")
    parser.add_argument("--rounds", type=int, default=6, help="of the comparisons with and without")
    parser.add_argument("--connections", type=int, default=400, help="idle connections")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        root = place / "root"
        root.mkdir()
        (root / "small").write_bytes(b"x" * 1024)
        handshakes(options.flash, place, root, options.seconds)
        idle(options.flash, place, root, options.connections)
        sandbox(options.flash, root, options.rounds, options.seconds)
        open_files(options.flash, root, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
