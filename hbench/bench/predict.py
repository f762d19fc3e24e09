#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Predicts real programs on other machines, writes the predictions down, and only then measures.

    sudo python3 hbench/bench/predict.py --hbench target/release/hbench -o validation

Each program is recorded on one machine (plain). The others are the same machine under layers and limits, and with other
file systems. validation/predictions.json is complete before the first program runs on another machine; measured.json and
table.md come after it. Beside each prediction: three baselines, and what a first series of measurements predicts of a
second one (repeat). `elapsed` is the time from start to end. `work` is compared with the CPU time of all processes; under
a tracer, which stops programs, the two are not quite the same.

Takes about half an hour with its defaults, on a machine that does nothing else; as root.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import machines
import programs

BASELINES = ["unchanged", "user_ratio", "mean_ratio"]


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hbench", default="target/release/hbench")
    parser.add_argument("--debox", help="the program that records [default: beside hbench, or in PATH]")
    parser.add_argument("-o", "--output", required=True, help="new directory for what is found")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each benchmark")
    parser.add_argument("--sample", default="40ms", help="how long a sample takes")
    parser.add_argument("--runs", type=int, default=7, help="runs of each program, when recorded and in each series")
    parser.add_argument("--benchmarks", nargs="*", default=[], help="only these, for a quick look [default: all]")
    parser.add_argument("--machines", nargs="*", default=[], help="only these, and plain")
    parser.add_argument("--programs", nargs="*", default=[], help="only these")
    return parser.parse_args()


def checked(process, what):
    with machines.ended(process):
        _, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"predict: {what} failed with status {process.returncode}: {errors.strip()[-500:]}")


def say(text):
    print(f"predict: {text}", file=sys.stderr, flush=True)


def characterize(machine, arguments, path):
    """The machine's vector."""
    words = [arguments.hbench, "run", "-o", path, "--rounds", str(arguments.rounds), "--sample", arguments.sample]
    words += arguments.benchmarks
    process = machine.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    checked(process, f"hbench run on {machine.name}")


def record(machine, words, arguments, here, path):
    """The application's vector."""
    options = ["--on", here, "-o", path, "--runs", str(arguments.runs)]
    if arguments.debox:
        options += ["--debox", arguments.debox]
    process = machine.start(
        [arguments.hbench, "vector", *options, "--", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    checked(process, f"hbench vector of {path}")


def measured_once(machine, words):
    """Elapsed time, and CPU time of all its processes, in ns."""
    start = time.monotonic_ns()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = machine.start(words, **quiet)
    with machines.ended(process):
        _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic_ns() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"predict: a program failed on {machine.name} with status {process.returncode}: {words[-1][:60]}")
    return {"elapsed": took, "work": round((usage.ru_utime + usage.ru_stime) * 1e9)}


def predictions(arguments, applications, results):
    found = {}
    for name, vector in applications.items():
        words = [arguments.hbench, "predict", vector, *results.values(), "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"predict: {done.stderr}")
        found[name] = json.loads(done.stdout)
    return found


def write(path, content):
    with open(path, "w", encoding="utf-8") as out:
        if isinstance(content, str):
            out.write(content)
        else:
            json.dump(content, out, indent=1)
            out.write("\n")
        out.flush()
        os.fsync(out.fileno())


def measure(made, words, runs):
    """Two series of each program on each machine, in turn. Each machine is warmed up once."""
    series = [{}, {}]
    for machine in made:
        for command in words.values():
            measured_once(machine, command)
    for at in range(2 * runs):
        say(f"measuring, round {at + 1} of {2 * runs}")
        for machine in made:
            for name, command in words.items():
                into = series[at % 2].setdefault(name, {}).setdefault(machine.name, [])
                into.append(measured_once(machine, command))
    return series


def rows(found, series, quantity):
    """One for each program and machine. `quantity`: elapsed or work."""
    for name, prediction in found.items():
        for one in prediction["machines"]:
            values = [[run[quantity] for run in part[name][one["name"]]] for part in series]
            first, second = map(statistics.median, values)
            measured = statistics.median(values[0] + values[1])
            predicted = one[f"{quantity}_ns"]
            low, high = one[f"{quantity}_interval_ns"]
            # The baselines are of the elapsed time; their ratios apply to work, too.
            scale = prediction[f"{quantity}_ns"] / prediction["elapsed_ns"] / measured
            yield {
                "program": name,
                "machine": one["name"],
                "measured_ns": measured,
                "predicted_ns": predicted,
                "interval_ns": [low, high],
                "covered": low <= measured <= high,
                "unmapped_share": one["unmapped_share"],
                "error": predicted / measured - 1,
                "repeat": first / second - 1,
                **{name: one["baselines"][f"{name}_ns"] * scale - 1 for name in BASELINES},
            }


def pairs_right(all_rows, value):
    """Of the pairs of machines that the program tells apart by 5 %, the part in the right order."""
    right = wrong = 0
    for one in all_rows:
        for other in all_rows:
            if one["program"] != other["program"] or one["measured_ns"] * 1.05 >= other["measured_ns"]:
                continue
            if value(one) < value(other):
                right += 1
            else:
                wrong += 1
    return right, right + wrong


def table(all_rows):
    ms = lambda ns: f"{ns / 1e6:.1f}"
    lines = [
        "| program | machine | predicted ms | 95 % | measured ms | error | repeat | unchanged | user ratio | mean ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in all_rows:
        low, high = row["interval_ns"]
        errors = " | ".join(f"{row[name]:+.0%}" for name in BASELINES)
        lines.append(
            f"| {row['program']} | {row['machine']} | {ms(row['predicted_ns'])} | {ms(low)} to {ms(high)} | "
            f"{ms(row['measured_ns'])} | {row['error']:+.1%}{'' if row['covered'] else ' (outside)'} | "
            f"{row['repeat']:+.1%} | {errors} |"
        )
    lines.append("")
    others = [row for row in all_rows if row["machine"] != "plain"]
    for name in ["error", "repeat", *BASELINES]:
        sizes = [abs(row[name]) for row in others]
        lines.append(f"{name}: median {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")
    right, pairs = pairs_right(all_rows, lambda row: row["predicted_ns"])
    covered = sum(row["covered"] for row in others)
    lines.append(f"pairs of machines in the right order: {right} of {pairs}")
    lines.append(f"measured within the 95 % interval: {covered} of {len(others)}")
    return "\n".join(lines) + "\n"


def main():
    arguments = parsed()
    # Mounts and control groups are removed, too, when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments.hbench = os.path.abspath(arguments.hbench)
    os.makedirs(arguments.output)
    place = lambda name: os.path.abspath(os.path.join(arguments.output, name))
    words, without = programs.programs(arguments.programs)
    with machines.scratch() as work, machines.prepared(work, arguments.machines) as (made, missing):
        results = {}
        for machine in made:
            say(f"hbench run on {machine.name}")
            results[machine.name] = place(f"{machine.name}.parquet")
            characterize(machine, arguments, results[machine.name])
        applications = {}
        for name, command in words.items():
            say(f"recording {name}")
            applications[name] = place(f"{name}.vec")
            record(made[0], command, arguments, results["plain"], applications[name])
        found = predictions(arguments, applications, results)
        write(place("predictions.json"), {"written": time.strftime("%FT%TZ", time.gmtime()), "predictions": found})
        series = measure(made, words, arguments.runs)
    write(place("measured.json"), {"series": series, "missing": missing + without})
    text = ""
    for quantity in ["elapsed", "work"]:
        text += f"## {quantity}\n\n" + table(list(rows(found, series, quantity))) + "\n"
    text += "".join(f"missing: {name}: {reason}\n" for name, reason in missing + without)
    write(place("table.md"), text)
    print(text, end="")


if __name__ == "__main__":
    main()
