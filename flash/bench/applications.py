#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the ways in which flash has a program answer: application (the program writes to the client's socket),
FastCGI, and reverse proxy.

    python3 flash/bench/applications.py --flash target/release/flash

The same program behind each: one in C (application and FastCGI; needs cc, make and libfcgi-dev), and one of WSGI
(application, and a proxy in front of gunicorn; needs gunicorn). As many processes for each, wrk as the client, with a
small and a large answer. The variants take turns in each round. Printed are medians of requests per second, and the ratio
to the application in the same round: median, with the lowest and the highest. Below 1: the application was faster.

The client, the server and the programs share the machine; on one that does other work, only the ratios say something.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE.parent / "application"
SIZES = {"small": 200, "large": 1 << 20}
PATIENCE_S = 30

WSGI = """
CONTENT = b"x" * (4 << 20)


def app(environ, start_response):
    size = int(environ["QUERY_STRING"])
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
    return [CONTENT[:size]]
"""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"applications.py: {' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@contextlib.contextmanager
def process(*command, **options):
    with subprocess.Popen(list(map(str, command)), start_new_session=True, **options) as child:
        try:
            yield child
        finally:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(PATIENCE_S)


def wait_for(path):
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit(f"applications.py: {path} did not come")
        time.sleep(0.02)


def builds(place):
    """The program in C, in its two forms. Empty: something is missing."""
    if not all(map(shutil.which, ("cc", "make"))):
        print("without the program in C: it needs cc and make")
        return {}
    run("make", "-C", LIBRARY / "c", f"OUT={place}", place / "libflash_application.a")
    source = HERE / "applications.c"
    own = place / "application"
    run("cc", "-O2", "-o", own, source, f"-I{LIBRARY / 'c'}", place / "libflash_application.a")
    fcgi = place / "fastcgi"
    done = subprocess.run(
        ["cc", "-O2", "-DFCGI", "-o", fcgi, source, "-lfcgi"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print("without FastCGI: it needs libfcgi-dev")
        return {"application": own}
    return {"application": own, "fastcgi": fcgi}


@contextlib.contextmanager
def fastcgi_processes(program, path, count):
    """As many processes that accept from one socket, which is their descriptor 0."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(path))
        listener.listen(1024)
        for _ in range(count):
            stack.enter_context(process(program, stdin=listener))
        yield


def config(place, locations, loops):
    text = f'loops = {loops}\n[[server]]\nlisten = ["127.0.0.1:0"]\nroot = "{place}"\n'
    for name, location in locations.items():
        text += f'[[server.location]]\npath = "/{name}"\n{location}\n'
    (place / "flash.toml").write_text(text, encoding="utf-8")
    return place / "flash.toml"


def measure(url, seconds, connections):
    said = run("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", url)
    errors = re.search(r"Socket errors: (.*)|Non-2xx or 3xx responses: (.*)", said)
    if errors:
        raise SystemExit(f"applications.py: {url}: {errors.group(0)}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", said).group(1))


def report(rates, groups):
    for size in SIZES:
        print(f"\n{size} answers ({SIZES[size]} bytes), requests per second")
        for group in groups:
            first = group[0]
            for name in group:
                own = rates[name, size]
                ratios = [its / base for its, base in zip(own, rates[first, size])]
                spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
                print(f"  {name:18} {statistics.median(own):10.0f}   {'1' if name == first else spread}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flash", type=Path, default=Path("target/release/flash"))
    parser.add_argument(
        "--processes", type=int, default=8, help="of each program, and connections of the client: FastCGI has no queue"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=5, help="of one measurement")
    parser.add_argument("--loops", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for all rates")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        place = Path(directory)
        (place / "bench.py").write_text(WSGI, encoding="utf-8")
        built = builds(place)
        processes = f"processes = {options.processes}"
        locations, groups = {}, []
        if "fastcgi" in built:
            stack.enter_context(fastcgi_processes(built["fastcgi"], place / "fcgi.sock", options.processes))
            locations["c-application"] = f'application = {{ command = ["{built["application"]}"], {processes} }}'
            locations["c-fastcgi"] = (
                f'fastcgi = {{ to = "unix:{place}/fcgi.sock", application = true }}\n'
                f"upstream = {{ connections = {options.processes} }}"
            )
            groups.append(["c-application", "c-fastcgi"])
        gunicorn = [sys.executable, "-m", "gunicorn"]
        if subprocess.run([*gunicorn, "--version"], capture_output=True, check=False).returncode == 0:
            stack.enter_context(
                process(
                    *gunicorn, "-w", options.processes, "-b", f"unix:{place}/wsgi.sock", "--log-level", "error",
                    "bench:app", cwd=place,
                )
            )
            wait_for(place / "wsgi.sock")
            locations["wsgi-application"] = (
                f'application = {{ command = ["{sys.executable}", "-m", "flash_application.wsgi", "bench:app"], '
                f'{processes}, environment = {{ PYTHONPATH = "{LIBRARY / "python"}" }} }}'
            )
            locations["wsgi-proxy"] = f'proxy = "unix:{place}/wsgi.sock"'
            groups.append(["wsgi-application", "wsgi-proxy"])
        else:
            print("without WSGI: it needs gunicorn")
        if not groups:
            raise SystemExit("applications.py: nothing can be compared")
        file = config(place, locations, options.loops)
        flash = process(options.flash, "run", file, stdout=subprocess.PIPE, text=True)
        address = stack.enter_context(flash).stdout.readline().split()[-1].rstrip("/")
        rates = {(name, size): [] for name in locations for size in SIZES}
        for name in locations:
            measure(f"{address}/{name}?{SIZES['small']}", 1, options.processes)
        for number in range(options.rounds):
            for size in SIZES:
                for name in locations:
                    url = f"{address}/{name}?{SIZES[size]}"
                    rates[name, size].append(measure(url, options.seconds, options.processes))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        report(rates, groups)
        if options.json:
            text = json.dumps({f"{name} {size}": all for (name, size), all in rates.items()}, indent=1)
            options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
