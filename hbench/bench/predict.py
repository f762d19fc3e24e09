#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Predicts real programs on other machines, writes the predictions down, and only then measures.

    sudo python3 hbench/bench/predict.py --hbench target/release/hbench -o validation

Each program is recorded on one machine (plain). The others are the same machine under layers and limits, on other file
systems, and in a sandbox. For each program in turn: every machine's benchmarks are measured once more, the program is
recorded, the prediction is written to validation/PROGRAM.json, and only then does the program run on the other machines.
Machines take turns in both, so the hardware's drift (other guests of the same host, temperature) hits all of them alike.

validation/table.md has each prediction beside three baselines, and beside what a first series of measurements predicts of
a second one (repeat). `elapsed` is the time from start to end; where a machine has to be entered (gvisor), without what
that takes. `work` is compared with the CPU time of all processes; under a tracer, which stops programs, the two are not
quite the same.

--from validation predicts what was measured before once more, by what was recorded then: with another hbench, it shows what that
would have predicted. Such predictions were not made before the measurement.

Takes half an hour on a machine that does nothing else, with --quick ten minutes; with emulated machines (--machines guest_old
guest_newest guest_mitigated) 15. As root.
"""

import argparse
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

import machines
import programs
import scores

MAPPING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../results/mapping.toml")
QUICK = {"first_rounds": 2, "rounds": 0, "sample": "20ms", "recorded_runs": 3, "runs": 2}
WHOLE = {"first_rounds": 3, "rounds": 1, "sample": "40ms", "recorded_runs": 7, "runs": 4}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hbench", default="target/release/hbench")
    parser.add_argument("--debox", help="the program that records [default: beside hbench, or in PATH]")
    parser.add_argument("--flash", help="a program that is measured [default: beside hbench]")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--output", help="new directory for what is found")
    where.add_argument("--from", dest="earlier", metavar="DIR", help="measures nothing: predicts what was measured before")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and runs: for development")
    parser.add_argument("--first-rounds", type=int, help="samples of each benchmark before the first program")
    parser.add_argument("--rounds", type=int, help="samples of each benchmark before each program")
    parser.add_argument("--sample", help="how long a sample takes")
    parser.add_argument("--recorded-runs", type=int, help="runs of each program where it is recorded")
    parser.add_argument("--runs", type=int, help="runs of each program in each of two series, on every machine")
    parser.add_argument("--minutes", type=float, default=60, help="begin no program after so long")
    parser.add_argument("--machines", nargs="*", default=[], help="only these, and plain")
    parser.add_argument("--programs", nargs="*", default=[], help="only these")
    arguments = parser.parse_args()
    for name, value in (QUICK if arguments.quick else WHOLE).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


class Failed(Exception):
    """What does not run on a machine."""


def checked(process, what):
    with machines.ended(process):
        _, errors = process.communicate()
    if process.returncode != 0:
        raise Failed(f"{what} failed with status {process.returncode}: {errors.strip()[-500:]}")


def say(text):
    print(f"predict: {text}", file=sys.stderr, flush=True)


def needed_benchmarks():
    """Those that predictions use."""
    with open(MAPPING, "rb") as file:
        mapping = tomllib.load(file)
    found = {mapping["entry"], mapping["after_work"], mapping["switch"], mapping["fault"], *mapping["user"]}
    found.update(wait["cost"] for wait in mapping["wait"])
    found.update(name for names in mapping["together"].values() for name in names)
    found.update(cost for primitive in mapping["primitive"] for cost in primitive["costs"])
    return sorted(found)


class Suite:
    """The benchmarks of all machines, in several parts."""

    def __init__(self, made, missing, arguments, place):
        self.made = made
        self.missing = missing
        self.arguments = arguments
        self.place = place
        self.parts = {machine.name: [] for machine in made}

    def measure(self, rounds):
        """Every machine in turn, one round after the other."""
        for _ in range(rounds):
            for machine in list(self.made):
                name = f"part-{len(self.parts[machine.name])}.parquet"
                words = ["/usr/bin/hbench", "run", "-o", f"{machine.directory}/{name}", "--rounds", "1"]
                words += ["--sample", self.arguments.sample, *needed_benchmarks()]
                process = machine.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                try:
                    checked(process, f"hbench run on {machine.name}")
                except Failed as reason:
                    say(f"left out: {machine.name}: {reason}")
                    self.missing.append((machine.name, str(reason)))
                    self.made.remove(machine)
                    continue
                self.parts[machine.name].append(name)

    def vectors(self):
        """The machines' vectors, from all that was measured."""
        found = {}
        for machine in self.made:
            found[machine.name] = self.place(f"{machine.name}.vec")
            try:
                self.vector(machine, found[machine.name])
            except Failed as reason:
                sys.exit(f"predict: {reason}")
        return found

    def vector(self, machine, path):
        """One machine's vector, made there if its files cannot be seen from outside."""
        if machine.has_own_disk:
            parts = [f"{machine.directory}/{name}" for name in self.parts[machine.name]]
            made = f"{machine.directory}/own.vec"
            command = 'made=$1; shift; hbench vector "$@" -o "$made" >&2 && cat "$made"'
            words = machine.inside(["sh", "-c", command, "sh", made, *parts])
        else:
            parts = [machine.outside(name) for name in self.parts[machine.name]]
            words = [self.arguments.hbench, "vector", *parts, "-o", path]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        with machines.ended(process):
            content, errors = process.communicate()
        if process.returncode != 0:
            raise Failed(f"the vector of {machine.name}: {errors.strip()}")
        if machine.has_own_disk:
            write(path, content)


def record(machine, words, arguments, here, path):
    """The application's vector."""
    options = ["--on", here, "-o", path, "--runs", str(arguments.recorded_runs)]
    if arguments.debox:
        options += ["--debox", arguments.debox]
    process = subprocess.Popen(
        [arguments.hbench, "vector", *options, "--", *machine.inside(words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    checked(process, f"hbench vector of {path}")


def measured_once(machine, words):
    """Elapsed time, and CPU time of all its processes, in ns."""
    time.sleep(machine.rest_s)
    with tempfile.TemporaryFile() as errors:
        start = time.monotonic_ns()
        process = machine.start(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        with machines.ended(process):
            _, status, usage = os.wait4(process.pid, 0)
            took = time.monotonic_ns() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()[-300:]
            raise Failed(f"it failed with status {process.returncode}: {said}")
    work = None if machine.is_entered else round((usage.ru_utime + usage.ru_stime) * 1e9)
    return {"elapsed": took, "work": work}


def predicted(arguments, application, vectors):
    words = [arguments.hbench, "predict", application, *vectors.values(), "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"it has no prediction: {done.stderr.strip()}")
    return json.loads(done.stdout)


def write(path, content):
    with open(path, "w", encoding="utf-8") as out:
        if isinstance(content, str):
            out.write(content)
        else:
            json.dump(content, out, indent=1)
            out.write("\n")
        out.flush()
        os.fsync(out.fileno())


def entering(made, runs):
    """What entering a machine takes, beyond what it takes on the first one."""
    took = {}
    for machine in made:
        if machine is made[0] or machine.is_entered:
            times = [measured_once(machine, ["/usr/bin/true"])["elapsed"] for _ in range(2 * runs + 1)]
            took[machine.name] = statistics.median(times)
    return {name: value - took[made[0].name] for name, value in took.items()}


# More than a program here uses.
WARMED = 512 << 20


def warm_memory():
    """A virtual machine may have given its free memory back to the host. It then takes several times as long to use it first."""
    with mmap.mmap(-1, WARMED, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        pass


# Runs of a machine's turn that count. Where a program is recorded, too, its runs follow one another.
IN_TURN = 2


def turn(machine, words):
    """What each run takes right after another one: caches are those of the same machine then."""
    warm_memory()
    measured_once(machine, words)
    return [measured_once(machine, words) for _ in range(IN_TURN)]


def measure(made, program, words, runs, failed):
    """Two series on each machine, in turn. Machines on which the program fails are left out."""
    series = [{}, {}]
    able = list(made)
    beside = None
    for at in range(2 * -(-runs // IN_TURN)):
        for machine in list(able):
            try:
                found = turn(machine, words)
            except Failed as reason:
                # Nothing of it on this machine counts, even if it has succeeded before.
                failed.append((f"{program} on {machine.name}", str(reason)))
                able.remove(machine)
                for part in series:
                    part.pop(machine.name, None)
                continue
            series[at % 2].setdefault(machine.name, []).extend(found)
        beside = beside or entering(able, runs)
    for part in series:
        for name, took in part.items():
            for once in took:
                once["elapsed"] -= beside.get(name, 0)
    return series


def validate(arguments, words, place):
    """Predictions and measurements by program, and the machines that are missing."""
    found, series = {}, [{}, {}]
    tools = {name: path for name, path in vars(arguments).items() if name in ("hbench", "flash") and path}
    with machines.scratch() as work, machines.prepared(work, arguments.machines, tools) as (made, missing):
        suite = Suite(made, missing, arguments, place)
        say(f"measuring {len(made)} machines: {', '.join(machine.name for machine in made)}")
        begun = time.monotonic()
        suite.measure(arguments.first_rounds)
        for name, command in words.items():
            if time.monotonic() - begun > 60 * arguments.minutes:
                missing.append((name, "there was no time left"))
                continue
            suite.measure(arguments.rounds)
            vectors = suite.vectors()
            try:
                say(f"recording {name}")
                warm_memory()
                record(made[0], command, arguments, vectors["plain"], place(f"{name}.vec"))
                prediction = predicted(arguments, place(f"{name}.vec"), vectors)
                written = time.strftime("%FT%TZ", time.gmtime())
                write(place(f"{name}.json"), {"written": written, "prediction": prediction})
                say(f"measuring {name}")
                measured = measure(made, name, command, arguments.runs, missing)
            except Failed as reason:
                say(f"{name} is left out: {reason}")
                missing.append((name, str(reason)))
                continue
            found[name] = prediction
            for part, of_program in zip(series, measured):
                part[name] = of_program
            # Whatever ends this process, what was measured is kept.
            write(place("measured.json"), {"series": series, "missing": missing})
    return found, series, missing


def report(found, series, missing):
    text = ""
    for quantity in ["elapsed", "work"]:
        text += f"## {quantity}\n\n" + scores.table(list(scores.rows(found, series, quantity))) + "\n"
    return text + "".join(f"missing: {name}: {reason}\n" for name, reason in missing)


def predict_again(arguments):
    """For what an earlier call has measured."""
    place = lambda name: os.path.join(arguments.earlier, name)
    with open(place("measured.json"), encoding="utf-8") as file:
        measured = json.load(file)
    found = {}
    for name, by_machine in measured["series"][0].items():
        vectors = {machine: place(f"{machine}.vec") for machine in by_machine}
        found[name] = predicted(arguments, place(f"{name}.vec"), vectors)
    print(report(found, measured["series"], measured["missing"]), end="")


def main():
    arguments = parsed()
    # Mounts and control groups are removed, too, when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments.hbench = os.path.abspath(arguments.hbench)
    if arguments.earlier:
        try:
            return predict_again(arguments)
        except (Failed, OSError, ValueError, KeyError, IndexError) as reason:
            sys.exit(f"predict: what is in {arguments.earlier} cannot be predicted: {reason}")
    os.makedirs(arguments.output)
    place = lambda name: os.path.abspath(os.path.join(arguments.output, name))
    beside = os.path.join(os.path.dirname(arguments.hbench), "flash")
    arguments.flash = arguments.flash or (beside if os.path.exists(beside) else None)
    words, without = programs.programs(arguments.programs)
    if not arguments.flash and words.pop("flash", None):
        without.append(("flash", "it is not beside hbench, and --flash does not name it"))
    try:
        found, series, missing = validate(arguments, words, place)
    except (Failed, machines.Missing) as reason:
        sys.exit(f"predict: {reason}")
    write(place("measured.json"), {"series": series, "missing": missing + without})
    text = report(found, series, missing + without)
    write(place("table.md"), text)
    print(text, end="")


if __name__ == "__main__":
    main()
