#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the Python package costs, compared with Python's own means to measure a thread's time.

    scripts/python                                       # builds and installs it
    sudo target/python/bin/python debox/bench/python/run.py

Nanoseconds per statement, minus those of an empty loop: the median and the minimum of many short,
interleaved rounds. On a machine with other work the minimum is more accurate. The call itself,
os.getppid(), is shown with and without DeBox.
"""

import argparse
import json
import os
import resource
import statistics
import time
import timeit

import debox

READ_STAT = """
stat.seek(0)
stat.read()
"""

STATEMENTS = [
    ("debox.last()", "last()"),
    ("debox.last().blocked_ns", "last().blocked_ns"),
    ("an attribute of a Last", "kept.blocked_ns"),
    ("debox.last().copy()", "last().copy()"),
    ("with debox.scope(): pass", "with scope('request'): pass"),
    ("with debox.scope(faults=True)", "with scope('request', faults=True): pass"),
    ("time.perf_counter_ns(), twice", "perf(); perf()"),
    ("time.thread_time_ns(), twice", "cpu(); cpu()"),
    ("getrusage(RUSAGE_THREAD), twice", "usage(thread); usage(thread)"),
    ("/proc/thread-self/schedstat, twice", READ_STAT + READ_STAT),
    ("os.getppid()", "getppid()"),
]


def measure(statement, number, stat):
    names = {
        "last": debox.last,
        "kept": debox.last(),
        "scope": debox.scope,
        "perf": time.perf_counter_ns,
        "cpu": time.thread_time_ns,
        "usage": resource.getrusage,
        "thread": resource.RUSAGE_THREAD,
        "getppid": os.getppid,
        "stat": stat,
    }
    return timeit.timeit(statement, globals=names, number=number) / number * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=99)
    parser.add_argument("--number", type=int, default=5_000, help="statements in one round")
    parser.add_argument("--tap", choices=["kernel", "user"], default="kernel")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    stat = open("/proc/thread-self/schedstat", "rb", buffering=0)
    rounds = {name: [] for name, _ in STATEMENTS}
    rounds["os.getppid(), without DeBox"] = []
    for _ in range(options.rounds):
        empty = measure("pass", options.number, stat)
        bare = measure("getppid()", options.number, stat)
        rounds["os.getppid(), without DeBox"].append(bare - empty)
    debox.enable(tap=options.tap)
    for _ in range(options.rounds):
        empty = measure("pass", options.number, stat)
        os.getppid()
        for name, statement in STATEMENTS:
            if debox.last() is None and "last" in name.lower():
                continue  # the user tap does not see Python's calls
            rounds[name].append(measure(statement, options.number, stat) - empty)
            os.getppid()
    debox.disable()

    found = {
        name: {"median": statistics.median(values), "least": min(values)}
        for name, values in rounds.items()
        if values
    }
    if options.json:
        print(json.dumps({"tap": options.tap, "ns": found}))
        return
    print(f"{options.tap} tap, {options.rounds} rounds of {options.number}, ns")
    print(f"  {'':36} {'median':>8} {'least':>8}")
    for name, ns in found.items():
        print(f"  {name:36} {ns['median']:8.0f} {ns['least']:8.0f}")


if __name__ == "__main__":
    main()
