#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""What samples cost a program that computes: sudo python3 debox/bench/overhead/sampled.py

Each round runs the program of sampled.c under `debox run` with and without detail `samples`, in turn. The
figures are medians over the rounds of the program's CPU time and of debox's own. Interrupts and preemption by
the engine on the same CPU increase the program's CPU time; waiting for a CPU does not. `added` is the difference
in the same round. `--depth` is the depth of calls: with 0 a small stack is copied, with 40 all of the 16 kB.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).resolve().parent
DETAILS = {"without": "sleeps,cpu", "with": "sleeps,cpu,samples"}


def run(debox: str, detail: str, program: list[str], directory: Path) -> tuple[float, float]:
    """CPU seconds of the program, and of debox and the program together."""
    result, report = directory / "result", directory / "report"
    command = [debox, "run", "--detail", detail, "--format", "json", "--output", str(report), "--"]
    process = subprocess.Popen([*command, program[0], str(result), *program[1:]])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return float(result.read_text()), usage.ru_utime + usage.ru_stime


def show(name: str, rounds: list[dict[str, float]]) -> None:
    ratios = [one["with"] / one["without"] - 1 for one in rounds]
    low, _, high = quantiles(ratios, n=4)
    values = "  ".join(f"{key} {median(one[key] for one in rounds):.4f} s" for key in DETAILS)
    print(f"{name:26} {values}  added {median(ratios):+.2%} ({low:+.2%} to {high:+.2%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debox", default=str(HERE.parents[2] / "target/release/debox"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--steps", type=int, default=1_000_000_000, help="what it computes")
    parser.add_argument("--depth", type=int, nargs="*", default=[0, 40])
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = str(directory / "sampled")
        subprocess.run(["cc", "-O1", "-o", program, str(HERE / "sampled.c")], check=True)
        for depth in arguments.depth:
            own: list[dict[str, float]] = []
            both: list[dict[str, float]] = []
            for number in range(arguments.rounds):
                order = list(DETAILS)[:: 1 if number % 2 else -1]
                words = [program, str(depth), str(arguments.steps)]
                found = {
                    key: run(arguments.debox, DETAILS[key], words, directory) for key in order
                }
                own.append({key: times[0] for key, times in found.items()})
                both.append({key: times[1] for key, times in found.items()})
            show(f"program, depth {depth}", own)
            show(f"with debox itself, depth {depth}", both)


if __name__ == "__main__":
    main()
