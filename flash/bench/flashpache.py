#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures what flash's path server gains for Apache on a slow disk: median, mean, 90th percentile and capacity.

As root, on a machine that does nothing else; some minutes. Needs apache2, apache2-dev, and a built latlab and flash.

    sudo python3 flash/bench/flashpache.py --programs target/release

Three variants of each multi-processing module, in turn: Apache alone, with mod_flashpache, with the preload shim. Each
run begins with a cold disk, and the files do not all find room in memory (--size, --memory). The requests come at a
fixed rate, so that a server that waits cannot slow its own clients. Capacity is how many answers come per second at
--flood requests per second, which are too many.

Printed are medians of the rounds, and the ratio to Apache alone in the same round: median, with the lowest and the
highest. Below 1 is better, for capacity above 1.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

VARIANTS = ("alone", "module", "shim")
# Waiting workers must not be what is short.
WORKERS = 100
PATIENCE_S = 60


def run(*command, **options):
    """Runs a command to its end; it has to succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"flashpache.py: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Memory:
    """A control group with a limit, for Apache and the path server together: they bring files into memory for each
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


def wait_for(address):
    """Until somebody listens there."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(address).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise SystemExit("flashpache.py: Apache does not start") from None
            time.sleep(0.05)


def configuration(place, root, port, mpm, module):
    """Writes Apache's, and returns its file."""
    lines = f"""
ServerRoot {place}
ServerName localhost
PidFile {place}/pid
ErrorLog {place}/error.log
DefaultRuntimeDir {place}
Listen 127.0.0.1:{port}
ListenBacklog 4096
User www-data
Group www-data
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
{"ServerLimit 64" if mpm == "event" else f"ServerLimit {WORKERS}"}
{"" if mpm == "event" else f"StartServers {WORKERS}"}
MaxRequestWorkers {WORKERS}
MaxKeepAliveRequests 0
DocumentRoot {root}
{module}
"""
    file = place / f"apache-{mpm}.conf"
    file.write_text(lines, encoding="utf-8")
    return file


class Bench:
    """What all runs share."""

    def __init__(self, options, place):
        self.options = options
        self.place = place
        self.root = place / "root"
        self.latlab = Path(options.programs) / "latlab"
        self.flash = Path(options.programs) / "flash"
        self.name = f"flashpache-{os.getpid()}"
        self.memory = Memory(options.memory)

    def set_up(self):
        """Builds the adapters, and puts up the disk with its files."""
        self.memory.set_up()
        os.chmod(self.place, 0o755)
        self.root.mkdir()
        adapters = Path(__file__).parent.parent / "adapters"
        run("make", "-C", adapters, f"OUT={self.place}", "all", "apache")
        files = self.place / "files"
        run(self.latlab, "fileset", "create", files, "--size", self.options.size)
        service = self.options.service
        up = ["--service", service, "--sequential", service, "--depth", self.options.depth]
        run(self.latlab, "disk", "up", self.name, *up, "--from", files, "--mount", self.root)

    def tear_down(self):
        """The disk and the control group go."""
        subprocess.run([self.latlab, "disk", "down", self.name, "--force"], capture_output=True, check=False)
        self.memory.tear_down()

    @contextlib.contextmanager
    def apache(self, mpm, variant):
        """Apache on a cold disk; its address."""
        run(self.latlab, "disk", "cool", self.name)
        with contextlib.ExitStack() as stack, socket.socket() as free:
            path = self.place / "paths"
            if variant != "alone":
                command = [self.flash, "path-server", "--listen", f"unix:{path}", "--root", self.root]
                command += ["--user", "www-data"]
                pipe = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": self.memory.enter}
                server = stack.enter_context(process(command, **pipe))
                while not server.stdout.readline().startswith("sandbox:"):
                    if server.poll() is not None:
                        raise SystemExit("flashpache.py: the path server does not start")
            module = ""
            environment = dict(os.environ)
            if variant == "module":
                module = f"LoadModule flashpache_module {self.place}/mod_flashpache.so\nFlashPathServer {path}"
                module += f"\nFlashPathDeadline {self.options.deadline}"
            if variant == "shim":
                environment["LD_PRELOAD"] = str(self.place / "libflash_paths.so")
                environment["FLASH_PATHS_SOCKET"] = str(path)
                environment["FLASH_PATHS_ROOTS"] = str(self.root)
                environment["FLASH_PATHS_DEADLINE_MS"] = str(self.options.deadline)
            free.bind(("127.0.0.1", 0))
            address = free.getsockname()
            free.close()
            file = configuration(self.place, self.root, address[1], mpm, module)
            command = ["apache2", "-f", file, "-DFOREGROUND"]
            stack.enter_context(process(command, env=environment, preexec_fn=self.memory.enter))
            wait_for(address)
            yield address

    def load(self, mpm, variant, rate):
        """One run of latlab: its summary, and whether the generator kept up."""
        with self.apache(mpm, variant) as (host, port):
            command = [self.latlab, "run", f"http://{host}:{port}/", "--files", self.place / "files"]
            command += ["--rate", rate, "--duration", f"{self.options.seconds}s", "--format", "json"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        # 3: the generator could not keep up, so the figures are not the server's.
        if done.returncode not in (0, 3):
            raise SystemExit(f"flashpache.py: {done.stderr.strip()}")
        return json.loads(done.stdout), done.returncode == 0


def figures(summary):
    """Median, mean and 90th percentile in milliseconds, from when each request was due."""
    latency = summary["latency_from_intended"]
    if latency is None:
        raise SystemExit("flashpache.py: no request was answered")
    return {name: latency[f"{key}_ns"] / 1e6 for name, key in (("median", "p50"), ("mean", "mean"), ("p90", "p90"))}


def measure(bench, mpm):
    """Prints the table of one multi-processing module."""
    rounds = []
    for number in range(bench.options.rounds):
        # Each goes first in turn.
        turn = number % len(VARIANTS)
        measured = {}
        for variant in VARIANTS[turn:] + VARIANTS[:turn]:
            summary, is_valid = bench.load(mpm, variant, bench.options.rate)
            measured[variant] = figures(summary)
            failed = sum(summary["errors"].values())
            if failed or not is_valid:
                print(f"{mpm}, {variant}, round {number + 1}: {failed} failed; valid: {is_valid}")
            summary, _ = bench.load(mpm, variant, bench.options.flood)
            measured[variant]["capacity"] = summary["throughput_rps"]
        rounds.append(measured)
    print(f"\nApache {mpm}, {bench.options.rounds} rounds; ms, and answers/s for capacity")
    for name in ("median", "mean", "p90", "capacity"):
        cells = [f"{name:9}"]
        for variant in VARIANTS:
            value = statistics.median(one[variant][name] for one in rounds)
            ratios = [one[variant][name] / one["alone"][name] for one in rounds if one["alone"][name]]
            cell = f"{variant} {value:.2f}"
            if variant != "alone" and ratios:
                cell += f" ({statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f})"
            cells.append(cell)
        print("   ".join(cells))


def main():
    """Measures all variants, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="target/release", help="where latlab and flash are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20, help="of each run")
    parser.add_argument("--rate", type=int, default=60, help="requests per second")
    parser.add_argument("--flood", type=int, default=4000, help="requests per second that are too many")
    parser.add_argument("--size", default="512M", help="of the file set")
    parser.add_argument("--memory", type=int, default=256, help="MiB for Apache, the path server, and files")
    parser.add_argument("--service", default="5ms", help="of each request to the disk")
    parser.add_argument("--depth", type=int, default=4, help="requests that the disk works on at once")
    parser.add_argument("--deadline", type=int, default=5000, help="ms, after which a worker does without an answer")
    parser.add_argument("--mpm", nargs="*", default=["prefork", "event"])
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("flashpache.py: it needs root, for the disk and for Apache's user")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, Path(directory))
        try:
            bench.set_up()
            for mpm in options.mpm:
                measure(bench, mpm)
        finally:
            bench.tear_down()


if __name__ == "__main__":
    main()
