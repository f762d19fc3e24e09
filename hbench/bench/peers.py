#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same quantity by hbench and by `perf bench`, in turn: medians, their ratio, and the spread of both.

    python3 hbench/bench/peers.py --hbench target/release/hbench [--rounds 9]

Takes a minute. Both run on the same CPU. Where they differ, the note says why.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys


def words(command):
    """What a command prints; an error says what it was."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"peers: {' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def by_hbench(program, name):
    """Nanoseconds of an operation."""
    command = [program, "run", name, "--rounds", "1", "--format", "json"]
    return json.loads(words(command))["figures"][0]["operation_ns"]


def by_perf(cpu, bench, pattern, scale):
    """Nanoseconds, from the number that the pattern finds."""
    printed = words(["taskset", "-c", str(cpu), "perf", "bench", *bench])
    found = re.search(pattern, printed)
    if not found:
        sys.exit(f"peers: perf bench {' '.join(bench)} printed no result: {printed}")
    return scale(float(found.group(1)))


MEGABYTES_2 = 2 << 20
ROWS = [
    (
        "call.null",
        ["syscall", "basic"],
        r"([0-9.]+) usecs/op",
        lambda usecs: usecs * 1e3,
        "both call getppid",
    ),
    (
        "pipe.latency/one-cpu",
        ["sched", "pipe", "-l", "100000"],
        r"([0-9.]+) usecs/op",
        lambda usecs: usecs * 1e3,
        "perf sends four bytes and may wait by epoll; hbench sends one",
    ),
    (
        "memory.copy-library/4M",
        ["mem", "memcpy", "-s", "2MB", "-l", "400", "-f", "default"],
        r"([0-9.]+) GB/sec",
        lambda rate: MEGABYTES_2 / (rate * (1 << 30)) * 1e9,
        "2 MiB to 2 MiB; perf's gigabyte is 2^30 bytes",
    ),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hbench", default="target/release/hbench")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    # As hbench chooses it.
    cpu = max(os.sched_getaffinity(0))
    measured = {row[0]: ([], []) for row in ROWS}
    for _ in range(arguments.rounds):
        for name, bench, pattern, scale, _note in ROWS:
            own, other = measured[name]
            own.append(by_hbench(arguments.hbench, name))
            other.append(by_perf(cpu, bench, pattern, scale))
    print(f"{'benchmark':24} {'hbench':>12} {'spread':>7} {'perf':>12} {'spread':>7} {'ratio':>6}  note")
    for name, _bench, _pattern, _scale, note in ROWS:
        cells = []
        for values in measured[name]:
            middle = statistics.median(values)
            quarters = statistics.quantiles(values, n=4)
            cells += [f"{middle:9.1f} ns", f"{(quarters[2] - quarters[0]) / middle:6.1%}"]
        ratio = statistics.median(measured[name][0]) / statistics.median(measured[name][1])
        print(f"{name:24} {cells[0]:>12} {cells[1]:>7} {cells[2]:>12} {cells[3]:>7} {ratio:6.2f}  {note}")


if __name__ == "__main__":
    main()
