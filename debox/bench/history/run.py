#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it costs to keep every call of a program, beside perf trace and strace.

    debox/bench/history/run.py [--seconds 60] [--rate 200000] [--rounds 3] [--debox PATH]

A program makes calls (getppid) at a fixed rate, and then as fast as possible, for --seconds: bare, under
`debox record`, under `perf trace record` and under `strace -f -o`, in turn, for --rounds. Medians and the spread
are shown. Where calls follow each other immediately, the cost of a call is the time divided by the calls. The
recorder's CPU time is that of the whole command minus the program's own. Needs root.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        program = scratch / "calls"
        subprocess.run(["gcc", "-O2", "-o", program, HERE / "calls.c"], check=True)
        for rate in options.rate, 0:
            seconds = options.seconds if rate else max(5, options.seconds // 6)
            compare(options, scratch, program, rate, seconds)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--debox", default=target / "release" / "debox")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("debox/bench/history/run.py: recording needs root")
    if not Path(options.debox).exists():
        sys.exit(f"debox/bench/history/run.py: {options.debox} is not built: make build")
    return options


def peers(options, scratch):
    """Name, command before the program, and the file it writes."""
    yield "bare", [], None
    yield "debox record", [options.debox, "record", "-o", scratch / "debox.out", "--"], "debox.out"
    if shutil.which("perf"):
        perf = ["perf", "trace", "record", "-o", scratch / "perf.out", "--"]
        yield "perf trace record", perf, "perf.out"
    if shutil.which("strace"):
        yield "strace -f", ["strace", "-f", "-o", scratch / "strace.out"], "strace.out"


def compare(options, scratch, program, rate, seconds):
    runs = {}
    for _ in range(options.rounds):
        for name, before, file in peers(options, scratch):
            one = run(before, program, rate, seconds, scratch, file)
            runs.setdefault(name, []).append(one)
    asked = f"{rate:,} calls/s" if rate else "as fast as it goes"
    print(f"\n{asked}, {seconds} s, {options.rounds} rounds: medians (least to most)\n")
    print(
        f"{'':18} {'calls/s':>30} {'ns/call':>24} {'ratio':>6} {'recorder CPU':>13}"
        f" {'memory':>9} {'bytes/call':>10} {'lost':>12}"
    )
    bare = median(runs["bare"], "per_call")
    is_free = not rate
    for name, results in runs.items():
        ratio = f"{median(results, 'per_call') / bare:.2f}" if is_free else "-"
        print(
            f"{name:18} {spread(results, 'rate', '{:,.0f}'):>30}"
            f" {spread(results, 'per_call', '{:.0f}') if is_free else '-':>24}"
            f" {ratio:>6}"
            f" {100 * median(results, 'recorder'):12.1f}%"
            f" {median(results, 'memory') / 1024:6.0f} MB"
            f" {median(results, 'bytes'):10.1f} {results[-1]['lost']:>12}"
        )


def median(results, key):
    return statistics.median(one[key] for one in results)


def spread(results, key, form):
    values = [one[key] for one in results]
    return f"{form.format(median(results, key))} ({form.format(min(values))} to {form.format(max(values))})"


def run(before, program, rate, seconds, scratch, file):
    out = scratch / "stdout"
    with open(out, "w") as stdout, open(scratch / "stderr", "w") as stderr:
        command = [*map(str, before), str(program), str(rate), str(seconds)]
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = (scratch / "stderr").read_text()
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}: {said}")
    calls, passed, own = out.read_text().split()
    calls, passed, own = int(calls), float(passed), float(own)
    size = (scratch / file).stat().st_size if file else 0
    return {
        "rate": calls / passed,
        "per_call": passed / calls * 1e9,
        "recorder": max(0.0, usage.ru_utime + usage.ru_stime - own) / passed if file else 0.0,
        "memory": usage.ru_maxrss if file else 0,
        "bytes": size / calls,
        "lost": lost(said),
    }


def lost(said):
    if found := re.search(r"lost: ([\d,]+) records", said):
        return found[1]
    if found := re.findall(r"(?i)lost (\d+) (?:events|chunks)", said):
        return "+".join(found)
    return "0"


if __name__ == "__main__":
    main()
