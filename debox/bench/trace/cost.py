#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a traced kernel function costs, compared with bpftrace, measured with the same program.

A program repeatedly reads a byte from /dev/zero; `vfs_read` is traced, entry and return, once for
each call. The cost is what tracing adds to the call: for debox relative to the same session without
the tree, for bpftrace relative to the bare program. Rounds interleave the peers. Then the functions
below `vfs_read` are traced, too: what that adds to its time is compared with the cost of their probes,
which shows whether nested times add up.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

INSIDE = ["rw_verify_area", "security_file_permission", "read_zero"]
STAMPS = (
    "{entry}:vfs_read /comm == \"cost\"/ {{ @from[tid] = nsecs; }} "
    "{leave}:vfs_read /@from[tid]/ {{ @total = sum(nsecs - @from[tid]); delete(@from[tid]); }}"
)


class Bench:
    def __init__(self, options, directory):
        self.debox = options.debox
        self.calls = str(options.calls)
        self.directory = directory
        self.program = os.path.join(directory, "cost")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cost.c")
        if options.program:
            self.program = options.program
        else:
            subprocess.run(["cc", "-O2", "-o", self.program, source], check=True)
        self.report = os.path.join(directory, "report.json")

    def run(self, command):
        """Nanoseconds per call, or None if the peer does not work."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        numbers = [line for line in done.stdout.splitlines() if line.replace(".", "").isdigit()]
        return float(numbers[0]) if done.returncode == 0 and numbers else None

    def traced(self, method, functions):
        trace = [f"--trace={','.join(functions)}"] if functions else []
        way = ["--trace-method", method] if method else []
        command = [self.debox, "run", "--detail", "basic", "--format", "json", "-o", self.report]
        return self.run(command + trace + way + ["--", self.program, self.calls])

    def bpftrace(self, entry, leave):
        script = STAMPS.format(entry=entry, leave=leave)
        return self.run(["bpftrace", "-e", script, "-c", f"{self.program} {self.calls}"])

    def node(self, name):
        """(times entered, time of one) of a function in the last report, anywhere in the tree."""
        with open(self.report, encoding="utf-8") as file:
            trace = json.load(file)["trace"]
        stack = [f for call in trace["tree"] if call["syscall"] == "pread64" for f in call["functions"]]
        while stack:
            function = stack.pop()
            if function["function"].split(".")[0] == name:
                return function["entered"], function["total_ns"] / function["returned"]
            stack += function["children"]
        return 0, 0.0


def show(name, samples, base, per="function"):
    costs = [sample - base for sample in samples]
    middle = statistics.median(costs)
    print(f"  {name:28} {middle:9.0f} ns a {per}, {min(costs):.0f} to {max(costs):.0f}")
    return middle


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debox", default="target/release/debox")
    parser.add_argument("--program", help="cost.c, compiled already")
    parser.add_argument("--calls", type=int, default=200000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(Bench(options, directory), options.rounds)


def measure(bench, rounds):
    peers = {
        "bare": lambda: bench.run([bench.program, bench.calls]),
        "debox without a tree": lambda: bench.traced(None, []),
        "debox kprobe.session": lambda: bench.traced("session", ["vfs_read"]),
        "debox kprobe.multi": lambda: bench.traced("multi", ["vfs_read"]),
        "debox fentry": lambda: bench.traced("fentry", ["vfs_read"]),
    }
    if shutil.which("bpftrace"):
        peers["bpftrace kprobe+kretprobe"] = lambda: bench.bpftrace("kprobe", "kretprobe")
        peers["bpftrace kfunc+kretfunc"] = lambda: bench.bpftrace("kfunc", "kretfunc")
    samples = {name: [] for name in peers}
    for _ in range(rounds):
        for name in list(peers):
            sample = peers[name]()
            if sample is None:
                print(f"  {name}: does not work here")
                del peers[name]
                continue
            samples[name].append(sample)
    if "debox without a tree" not in peers:
        raise SystemExit("debox does not work here")

    bare = statistics.median(samples["bare"])
    tapped = statistics.median(samples["debox without a tree"])
    print(f"A call of {bare:.0f} ns, {tapped:.0f} ns under debox; {rounds} rounds:")
    costs = {}
    for name in peers:
        if name in ("bare", "debox without a tree"):
            continue
        costs[name] = show(name, samples[name], tapped if name.startswith("debox") else bare)
    ours = [name for name in costs if name.startswith("debox")]
    for name in ours:
        for peer in costs:
            if peer.startswith("bpftrace"):
                print(f"  {name} is {costs[name] / costs[peer]:.2f} times {peer}")
    if ours:
        nested(bench, ours[0].split(".")[-1].split()[-1], costs[ours[0]])


def nested(bench, method, cost):
    bench.traced(method, ["vfs_read"])
    _, alone = bench.node("vfs_read")
    there = [name for name in INSIDE if bench.traced(method, ["vfs_read", name]) is not None]
    if not there:
        return
    bench.traced(method, ["vfs_read"] + there)
    entered, whole = bench.node("vfs_read")
    inside = sum(bench.node(name)[0] for name in there) / max(entered, 1)
    print(
        f"vfs_read takes {alone:.0f} ns traced alone, {whole:.0f} ns with {inside:.1f} functions in it "
        f"traced, too: {whole - alone:.0f} ns more, and their probes cost {inside * cost:.0f} ns"
    )


if __name__ == "__main__":
    main()
