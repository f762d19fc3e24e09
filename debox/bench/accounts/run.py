#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""CPU time and waits for a CPU of spinning threads, according to DeBox and to the scheduler.

Each thread reads /proc/thread-self/schedstat at its very end; only DeBox counts waits for a CPU after that,
while the thread exits. DeBox's CPU time exceeds the scheduler's by the stolen time (`stolen_ns`), and by some
microseconds at each preemption, by which its wait is shorter: the scheduler counts a task that is woken and
preempts from its wake-up on. The difference without the stolen time, for each preemption, should be small. The
result is most significant beside a program that is woken often (a loaded server).
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def rows(options, directory, program):
    """One dictionary for each thread of a run, times in milliseconds."""
    path = os.path.join(directory, "report.json")
    command = [options.debox, "run", "--format", "json", "--output", path, "--", program,
               str(options.threads), str(options.ms)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    threads = {thread["tid"]: thread for thread in report["threads"]}
    for line in printed.splitlines():
        tid, on_cpu, waited, _, preemptions = map(int, line.split())
        thread = threads[tid]
        cpu = thread["user_cpu_ns"] + thread["kernel_cpu_ns"] - on_cpu
        yield {
            "cpu": cpu / 1e6,
            "stolen": thread["stolen_ns"],
            "wait": (thread["runqueue_ns"] + thread["preempted_ns"] - waited) / 1e6,
            "preemptions": preemptions,
            "unseen": report["unseen_wait_ns"] / 1e6,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debox", default="target/release/debox")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ms", type=int, default=400, help="CPU time of each thread")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    print("by DeBox less by the scheduler, of each thread")
    print(f"{'CPU':>10} {'stolen':>10} {'wait':>10} {'preempted':>10} {'unseen':>10} {'us each':>8}")
    each = []
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "spin")
        source = os.path.join(HERE, "spin.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        for _ in range(options.rounds):
            for row in rows(options, directory, program):
                stolen = (row["stolen"] or 0) / 1e6
                each.append((row["cpu"] - stolen) * 1000 / max(row["preemptions"], 1))
                shown = "not told" if row["stolen"] is None else f"{stolen:.2f} ms"
                print(f"{row['cpu']:>7.2f} ms {shown:>10} {row['wait']:>7.2f} ms "
                      f"{row['preemptions']:>9,}x {row['unseen']:>7.2f} ms {each[-1]:>8.2f}")
    print(f"CPU less stolen, for each preemption: median {statistics.median(each):.2f} us, "
          f"{min(each):.2f} to {max(each):.2f} us")


if __name__ == "__main__":
    main()
