#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same quantity by hbench and by its peers, in turn: medians, the ratio with its 95 % interval, and the spread of both.

    python3 hbench/bench/peers.py --hbench target/release/hbench [--lmbench DIR] [--lebench FILE] [--rounds 9]

Without further options the peer is `perf bench`, which takes a minute. All run on the same CPU. The others are built
outside of this repository:

    git clone https://github.com/intel/lmbench && cd lmbench/src                    # --lmbench lmbench/bin/x86_64-linux-gnu
    gcc -O2 -w -std=gnu89 -I/usr/include/tirpc -o ../bin/x86_64-linux-gnu/NAME NAME.c lib_*.c getopt.c -ltirpc -lm
    cp ../bin/x86_64-linux-gnu/hello /tmp/hello                                     # what lat_proc starts
    git clone https://github.com/LinuxPerfStudy/LEBench && cd LEBench/TEST_DIR
    sed 's/sleep(60)/sleep(0)/; s/BASE_ITER 10000/BASE_ITER 200/; s|"/TEST_DIR/|"./|' OS_Eval.c > shorter.c
    gcc -O0 -pthread -o OS_Eval shorter.c                                           # --lebench LEBench/TEST_DIR/OS_Eval

LEBench is shortened: with its own counts it takes hours. With all three, 9 rounds take six minutes. `docs/peers.md` explains
the differences.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

US = 1e3
MEGABYTES_2 = 2 << 20


def words(command, lmbench, **options):
    """What a command prints; an error says what it was."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)
    # Some of lmbench's programs end with any status; its result is looked for in what they print.
    if done.returncode != 0 and not lmbench:
        sys.exit(f"peers: {' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    # lmbench reports on standard error.
    return done.stdout + done.stderr


def by_hbench(program, name):
    """Nanoseconds of an operation."""
    command = [program, "run", name, "--rounds", "1", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    figures = {one["benchmark"]: one for one in json.loads(done.stdout or '{"figures": []}')["figures"]}
    if name not in figures:
        sys.exit(f"peers: hbench has no {name}: {done.stderr.strip()}")
    return figures[name]["operation_ns"]


def found(row, printed):
    """The peer's number, or None: lmbench leaves out what its own calibration makes zero or less."""
    match = re.search(row.pattern, printed)
    if not match:
        print(f"peers: {row.peer} printed no result for {row.benchmark}: {printed[-300:]}", file=sys.stderr)
        return None
    return row.to_ns(float(match.group(1)))


USECS = r"([0-9.]+) usecs/op"
MICROSECONDS = r": ([0-9.]+) microseconds"


# Of lmbench's server.
SOCKET = "/tmp/af_unix"


class Row:
    """`command`: words after the peer's own; `to_ns`: of the number that the pattern finds; `served`: it needs its server."""

    def __init__(self, peer, benchmark, command, pattern=MICROSECONDS, to_ns=lambda us: us * US, served=False):
        self.peer = peer
        self.benchmark = benchmark
        self.command = command
        self.pattern = pattern
        self.to_ns = to_ns
        self.served = served


def of_perf():
    # Its gigabyte is 2^30 bytes.
    rate = lambda per_s: MEGABYTES_2 / (per_s * (1 << 30)) * 1e9
    copy = ["bench", "mem", "memcpy", "-s", "2MB", "-l", "400", "-f", "default"]
    pipe = ["bench", "sched", "pipe", "-l", "100000"]
    return [
        Row("perf", "call.null", ["bench", "syscall", "basic"], USECS),
        Row("perf", "pipe.latency/one-cpu", pipe, USECS),
        Row("perf", "memory.copy-library/4M", copy, r"([0-9.]+) GB/sec", rate),
    ]


def of_lmbench(file):
    """`file`: of 1 MiB, which lmbench opens and reads."""
    lm = lambda benchmark, *command, **more: Row("lmbench", benchmark, command, **more)
    rate = lambda size: {"pattern": r"[0-9.]+ ([0-9.]+)", "to_ns": lambda per_s: size / (per_s * 1e6) * 1e9}
    latency = {"pattern": r"\n0\.00781 ([0-9.]+)", "to_ns": lambda ns: ns}
    once = ["-N", "1"]
    return [
        lm("call.null", "lat_syscall", *once, "null"),
        lm("call.read-zero/1", "lat_syscall", *once, "read"),
        lm("call.write-null/1", "lat_syscall", *once, "write"),
        lm("file.stat/hot", "lat_syscall", *once, "stat", file),
        lm("file.fstat", "lat_syscall", *once, "fstat", file),
        lm("file.open/hot", "lat_syscall", *once, "open", file),
        lm("signal.install", "lat_sig", *once, "install"),
        lm("signal.deliver", "lat_sig", *once, "catch"),
        lm("select.descriptors/10", "lat_select", *once, "-n", "10", "file"),
        lm("pipe.latency/one-cpu", "lat_pipe", *once),
        lm("unix.latency/one-cpu", "lat_unix", *once),
        lm("unix.connect", "lat_unix_connect", *once, served=True),
        lm("process.fork/small", "lat_proc", *once, "fork"),
        lm("process.exec/dynamic", "lat_proc", *once, "exec"),
        lm("context-switch-with-working-set/2-processes-0K", "lat_ctx", *once, "-s", "0", "2", pattern=r"\n2 ([0-9.]+)"),
        lm("context-switch-with-working-set/8-processes-16K", "lat_ctx", *once, "-s", "16", "8", pattern=r"\n8 ([0-9.]+)"),
        lm("fault.page/file", "lat_pagefault", *once, file),
        lm("memory.latency/16K", "lat_mem_rd", *once, "1", "64", **latency),
        lm("memory.read/256K", "bw_mem", *once, "256k", "frd", **rate(256 << 10)),
        lm("memory.write/256K", "bw_mem", *once, "256k", "fwr", **rate(256 << 10)),
        lm("memory.copy-library/256K", "bw_mem", *once, "128k", "bcopy", **rate(128 << 10)),
        lm("cpu.operation/integer-multiply", "lat_ops", *once, pattern=r"integer mul: ([0-9.]+)", to_ns=lambda ns: ns),
        lm("cpu.operation/double-add", "lat_ops", *once, pattern=r"double add: ([0-9.]+)", to_ns=lambda ns: ns),
    ]


def of_lebench():
    """One run of LEBench has all of them. Its rows are times of single calls, of which `ref` takes the clock's part."""
    return [
        Row("LEBench", "call.null", "getpid"),
        Row("LEBench", "pipe.latency/one-cpu", "context siwtch"),
        Row("LEBench", "thread.create", "thr create"),
        Row("LEBench", "file.rewrite/4K", "small write"),
        Row("LEBench", "file.reread/4K", "small read"),
        Row("LEBench", "fault.page/file", "small page fault"),
        Row("LEBench", "select.descriptors/10", "select"),
        Row("LEBench", "poll.descriptors/10", "poll"),
        Row("LEBench", "epoll.descriptors/10", "epoll"),
    ]


def run_lebench(program, cpu, work):
    """Its best values by row, in ns, without what reading the clock takes."""
    command = ["taskset", "-c", str(cpu), program, "0", "peers"]
    with open(os.devnull, "wb") as nothing:
        environment = {**os.environ, "LEBENCH_DIR": f"{work}/"}
        done = subprocess.run(command, cwd=work, env=environment, stdout=nothing, stderr=nothing, check=False)
    if done.returncode != 0:
        sys.exit(f"peers: LEBench ended with status {done.returncode}")
    with open(os.path.join(work, "output.peers.csv"), encoding="utf-8") as file:
        rows = re.findall(r"^ *(.+?) +kbest:,([0-9.]+)", file.read(), re.MULTILINE)
    best = {name: float(seconds) * 1e9 for name, seconds in rows if not name.endswith("Child")}
    single = {"ref", "context siwtch"}
    return {name: ns - (0 if name in single else best["ref"]) for name, ns in best.items()}


def interval(own, other):
    """95 % interval of the ratio of the medians, by a bootstrap over pairs."""
    draws = random.Random(18)
    pairs = list(zip(own, other))
    ratios = []
    for _ in range(2000):
        drawn = draws.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(a for a, _ in drawn) / statistics.median(b for _, b in drawn))
    ratios.sort()
    return ratios[50], ratios[-51]


def spread(values):
    quarters = statistics.quantiles(values, n=4)
    return (quarters[2] - quarters[0]) / statistics.median(values)


def table(measured):
    lines = [
        "| benchmark | peer | hbench ns | spread | peer ns | spread | ratio | 95 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lower = total = 0
    rounds = max(len(own) for own, _ in measured.values())
    missing = []
    for row, (own, other) in measured.items():
        if len(own) < rounds:
            missing.append(f"{row.peer} printed no result for {row.benchmark} in {rounds - len(own)} of {rounds} rounds.")
        if len(own) < 2:
            continue
        low, high = interval(own, other)
        a, b = statistics.median(own), statistics.median(other)
        lower += spread(own) <= spread(other)
        total += 1
        same = "" if low <= 1 <= high or abs(a / b - 1) < 0.05 else " *"
        lines.append(
            f"| {row.benchmark} | {row.peer} | {a:.1f} | {spread(own):.1%} | {b:.1f} | {spread(other):.1%} | {a / b:.2f}{same} | "
            f"{low:.2f} to {high:.2f} |"
        )
    lines += ["", f"hbench has the lower spread in {lower} of {total} rows. *: another answer.", *missing]
    return "\n".join(lines)


@contextlib.contextmanager
def server(command):
    """lmbench's server, which goes into the background with `-s` and ends with `-S`."""
    pathlib.Path(SOCKET).unlink(missing_ok=True)
    # Not to a pipe, which the server would keep open.
    subprocess.run([*command, "-s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    try:
        until = time.monotonic() + 5
        while not os.path.exists(SOCKET):
            if time.monotonic() > until:
                sys.exit(f"peers: {command[-1]} -s does not serve {SOCKET}")
            time.sleep(0.01)
        # It is bound, and will listen soon.
        time.sleep(0.1)
        yield
    finally:
        subprocess.run([*command, "-S"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def prepared():
    with tempfile.TemporaryDirectory(prefix="hbench-peers.") as work:
        path = os.path.join(work, "file")
        with open(path, "wb") as file:
            file.write(bytes(1 << 20))
        yield work, path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hbench", default="target/release/hbench")
    parser.add_argument("--lmbench", help="directory of its programs")
    parser.add_argument("--lebench", help="its program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3600, help="begin no round after so long")
    arguments = parser.parse_args()
    # As hbench chooses it.
    cpu = max(os.sched_getaffinity(0))
    with prepared() as (work, file):
        rows = of_perf()
        rows += of_lmbench(file) if arguments.lmbench else []
        lebench = of_lebench() if arguments.lebench else []
        measured = {row: ([], []) for row in rows + lebench}
        begun = time.monotonic()
        for at in range(arguments.rounds):
            if at > 1 and time.monotonic() - begun > arguments.seconds:
                break
            print(f"peers: round {at + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
            for row in rows:
                name, *options = row.command
                lmbench = row.peer == "lmbench"
                program = [os.path.abspath(f"{arguments.lmbench}/{name}")] if lmbench else ["perf", name]
                start = ["taskset", "-c", str(cpu), *program]
                with server(start) if row.served else contextlib.nullcontext():
                    printed = words([*start, *options], lmbench, cwd=work)
                own, other = by_hbench(arguments.hbench, row.benchmark), found(row, printed)
                if other is not None:
                    measured[row][0].append(own)
                    measured[row][1].append(other)
            best = run_lebench(os.path.abspath(arguments.lebench), cpu, work) if lebench else {}
            for row in lebench:
                measured[row][0].append(by_hbench(arguments.hbench, row.benchmark))
                measured[row][1].append(best[row.command])
    print(table(measured))


if __name__ == "__main__":
    main()
