#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Six real recordings, and five questions about each that were written down before the page was looked at. Each question
is answered from what can be seen of the page in a browser, after the keys that are given.

As root, on a machine that does nothing else; some three minutes:

    sudo python3 debox/tests/operator/pages.py --debox target/release/debox --latlab target/release/latlab

Screenshots (light, dark, narrow, printed) are in the directory of `-o`, for people to look at.

Exit status: 0 if each question has its answer and no console had an error, 1 if not.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from browser import Browser
from machine import Machine, answers, free_port, wait_for

DEADLOCK = r"""
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;

static void *transfer(void *unused)
{
	pthread_mutex_lock(&accounts);
	usleep(200000);
	pthread_mutex_lock(&journal);
	return unused;
}

static void *archive(void *unused)
{
	pthread_mutex_lock(&journal);
	usleep(200000);
	pthread_mutex_lock(&accounts);
	return unused;
}

int main(void)
{
	pthread_t one, other;

	pthread_create(&one, 0, transfer, 0);
	pthread_setname_np(one, "transfer");
	pthread_create(&other, 0, archive, 0);
	pthread_setname_np(other, "archive");
	pthread_join(one, 0);
	return 0;
}
"""

# Name of the recording: (question, keys, what the answer looks like).
QUESTIONS = {
    "redis": [
        ("What does the server wait for longest?", [], r"(fsync writeback|journal commit|block flush|block I/O)"),
        ("In which call?", [], r"fdatasync"),
        ("Does that hold up its event loop?", [], r"The event loop of redis-server was blocked"),
        ("For how long at most?", [], r"its longest turn took \d"),
        ("For which file?", ["/", "aof"], r"appendonly\S*\.aof|temp-\S*\.aof"),
    ],
    "nginx": [
        ("Why are answers late?", [], r"The event loop of nginx was blocked"),
        ("What does the worker wait for?", [], r"(page read|readahead|inode read|directory read)"),
        ("In which call, and from where in nginx?", [], r"in (pread64|sendfile|openat|preadv2|read)\b[^$]*ngx_\w+|Called from"),
        ("For which file?", ["/", ".bin"], r"\d+\.bin"),
        ("How long did the longest wait take?", [], r"longest \d"),
    ],
    "postgres": [
        ("What do transactions wait for?", [], r"(fsync writeback|journal commit|block flush|futex)"),
        ("In which call?", [], r"(fdatasync|fsync|futex)"),
        ("For which file?", ["/", "pg_wal"], r"pg_wal/0\w+"),
        ("Which processes are there?", ["/", "checkpointer"], r"checkpointer"),
        ("Which of them did most?", ["#groups"], r"postgres: postgres postgres \[local\]"),
    ],
    "build": [
        ("Did it wait or compute?", [], r"[Mm]ostly computing in the program|computing in the program"),
        ("Which program computed?", ["#groups"], r"cc1"),
        ("How many processes were there?", ["#groups"], r"\d+ processes"),
        ("In which function is most of the time?", [], r"most in \S+"),
        ("Did they wait for a CPU?", [], r"waiting for a CPU"),
    ],
    "node": [
        ("Why is the service slow?", [], r"The event loop of node was blocked"),
        ("What does the loop wait for?", [], r"another loop inside it"),
        ("In which call?", [], r"in epoll_p?wait"),
        ("From where?", [], r"Called from\s+\S*([Ss]pawn|uv__io_poll|[Ss]ync)\S*"),
        ("How long were clients kept waiting at most?", [], r"its longest turn took (3\d\d|4\d\d) ms"),
    ],
    "deadlock": [
        ("Does it hang, and why?", [], r"[Dd]eadlock"),
        ("Which threads?", [], r"transfer \(\d+\)[^$]*archive \(\d+\)|archive \(\d+\)[^$]*transfer \(\d+\)"),
        ("What does each wait for?", [], r"waits for (mutex|futex)"),
        ("Who holds it?", [], r"Held by\s+(transfer|archive) \(\d+\)"),
        ("Where in the program?", [], r"Called from\s+(transfer|archive)"),
    ],
}


class Recordings:
    """Makes the recordings, one after the other."""

    def __init__(self, debox, latlab, work):
        self.debox, self.latlab, self.work = debox, latlab, work

    def record(self, name, *options):
        file = self.work / f"{name}.parquet"
        subprocess.run([self.debox, "record", "-o", file, *options], check=True, capture_output=True, timeout=120)
        return file

    def of_machine(self, name, parts, program):
        with Machine(self.work / "machine", self.latlab, parts) as machine:
            time.sleep(2)
            return self.record(name, "-p", str(machine.pids[program]), "--for", "6s")

    def redis(self):
        port = free_port()
        directory = self.work / "redis"
        directory.mkdir()
        command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        server = subprocess.Popen([*command, "--dir", str(directory)], stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: answers(port), "redis")
            load = ["redis-benchmark", "-p", str(port), "-t", "set", "-c", "10", "-n", "1000000", "-q"]
            with subprocess.Popen(load, stdout=subprocess.DEVNULL) as client:
                file = self.record("redis", "-p", str(server.pid), "--for", "5s")
                client.kill()
            return file
        finally:
            server.kill()
            server.wait()
            shutil.rmtree(directory)

    def nginx(self):
        return self.of_machine("nginx", ("disk", "nginx", "backup"), "nginx")

    def postgres(self):
        return self.of_machine("postgres", ("postgres",), "postgres")

    def node(self):
        return self.of_machine("node", ("node",), "node")

    def build(self):
        sources = self.work / "build"
        sources.mkdir()
        for number in range(6):
            body = "".join(f"int f{number}_{at}(int x) {{ return x * {at} + (x >> {at % 30}); }}\n" for at in range(3000))
            (sources / f"part{number}.c").write_text(body)
        rules = "all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n"
        (sources / "Makefile").write_text(rules)
        return self.record("build", "--", "make", "-s", "-j4", "-C", str(sources))

    def deadlock(self):
        source, program = self.work / "deadlock.c", self.work / "deadlock"
        source.write_text(DEADLOCK)
        subprocess.run(["cc", "-g", "-O1", "-pthread", "-o", program, source], check=True)
        hung = subprocess.Popen([program])
        try:
            time.sleep(1)
            return self.record("deadlock", "-p", str(hung.pid), "--for", "4s")
        finally:
            hung.send_signal(signal.SIGKILL)
            hung.wait()


def ask(browser, name, out):
    """The questions without an answer."""
    missed = []
    for number, (question, keys, answer) in enumerate(QUESTIONS[name], 1):
        browser.press("Escape")
        browser.press("Escape")
        for key in keys:
            if key.startswith("#"):
                browser.evaluate(f"location.hash = {key!r}")
                time.sleep(0.2)
            elif len(key) == 1:
                browser.press(key)
            else:
                browser.type(key)
        shown = browser.text()
        found = re.search(answer, shown)
        if not found:
            missed.append(question)
            (out / f"{name}-{number}.txt").write_text(shown)
        words = " ".join(found.group(0).split())[:90] if found else "NO ANSWER"
        print(f"  {question} {words}")
    return missed


def pictures(browser, name, out):
    browser.press("Escape")
    browser.press("Escape")
    browser.screenshot(out / f"{name}-whole.png", whole=True)
    browser.press("d")
    browser.screenshot(out / f"{name}-dark.png")
    browser.press("d")
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    time.sleep(0.5)
    wide = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    browser.screenshot(out / f"{name}-narrow.png")
    browser.ask("Emulation.clearDeviceMetricsOverride")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    browser.screenshot(out / f"{name}-print.png")
    browser.ask("Emulation.setEmulatedMedia", media="")
    return [f"{wide} pixels wider than a narrow screen"] if wide > 0 else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debox", type=pathlib.Path, required=True)
    parser.add_argument("--latlab", type=pathlib.Path, required=True)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("pages"))
    parser.add_argument("--only", action="append", choices=list(QUESTIONS))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("pages: root, please: it loads probes and mounts a disk")
    out = arguments.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="debox-pages-") as work:
        recordings = Recordings(arguments.debox.resolve(), arguments.latlab.resolve(), pathlib.Path(work))
        for name in arguments.only or QUESTIONS:
            file = getattr(recordings, name)()
            page = out / f"{name}.html"
            subprocess.run([recordings.debox, "report", file, "--html", page], check=True, capture_output=True)
            browser = Browser(page.as_uri())
            try:
                print(f"{name}: complete after {browser.wait_until_done():.1f} s")
                missed = ask(browser, name, out)
                missed += pictures(browser, name, out) + [f"console: {one}" for one in browser.complaints]
            finally:
                browser.end()
            for one in missed:
                print(f"  MISSING {one}")
            failed += missed
    print(f"{len(failed)} missing")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
