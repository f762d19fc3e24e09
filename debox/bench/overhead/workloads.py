# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""The workloads: three suites, each a script that runs inside one session of a peer."""

import os
import random
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ["calls", "pingpong", "spawn", "stopwatch"]

# Fixed, so that the tree and the sources are the same everywhere.
SEED = 2004


class CannotBuild(Exception):
    pass


@dataclass
class Scale:
    """How long the workloads run, and how long rounds of them are repeated."""

    operation_s: float  # per kind of operation, in suites that time themselves
    tree_files: int
    sources: int
    budget_s: float
    rounds_min: int  # even if the time budget is used up


QUICK = Scale(operation_s=0.03, tree_files=100, sources=1, budget_s=48, rounds_min=1)
FULL = Scale(operation_s=0.15, tree_files=600, sources=4, budget_s=340, rounds_min=3)


@dataclass
class Suite:
    name: str
    title: str
    script: Path
    workloads: list[str]
    share: float  # of the time budget
    processes: bool  # more than one, so that a peer must follow children


def build(scratch: Path) -> None:
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        raise CannotBuild(f"no C compiler: {compiler!r} is not in PATH (set CC)")
    for program in PROGRAMS:
        built = subprocess.run(
            [compiler, "-O2", "-o", scratch / program, HERE / f"{program}.c"],
            capture_output=True,
            text=True,
        )
        if built.returncode:
            raise CannotBuild(f"{program}.c does not compile:\n{built.stderr}")


def write_tree(folder: Path, files: int) -> None:
    """Text files of 1 to 64 KiB that compress about as well as source code does."""
    chance = random.Random(SEED)
    words = ["".join(chance.choices("etaoinshrdlucm_", k=chance.randint(2, 9))) for _ in range(900)]
    for number in range(files):
        below = folder / f"{number % 20:02}"
        below.mkdir(parents=True, exist_ok=True)
        length = 1024 * 2 ** chance.randint(0, 6)
        text: list[str] = []
        while length > 0:
            line = "\t" * chance.randint(0, 3) + " ".join(chance.choices(words, k=7)) + ";\n"
            text.append(line)
            length -= len(line)
        (below / f"{number}.txt").write_text("".join(text))


def write_sources(folder: Path, count: int) -> None:
    chance = random.Random(SEED)
    folder.mkdir()
    for source in range(count):
        lines = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>"]
        lines.append("static int step_0(int a, int b) { return a ^ b; }")
        for number in range(1, 80):
            factor, shift, part = chance.randint(3, 99), chance.randint(1, 9), chance.randint(2, 9)
            lines.append(
                f"static int step_{number}(int a, int b) {{ for (int i = 0; i < b; i++) {{"
                f" a = a * {factor} + (a >> {shift}); if (a % {part} == 0)"
                f" a += step_{number - 1}(a & 7, i & 3); }} return a; }}"
            )
        lines.append(f"int source_{source}(int a) {{ return step_79(a, 5); }}")
        (folder / f"source_{source}.c").write_text("\n".join(lines) + "\n")


def write_script(path: Path, lines: list[str]) -> Path:
    path.write_text("#!/bin/sh\nset -e\n" + "\n".join(lines) + "\n")
    path.chmod(0o700)
    return path


def prepare(scratch: Path, scale: Scale) -> list[Suite]:
    """Builds the programs and their input; each script takes the path of the result file."""
    build(scratch)
    write_tree(scratch / "tree", scale.tree_files)
    write_sources(scratch / "sources", scale.sources)
    at = shlex.quote(str(scratch))
    time = f'{at}/stopwatch "$1"'
    compiler = shlex.quote(os.environ.get("CC", "cc"))
    tar = f"cd {at} && tar cf - tree | gzip -c >/dev/null"
    compile = f"cd {at} && for f in sources/*.c; do {compiler} -O2 -c -o {at}/object.o $f; done"
    seconds = scale.operation_s
    games = ["pipe, 1 CPU", "pipe, 2 CPUs", "futex, 1 CPU"]
    if len(os.sched_getaffinity(0)) < 2:
        games.remove("pipe, 2 CPUs")
    return [
        Suite(
            "calls",
            "Calls that do not sleep (ns per call)",
            write_script(scratch / "calls.sh", [f'exec {at}/calls "$1" {seconds} {at}/data']),
            ["getppid", "pread 128", "pread 1024", "pread 4096"],
            share=0.3,
            processes=False,
        ),
        Suite(
            "switches",
            "Switches and forks (ping-pong: time per round trip of two sleeps)",
            write_script(
                scratch / "switches.sh",
                [f'{at}/pingpong "$1" {seconds}', f'{at}/spawn "$1" {2 * seconds}'],
            ),
            games + ["spawn"],
            share=0.3,
            processes=True,
        ),
        Suite(
            "jobs",
            "Whole jobs (wall time, and CPU time of all their processes)",
            write_script(
                scratch / "jobs.sh",
                [
                    f"{time} tar+gzip sh -c {shlex.quote(tar)}",
                    f"{time} compile sh -c {shlex.quote(compile)}",
                ],
            ),
            ["tar+gzip", "tar+gzip, CPU", "compile", "compile, CPU"],
            share=0.4,
            processes=True,
        ),
    ]


def bystander_times(directory: Path, seconds: str) -> dict[str, float]:
    """What `calls` and `pingpong`, which were built in the directory, print of the time of each operation."""
    times = {}
    for program in [["calls", seconds, directory / "data"], ["pingpong", seconds]]:
        result = directory / "result"
        subprocess.run([directory / program[0], result, *program[1:]], check=True)
        lines = [line.split() for line in result.read_text().splitlines()]
        times |= {" ".join(line[1:-1]): float(line[-1]) for line in lines if line[0] == "time"}
    return times
