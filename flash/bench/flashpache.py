#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures what flash's path server gains for unmodified servers on a slow disk: median, mean, 90th percentile and
capacity, and what the servers' processes waited for.

As root, on a machine that does nothing else; some five minutes for each server. Needs apache2, apache2-dev, python3-cherrypy3,
and a built latlab, flash and debox.

    sudo python3 flash/bench/flashpache.py --programs target/release

Servers: Apache with two multi-processing modules, and CherryPy. Each is measured alone, with mod_flashpache (Apache), and with
the preload shim, in turn. First the answers with and without are compared, byte for byte. The disk takes its time for
metadata, too, and the files do not all find room in memory (--size, --memory).

Each run has three parts. cold: the memory is empty, and requests come at --rate. warm: the memory is filled at the disk's
full speed, then requests come faster, most of them for files in memory. capacity: --flood connections that do not
pause. With a rate, requests come whatever the server does, so one that waits cannot slow its own clients.

Printed are medians of the rounds, and the ratio to the server alone in the same round: median, with the lowest and the
highest. Below 1 is better, for capacity above 1. At last debox records one more run of each, and says what the threads of
server and path server waited for.

Exit status: 1 if answers differ.
"""

import argparse
import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import flashpache_servers

PATIENCE_S = 60
FIGURES = ("median", "mean", "p90")
# Files whose answers are compared.
COMPARED = 20
# Waits that are shown of each part and variant.
WAITS = 6
# The calls in which an adapter waits for the path server's answer. Nothing else of these servers waits in them for long.
ASKS = ("ppoll", "recvmsg")


def run(*command, **options):
    """Runs a command to its end; it has to succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"flashpache.py: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Memory:
    """A control group with a limit, for a server and the path server together: they bring files into memory for each
    other."""

    def __init__(self, limit_mib):
        name = f"flashpache-{os.getpid()}"
        first = Path("/sys/fs/cgroup/memory")
        is_first = first.is_dir()
        self.group = (first if is_first else Path("/sys/fs/cgroup")) / name
        self.limit = self.group / ("memory.limit_in_bytes" if is_first else "memory.max")
        self.bytes = limit_mib << 20

    def set_up(self):
        self.group.mkdir()
        self.limit.write_text(str(self.bytes), encoding="ascii")

    def enter(self):
        """Called in a new process."""
        (self.group / "cgroup.procs").write_text("0", encoding="ascii")

    def tear_down(self):
        end = time.monotonic() + PATIENCE_S
        while self.group.exists() and time.monotonic() < end:
            try:
                self.group.rmdir()
            except OSError:
                time.sleep(0.1)


@contextlib.contextmanager
def process(command, **options):
    """A process in a group of its own, ended at the end: Apache signals its whole group."""
    child = subprocess.Popen(list(map(str, command)), process_group=0, **options)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(address, title):
    """Until the server listens there."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(address).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise SystemExit(f"flashpache.py: {title} does not start") from None
            time.sleep(0.05)


class Bench:
    """What all runs share."""

    def __init__(self, options, place):
        self.options = options
        self.place = place
        self.root, self.files = place / "root", place / "files"
        programs = Path(options.programs)
        self.latlab, self.flash, self.debox = programs / "latlab", programs / "flash", programs / "debox"
        self.name = f"flashpache-{os.getpid()}"
        self.memory = Memory(options.memory)

    def set_up(self):
        """Builds the adapters, and puts up the disk with its files."""
        self.memory.set_up()
        os.chmod(self.place, 0o755)
        self.root.mkdir()
        adapters = Path(__file__).parent.parent / "adapters"
        run("make", "-C", adapters, f"OUT={self.place}", "all", "apache")
        run(self.latlab, "fileset", "create", self.files, "--size", self.options.size)
        run(self.latlab, "disk", "up", self.name, *self.slow(), "--from", self.files, "--mount", self.root)

    def slow(self):
        """The disk's speed, as options of latlab."""
        service = self.options.service
        return ["--service", service, "--sequential", service, "--depth", self.options.depth]

    def tear_down(self):
        """The disk and the control group go."""
        subprocess.run([self.latlab, "disk", "down", self.name, "--force"], capture_output=True, check=False)
        self.memory.tear_down()

    @contextlib.contextmanager
    def started(self, server, variant):
        """The server on a cold disk; its address, and the numbers of its process and of the path server's."""
        run(self.latlab, "disk", "cool", self.name)
        with contextlib.ExitStack() as stack, socket.socket() as free:
            pids = []
            if variant != "alone":
                command = [self.flash, "path-server", "--listen", f"unix:{self.place}/paths", "--root", self.root]
                command += ["--user", flashpache_servers.USER]
                pipe = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": self.memory.enter}
                paths = stack.enter_context(process(command, **pipe))
                while not paths.stdout.readline().startswith("sandbox:"):
                    if paths.poll() is not None:
                        raise SystemExit("flashpache.py: the path server does not start")
                pids.append(paths.pid)
            environment = dict(os.environ)
            deadline = self.options.deadline
            if variant == "shim":
                environment.update(flashpache_servers.shim(self.place, self.root, deadline))
            free.bind(("127.0.0.1", 0))
            address = free.getsockname()
            free.close()
            command = server.command(self.place, self.root, address[1], variant, deadline)
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            child = process(command, env=environment, preexec_fn=self.memory.enter, **quiet)
            pids.append(stack.enter_context(child).pid)
            wait_for(address, server.title)
            yield address, pids

    def ask(self, address, *how):
        """One run of latlab: its summary, and whether the generator kept up."""
        command = [self.latlab, "run", f"http://{address[0]}:{address[1]}/", "--files", self.files, "--format", "json", *how]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        # 3: the generator could not keep up, so the figures are not the server's.
        if done.returncode not in (0, 3) or not done.stdout:
            raise SystemExit(f"flashpache.py: {done.stderr.strip()}")
        return json.loads(done.stdout), done.returncode == 0

    def fill(self, address):
        """Brings as many files into memory as have room, without the disk's delay."""
        run(self.latlab, "disk", "set", self.name, "--service", "0ms", "--sequential", "0ms", "--bandwidth", 0)
        self.ask(address, "--connections", 16, "--duration", f"{self.options.fill}s")
        run(self.latlab, "disk", "set", self.name, *self.slow())

    def at_rate(self, server, part):
        """How latlab asks in this part."""
        rate = self.options.rate if part == "cold" else self.options.warm_rate or server.warm_rate
        return ["--rate", rate, "--duration", f"{self.options.seconds}s"]

    def measure(self, server, variant):
        """All parts of one run."""
        measured, doubts = {}, []
        with self.started(server, variant) as (address, _):
            for part in ("cold", "warm"):
                if part == "warm":
                    self.fill(address)
                summary, is_valid = self.ask(address, *self.at_rate(server, part))
                failed = ", ".join(f"{times} {kind}" for kind, times in summary["errors"].items() if times)
                if failed:
                    doubts.append(f"{variant}, {part}: requests failed: {failed}")
                if not is_valid:
                    doubts.append(f"{variant}, {part}: the generator was late itself")
                measured.update({f"{part} {name}": value for name, value in figures(summary).items()})
            flood = ["--connections", self.options.flood, "--duration", f"{self.options.seconds / 2}s"]
            summary, _ = self.ask(address, *flood)
            measured["capacity"] = summary["throughput_rps"]
        return measured, doubts

    def compare(self, server):
        """The answers that are not the same with and without the path server."""
        files = sorted(path.relative_to(self.files) for path in self.files.rglob("*") if path.is_file())
        files = files[:: max(1, len(files) // COMPARED)]
        requests = flashpache_servers.requests([f"/{name}" for name in files])
        answers = {}
        for variant in server.variants:
            with self.started(server, variant) as (address, _):
                answers[variant] = [flashpache_servers.answer(address, request) for request in requests]
        wrong = []
        for variant, of_variant in answers.items():
            for request, expected, found in zip(requests, answers["alone"], of_variant):
                if found != expected:
                    line = request.split(b"\r\n")[0].decode()
                    wrong.append(f"{server.title}, {variant}: {line}: {expected[:100]!r}, {found[:100]!r}")
        statuses = {whole[9:12].decode() for whole in answers["alone"]}
        print(f"{server.title}: {len(requests)} answers, statuses {', '.join(sorted(statuses))}: {len(wrong)} differ")
        return wrong

    def waits(self, server, variant, part):
        """What threads of server and path server waited for, by DeBox, for each request, in milliseconds."""
        rows = self.place / "waits.parquet"
        with self.started(server, variant) as (address, pids):
            if part == "warm":
                self.fill(address)
            targets = [word for pid in pids for word in ("-p", pid)]
            seconds = self.options.seconds
            # Shorter waits are no reason for a request that takes milliseconds.
            only = ["--filter", "blocked > 20us", "--stacks-from", "10s"]
            record = [self.debox, "record", "-o", rows, *only, *targets, "--for", f"{seconds + 4}s"]
            with subprocess.Popen(list(map(str, record)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as recording:
                time.sleep(1.5)
                summary, _ = self.ask(address, *self.at_rate(server, part))
                errors = recording.communicate()[1].decode()
            if recording.returncode != 0:
                raise SystemExit(f"flashpache.py: debox record: {errors.strip()}")
        report = json.loads(run(self.debox, "report", "--json=-", rows))
        rows.unlink()
        found = {}
        for wait in report["waits"]:
            who = "path server" if wait["comm"].startswith("flash") else "server"
            asks = who == "server" and wait["call"] in ASKS
            if not asks and (wait["class"] == "idle" or wait.get("is_rest") or wait["call"] == "futex"):
                continue
            times = found.setdefault((who, wait["call"], wait["label"], wait["class"]), [0, 0])
            times[0] += wait["count"]
            times[1] += wait["blocked_ns"]
        requests = summary["requests"]
        listed = sorted(found.items(), key=lambda pair: -pair[1][1])
        return {
            "server": server.title, "variant": variant, "part": part, "requests": requests, "caveats": report["caveats"],
            "lost": sum(report["recording"]["lost"].values()), "left_out": report["waits_left_out"],
            "waits": [
                dict(zip(("who", "call", "label", "class"), key), count=count / requests, ms=ns / 1e6 / requests)
                for key, (count, ns) in listed
            ],
        }


def figures(summary):
    """Median, mean and 90th percentile in milliseconds, from when each request was due."""
    latency = summary["latency_from_intended"]
    if latency is None:
        raise SystemExit("flashpache.py: no request was answered")
    return dict(zip(FIGURES, (latency[f"{key}_ns"] / 1e6 for key in ("p50", "mean", "p90"))))


def table(rows):
    """Columns as wide as they have to be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def summary(server, rounds):
    """The table of one server."""
    rows = [["ms; answers/s for capacity", *server.variants]]
    for name in rounds[0]["alone"]:
        cells = [name]
        for variant in server.variants:
            cell = f"{statistics.median(one[variant][name] for one in rounds):.2f}"
            if variant != "alone":
                ratios = [one[variant][name] / one["alone"][name] for one in rounds if one["alone"][name]]
                cell += f" ({statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
            cells.append(cell)
        rows.append(cells)
    return f"\n{server.title}, {len(rounds)} rounds\n{table(rows)}"


def reasons(found):
    """The table of what was waited for."""
    rows = [["part", "variant", "who", "in", "waited for", "class", "times a request", "ms a request"]]
    for one in found:
        of_server = [wait for wait in one["waits"] if wait["who"] == "server"]
        for wait in one["waits"][:WAITS]:
            rows.append([
                one["part"], one["variant"], wait["who"], wait["call"], wait["label"], wait["class"],
                f"{wait['count']:.3f}", f"{wait['ms']:.2f}",
            ])
        total = sum(wait["ms"] for wait in of_server)
        rows.append([one["part"], one["variant"], "server", "all", "", "", "", f"{total:.2f}"])
    lost = sum(one["lost"] + one["left_out"] for one in found)
    return (
        f"\n{found[0]['server']}: waits of more than 20 us, recorded by DeBox, without those for work and without futexes, "
        f"on which threads without work wait, too; {lost} lost\n{table(rows)}"
    )


def measure(bench, server):
    """Prints the tables of one server; what differs, and all that was measured."""
    wrong = bench.compare(server)
    rounds, doubts = [], []
    for number in range(bench.options.rounds):
        # Each goes first in turn.
        turn = number % len(server.variants)
        measured = {}
        for variant in server.variants[turn:] + server.variants[:turn]:
            measured[variant], of_run = bench.measure(server, variant)
            doubts += of_run
        rounds.append(measured)
    print(summary(server, rounds), flush=True)
    for doubt, times in sorted(collections.Counter(doubts).items()):
        print(f"{doubt}: in {times} of {len(rounds)} rounds")
    found = [bench.waits(server, variant, part) for part in ("cold", "warm") for variant in server.variants]
    print(reasons(found), flush=True)
    return wrong, {"server": server.title, "rounds": rounds, "doubts": doubts, "waits": found}


def main():
    """Measures all variants, and prints the tables."""
    known = flashpache_servers.SERVERS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="target/release", help="where latlab, flash and debox are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="of each part")
    parser.add_argument("--rate", type=int, default=60, help="requests per second on a cold disk")
    parser.add_argument("--warm-rate", type=int, help="requests per second with files in memory [Apache: 800, CherryPy: 200]")
    parser.add_argument("--fill", type=int, default=4, help="seconds in which files are brought into memory")
    parser.add_argument("--flood", type=int, default=64, help="connections for the capacity")
    parser.add_argument("--size", default="512M", help="of the file set")
    parser.add_argument("--memory", type=int, default=256, help="MiB for a server, the path server, and files")
    parser.add_argument("--service", default="5ms", help="of each request to the disk")
    parser.add_argument("--depth", type=int, default=4, help="requests that the disk works on at once")
    parser.add_argument("--deadline", type=int, default=5000, help="ms, after which a worker does without an answer")
    parser.add_argument("--server", nargs="*", default=list(known), choices=list(known))
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("flashpache.py: it needs root, for the disk, for the servers' user and for DeBox")
    measured, wrong = [], []
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="flashpache-") as directory:
        bench = Bench(options, Path(directory))
        try:
            bench.set_up()
            for name in options.server:
                server = known[name]
                if not shutil.which(server.program):
                    print(f"without {server.title}: {server.program} is not installed")
                    continue
                differ, found = measure(bench, server)
                wrong += differ
                measured.append(found)
        finally:
            bench.tear_down()
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    for line in wrong:
        print(f"differs: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
