#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long `debox report` takes over a large history.

    debox/bench/history/report.py [--rows 50000000] [--rounds 3] [--file PATH] [--debox PATH]

The history is made up by the example `synthetic_history` of debox/report (16 threads; one call in
eight sleeps) unless --file names one. What counts is the CPU time of the whole command: the wall time
depends on what else the machine does. Needs no root.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        file = options.file or generate(options.rows, Path(scratch) / "synthetic.parquet")
        print(f"{file}: {os.path.getsize(file) / 1e6:,.0f} MB")
        runs = [run([options.debox, "report", file], scratch) for _ in range(options.rounds)]
        runs_page = [
            run([options.debox, "report", file, "--html", f"{scratch}/report.html"], scratch)
            for _ in range(options.rounds)
        ]
    print(f"{'':24} {'wall':>8} {'user':>8} {'kernel':>8}   seconds, medians of {options.rounds}")
    for name, rounds in ("in the terminal", runs), ("and as a page", runs_page):
        medians = [statistics.median(values) for values in zip(*rounds)]
        print(f"{name:24} " + " ".join(f"{value:8.2f}" for value in medians))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", help="a history that is there already")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--debox", default=target / "release" / "debox")
    options = parser.parse_args()
    if not Path(options.debox).exists():
        sys.exit(f"debox/bench/history/report.py: {options.debox} is not built: make build")
    return options


def generate(rows, path):
    example = ["cargo", "run", "--release", "-q", "-p", "debox-report", "--example", "synthetic_history"]
    subprocess.run([*example, "--", str(rows), str(path)], cwd=ROOT, check=True)
    return path


def run(command, scratch):
    """Wall, user and kernel seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(f"{scratch}/out.txt", "w", encoding="utf-8") as out:
        subprocess.run([str(word) for word in command], stdout=out, check=True)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
