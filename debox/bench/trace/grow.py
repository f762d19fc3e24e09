#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `fork` and `mmap` spend their time on as a process grows.

Example 3 of the 2004 talk on DeBox, in which the call trace showed that a server's fork() spent its
time copying file descriptors and map entries. A process holds more and more memory and open files. For
each size the functions inside both calls are shown with their share: of the time if the kernel lets
functions be probed, otherwise of the samples.
"""

import argparse
import json
import os
import subprocess
import tempfile

SIZES = [(0, 0), (16, 256), (64, 1024), (256, 4096)]
CALLS = ["fork", "mmap"]
SHOWN = 6


def shares(functions, whole):
    """The share of each function's own work, summed over all call paths."""
    own = {}
    stack = list(functions)
    while stack:
        function = stack.pop()
        below = function["children"]
        if function["samples"] is None:
            work = function["self_ns"]
        else:
            work = function["samples"] - sum(child["samples"] for child in below)
        name = function["function"].split(".")[0]
        own[name] = own.get(name, 0) + work
        stack += below
    most = sorted(own.items(), key=lambda item: -item[1])[:SHOWN]
    return [(name, work / whole) for name, work in most if whole and work]


def show(report, call):
    rows = [row for row in report["syscalls"] if row["name"] == call]
    if not rows:
        return
    wall = rows[0]["wall_ns"] / max(rows[0]["calls"], 1)
    inside = [found for found in report["trace"]["tree"] if found["syscall"] == call]
    whole = (inside[0]["samples"] or inside[0]["total_ns"] or 0) if inside else 0
    parts = shares(inside[0]["functions"], whole) if inside else []
    text = ", ".join(f"{name} {share:.0%}" for name, share in parts) or "no samples"
    print(f"    {call:5} {wall / 1000:9.1f} us: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debox", default="target/release/debox")
    parser.add_argument("--program", help="grow.c, compiled already")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--functions", default="process,mm,dup_fd")
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as directory:
        program = options.program or os.path.join(directory, "grow")
        if not options.program:
            subprocess.run(["cc", "-O2", "-o", program, os.path.join(here, "grow.c")], check=True)
        for megabytes, files in SIZES:
            output = os.path.join(directory, "report.json")
            command = [options.debox, "run", f"--trace={options.functions}"]
            command += ["--format", "json", "-o", output, "--", program]
            subprocess.run(command + [str(megabytes), str(files), str(options.rounds)], check=True)
            with open(output, encoding="utf-8") as file:
                report = json.load(file)
            print(f"{megabytes} MB, {files} files ({report['trace']['method']})")
            for call in CALLS:
                show(report, call)


if __name__ == "__main__":
    main()
