#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What nginx, Apache and flash do for one request, in phases: Figures 10 and 11 of the thesis, with today's servers.

    sudo python3 hbench/bench/phases.py --debox target/release/debox --flash target/release/flash

Each server answers requests for one file in memory, each on a connection of its own, and writes a line to its access log. Its
thread is attached to when it has answered some already. `debox report --requests` finds the phases; the access log, which its
descriptor does not tell from other files, is named by a rule with the number that the descriptor has in /proc. A minute, as root.
"""

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PAGE = b"<p>A page as large as a start page of 1997.</p>\n" * 640
WARM = 30
REQUESTS = 300

NGINX = """
daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
events {{ }}
http {{
  sendfile on; access_log {log}; default_type text/html;
  client_body_temp_path {dir}/body; fastcgi_temp_path {dir}/fastcgi; proxy_temp_path {dir}/proxy;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""

APACHE = """
ServerRoot {dir}
ServerName localhost
PidFile {dir}/pid
ErrorLog {dir}/error.log
DefaultRuntimeDir {dir}
Listen 127.0.0.1:{port}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
User nobody
StartServers 1
ServerLimit 1
ThreadsPerChild 25
MaxRequestWorkers 25
EnableSendfile On
LogFormat "%h %l %u %t \\"%r\\" %>s %O" common
CustomLog {log} common
DocumentRoot {files}
"""

FLASH = """
loops = 1
user = "nobody"
log = "{log}"

[[server]]
listen = ["127.0.0.1:{port}"]
root = "{files}"
"""


def fail(text):
    sys.exit(f"phases: {text}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/page.html", headers={"Connection": "close"})
    answer = connection.getresponse()
    if answer.status != 200 or answer.read() != PAGE:
        fail(f"a wrong answer: {answer.status}")
    connection.close()


def wait_until(what, is_done, seconds=20):
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            fail(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)


def answers(port):
    try:
        ask(port)
    except (OSError, http.client.HTTPException):
        return False
    return True


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def descriptor_of(pid, path):
    """The number under which the process has this file open."""
    place = f"/proc/{pid}/fd"
    for name in os.listdir(place):
        with contextlib.suppress(OSError):
            if os.readlink(f"{place}/{name}") == path:
                return int(name)
    return None


@contextlib.contextmanager
def started(words, errors):
    with open(errors, "w", encoding="utf-8") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def ask_all(port):
    for _ in range(REQUESTS):
        ask(port)
        time.sleep(0.002)


def cpu_ns(pid):
    """Of all threads of the process."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def cpu_of_requests(pid, port):
    """For each request."""
    before = cpu_ns(pid)
    ask_all(port)
    return (cpu_ns(pid) - before) / REQUESTS


def recorded(debox, pid, port, recording):
    words = [debox, "record", "-o", recording, "-p", str(pid)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as recorder:
        try:
            # A recording that has begun has its file.
            wait_until("the recording", lambda: os.path.exists(recording) or recorder.poll() is not None)
            time.sleep(1)
            cpu = cpu_of_requests(pid, port)
            time.sleep(0.5)
        finally:
            recorder.send_signal(signal.SIGINT)
            said = recorder.communicate()[1]
    if recorder.returncode not in (0, 130):
        fail(f"debox record: {said.strip()}")
    return cpu


def measured(debox, name, config, words, rules, work):
    """The report's JSON, and its text. `rules`: phases of this server alone."""
    place = os.path.join(work, name.split()[0])
    files, log, path = (os.path.join(place, part) for part in ("files", "access.log", "server.conf"))
    os.makedirs(files)
    # Servers that serve as another user have to reach it, and to write their log.
    for directory, mode in ((work, 0o755), (place, 0o777), (files, 0o755)):
        os.chmod(directory, mode)
    with open(os.path.join(files, "page.html"), "wb") as file:
        file.write(PAGE)
    port = free_port()
    with open(path, "w", encoding="utf-8") as file:
        file.write(config.format(dir=place, files=files, port=port, log=log))
    recording = os.path.join(place, "trace.parquet")
    errors = os.path.join(place, "errors")
    with started([word.format(path=path, dir=place) for word in words], errors) as server:
        wait_until(f"an answer of {name}", lambda: answers(port) or server.poll() is not None)
        if server.poll() is not None:
            with open(errors, encoding="utf-8", errors="replace") as file:
                fail(f"{name} ended: {file.read().strip()}")
        for _ in range(WARM):
            ask(port)
        worker = next(iter(children(server.pid)), server.pid)
        descriptor = descriptor_of(worker, log)
        if descriptor is None:
            fail(f"{name} has not opened its access log")
        cpu = [cpu_of_requests(worker, port), recorded(debox, worker, port, recording)]
    report = [debox, "report", recording, "--requests"]
    to_log = ("write to the access log", f"(syscall == write || syscall == writev) && arg0 == {descriptor}")
    for phase, predicate in (*rules, to_log):
        report += ["--phase", f"{phase}: {predicate}"]
    done = [subprocess.run([*report, *more], capture_output=True, text=True, check=False) for more in (["--json"], [])]
    for one in done:
        if one.returncode != 0:
            fail(f"debox report: {one.stderr.strip()}")
    found = json.loads(done[0].stdout)
    if not found["requests"]:
        fail(f"debox report found no request to {name}")
    return {**found, "cpu": cpu}, done[1].stdout


def table(results):
    """Markdown: each server's phases side by side, per request. `own`: the time without that in which others had the CPU."""
    names, order = list(results), []
    for report in results.values():
        order += [phase["phase"] for phase in report["phases"] if phase["phase"] not in order]
    lines = ["| phase, per request | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    waits = dict.fromkeys(names, 0.0)
    for phase in order:
        cells = []
        for name, report in results.items():
            own = sum(one["wall_ns"] - one["cpu_wait_ns"] for one in report["phases"])
            found = next((one for one in report["phases"] if one["phase"] == phase), None)
            if not found:
                cells.append("")
                continue
            number = report["requests"]
            calls = ", ".join(f"{call['call']} {call['count'] / number:.2g}" for call in found["calls"])
            ns = found["wall_ns"] - found["cpu_wait_ns"]
            cells.append(f"{ns / number / 1000:.1f} µs, {ns / own:.0%}" + (f": {calls}" if calls else ""))
            waits[name] += found["cpu_wait_ns"] / number / 1000
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    cells = [f"{report['elsewhere_ns'] / report['requests'] / 1000:.1f} µs" for report in results.values()]
    lines.append("| in no phase | " + " | ".join(cells) + " |")
    lines.append("| ready to run, while others had the CPU | " + " | ".join(f"{waits[name]:.1f} µs" for name in names) + " |")
    cells = [f"{report['mean_ns'] / 1000:.1f} µs, of {report['requests']}" for report in results.values()]
    lines.append("| **a request** | " + " | ".join(cells) + " |")
    for which, text in ((0, "without"), (1, "with")):
        cells = [f"{report['cpu'][which] / 1000:.0f} µs" for report in results.values()]
        lines.append(f"| its CPU time by the scheduler's account, accepting and waiting included, {text} a recording | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debox", default="target/release/debox")
    parser.add_argument("--flash", default="target/release/flash")
    parser.add_argument("--text", action="store_true", help="also print what debox report says of each server")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        fail("root is needed to attach to the servers")
    for program in (arguments.debox, arguments.flash):
        if not os.access(program, os.X_OK):
            fail(f"{program} was not built: make build")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    nginx, apache = shutil.which("nginx"), shutil.which("apache2")
    servers = {
        "nginx": (NGINX, [nginx, "-c", "{path}", "-e", "{dir}/error.log"], []),
        "Apache (event)": (APACHE, [apache, "-f", "{path}", "-DFOREGROUND"], []),
        # The loop leaves the line to another thread, which it wakes by an eventfd: that takes 8 bytes.
        "flash": (FLASH, [os.path.abspath(arguments.flash), "run", "{path}"],
                  [("wake the thread of the access log", "syscall == write && arg2 == 8")]),
    }
    results, texts = {}, {}
    with tempfile.TemporaryDirectory() as work:
        for name, (config, words, rules) in servers.items():
            if not words[0]:
                print(f"phases: {name} is not installed", file=sys.stderr)
                continue
            results[name], texts[name] = measured(os.path.abspath(arguments.debox), name, config, words, rules, work)
            missed = REQUESTS - results[name]["requests"]
            if missed:
                print(f"phases: of {REQUESTS} requests to {name}, {missed} were not found", file=sys.stderr)
    print(table(results))
    if arguments.text:
        for name, text in texts.items():
            print(f"\n{name}\n\n{text}")


if __name__ == "__main__":
    main()
