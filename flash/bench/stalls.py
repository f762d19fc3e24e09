#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether flash's loop waits for anything but events while single reads of its disk take longer than 100 ms, and how long the
turns of the loop take.

On a machine that does nothing else, with two CPUs; as root; two minutes and a half. Needs FUSE and loop devices.

    sudo python3 flash/bench/stalls.py --programs target/release

flash has one loop and is alone on the first CPU, so that a turn is not longer because others have the CPU; clients and the
disk have the rest. The disk (`latlab disk`) takes 120 ms for each read, eight at once, also for names and inodes. 2,000 requests
per second are for files that are locked into memory. Sixteen clients ask for names that the disk has to look up, one after the
other; every fifth does not exist. Before that, the requests for files in memory are alone for as long: what turns take then is
not due to the disk. `debox guard` watches the loop all the while.

Exit status: 0 if the guard found no block and no turn took more than 1 ms, 1 if not, 2 if it could not be measured.
"""

import argparse
import contextlib
import http.client
import json
import mmap
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from programs import fail, mounted, run, started

HOT, SIZE = 256, 8 << 10
SERVICE, DEPTH = "120ms", "8"
CLIENTS = 16
RATE = 2000
LONGEST_US = 1000
# Of Linux; Python has it from 3.13 on.
MAP_LOCKED = 0x2000


def make_files(place, names):
    """Files that will be in memory, and files of which each has a directory of its own, so that its name is cold."""
    (place / "hot").mkdir(parents=True)
    for number in range(HOT):
        (place / "hot" / str(number)).write_bytes(os.urandom(SIZE))
    for number in range(names):
        directory = place / "cold" / str(number)
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(os.urandom(SIZE))


class Cold(threading.Thread):
    """Asks for names that are cold, one after the other."""

    def __init__(self, address, names, ends):
        super().__init__()
        self.address = address
        self.names = names
        self.ends = ends
        self.times = []
        self.wrong = []

    def run(self):
        try:
            self.ask_all()
        except (OSError, http.client.HTTPException) as error:
            self.wrong.append(str(error))

    def ask_all(self):
        client = http.client.HTTPConnection(self.address, timeout=60)
        while time.monotonic() < self.ends:
            try:
                number = self.names.pop()
            except IndexError:
                self.wrong.append("there were too few cold names: --names takes more")
                return
            is_missing = number % 5 == 0
            begin = time.monotonic()
            client.request("GET", f"/cold/{number}/{'none' if is_missing else 'file'}")
            answer = client.getresponse()
            answer.read()
            self.times.append(time.monotonic() - begin)
            if answer.status != (404 if is_missing else 200):
                self.wrong.append(f"/cold/{number}: {answer.status}")
        client.close()


@contextlib.contextmanager
def locked(directory):
    """Keeps the files of a directory in memory. Reclaim, as of a control group, takes their pages otherwise, and requests wait."""
    with contextlib.ExitStack() as kept:
        for path in directory.iterdir():
            with path.open("rb") as file:
                flags = mmap.MAP_SHARED | MAP_LOCKED
                kept.enter_context(mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ))
        yield


def hot(latlab, address, seconds, place):
    """What latlab says of requests for files in memory, in an open loop."""
    urls = place / "urls"
    urls.write_text("".join(f"/hot/{number}\n" for number in range(HOT)), encoding="ascii")
    command = [latlab, "run", f"http://{address}", "--urls", urls, "--rate", RATE]
    # 3: other work on the machine kept the generator from its times. What the loop did is as true.
    return json.loads(run(*command, "-d", f"{seconds}s", "--format", "json", statuses=(0, 3)))


def of_loop(counters):
    """What flash says of the turns of its loop since the start."""
    with urllib.request.urlopen(counters.replace("/metrics", "/status.json"), timeout=10) as answer:
        return json.loads(answer.read())["loops"][0]


def measure(arguments, place):
    programs = Path(arguments.programs).resolve()
    files, mount = place / "files", place / "mount"
    mount.mkdir()
    make_files(files, arguments.names)
    latlab, disk = programs / "latlab", f"flash-stalls-{os.getpid()}"
    speed = ["--service", SERVICE, "--sequential", SERVICE, "--depth", DEPTH, "--no-check"]
    command = [programs / "debox", "guard", "-o", place / "verdict", "--", "taskset", "-c", "0", programs / "flash", "serve", mount]
    command += ["--loops", "1", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    with mounted(latlab, disk, files, mount, *speed), started(command) as (guard, urls), contextlib.ExitStack() as held:
        address = urls["serving"].split("/")[2]
        for number in range(HOT):
            with urllib.request.urlopen(f"http://{address}/hot/{number}", timeout=60) as answer:
                answer.read()
        held.enter_context(locked(mount / "hot"))
        before = of_loop(urls["counters"])
        hot(latlab, address, arguments.seconds, place)
        alone = of_loop(urls["counters"])
        names = list(range(arguments.names))
        ends = time.monotonic() + arguments.seconds
        clients = [Cold(address, names, ends) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        of_hot = hot(latlab, address, arguments.seconds, place)
        for client in clients:
            client.join()
        loop = of_loop(urls["counters"])
    times = [took for client in clients for took in client.times]
    wrong = [what for client in clients for what in client.wrong]
    if not times:
        fail(f"no cold name was answered: {wrong[:3]}")
    failed = of_hot["requests"] - of_hot["ok"]
    took = {name: of_hot["latency_from_intended"][f"{name}_ns"] / 1e6 for name in ("p50", "p99", "p999", "max")}
    print(
        f"files in memory: {of_hot['requests']} requests, {failed} failed, median {took['p50']:.2f} ms, 99 % {took['p99']:.2f} ms, "
        f"99.9 % {took['p999']:.2f} ms, longest {took['max']:.2f} ms; latlab late by {of_hot['lateness']['max_ns'] / 1e6:.2f} ms at most"
    )
    print(
        f"cold names: {len(times)} requests, {len(wrong)} not as they should be, median {statistics.median(times) * 1000:.0f} ms, "
        f"shortest {min(times) * 1000:.0f} ms, longest {max(times) * 1000:.0f} ms"
    )
    turns, long_turns = (loop[name] - alone[name] for name in ("turns", "long_turns"))
    print(
        f"turns of the loop without cold names: {alone['turns'] - before['turns']}, "
        f"{alone['long_turns'] - before['long_turns']} above 1 ms, longest since the start {alone['longest_us']} us"
    )
    print(
        f"and with them: {turns}, {long_turns} above 1 ms, longest since the start {loop['longest_us']} us; of all, 99.99 % at most "
        f"{loop['p9999_us']} us; sends above 1 ms: {loop['long_sends']}"
    )
    print((place / "verdict").read_text(encoding="utf-8").strip())
    for what in wrong[:5]:
        print(f"wrong: {what}")
    return guard.returncode == 0 and loop["longest_us"] <= LONGEST_US and not wrong and failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="target/release", help="directory with debox, flash and latlab")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--names", type=int, default=4000, help="cold names that there are")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        fail("this takes root, and two CPUs: one for the server")
    others = os.sched_getaffinity(0) - {0}
    if not others:
        fail("clients and the disk need a CPU beside the first one")
    # The clients and the disk inherit it.
    os.sched_setaffinity(0, others)
    # The disk and the server are taken down, too, when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="flash-stalls-", dir=os.environ.get("TMPDIR", "/var/tmp")) as directory:
        sys.exit(0 if measure(arguments, Path(directory)) else 1)


if __name__ == "__main__":
    main()
