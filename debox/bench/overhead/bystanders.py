#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""What sessions of other processes cost a process that has none: sudo python3 debox/bench/overhead/bystanders.py

Each round has these cases, in rotating order: no session; 1, 2, 4 and 8 root processes, each with its own
session; 1 to 1,000 clients of a broker with the same kind of session; six clients with six kinds; and 1, 2
and 8 `debox run` with all details through the broker. All of them are idle. A process that is not monitored
then makes calls (calls.c) and plays ping-pong over pipes on one CPU (pingpong.c). `ratio` is relative to the
first case of the group in the same round: median and quartiles.
"""

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import stats
from brokered import CHECKOUT, HERE, Broker
from workloads import bystander_times

USER = 61000
PER_USER = 50
LIMITS = ["--clients", "1000", "--clients-per-user", str(PER_USER), "--runs", "8", "--runs-per-user", "1"]
COLUMNS = [("getppid", "calls"), ("pread 4096", "calls"), ("pipe, 1 CPU", "switches")]


def build(directory: Path, release: Path) -> None:
    shutil.copy(release / "debox", directory)
    library = directory / "libdebox.so.0"
    shutil.copy(release / "libdebox.so", library)
    for name, libraries in [("crowd", [str(library)]), ("calls", []), ("pingpong", [])]:
        subprocess.run(
            ["cc", "-O2", f"-I{CHECKOUT / 'debox/include'}", f"-Wl,-rpath,{directory}",
             "-o", str(directory / name), str(HERE / f"{name}.c"), *libraries],
            check=True,
        )


@contextmanager
def started(command: list, until: str, **options) -> Iterator[None]:
    """Runs a command that prints `until` when it is ready, and ends it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        line = process.stdout.readline()
        if until not in line:
            raise SystemExit(f"{command[0]} ended before it was ready")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def crowd(directory: Path, count: int, kinds: int, user: int, socket: str):
    command = [directory / "crowd", str(count), str(kinds), str(user), str(PER_USER)]
    return started(command, "ready", env={**os.environ, "DEBOX_BROKER": socket})


@contextmanager
def runs(directory: Path, count: int, socket: str) -> Iterator[None]:
    environment = {**os.environ, "DEBOX_BROKER": socket}
    details = "sleeps,callsites,irq,io"
    command = [directory / "debox", "run", "--detail", details, "--", "sh", "-c", "echo ready; exec sleep 600"]
    with ExitStack() as stack:
        for number in range(count):
            user = USER + number
            stack.enter_context(
                started(command, "ready", env=environment, user=user, group=user, extra_groups=[],
                        stderr=subprocess.DEVNULL, cwd="/")
            )
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", type=Path, default=CHECKOUT / "target/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="0.3")
    parser.add_argument("--most", type=int, default=1000, help="clients")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("bystanders.py loads probes and needs root: run it with sudo")

    groups = {
        "sessions of root's": [1, 2, 4, 8],
        "clients of a broker": [count for count in [1, 10, 100, 1000] if count <= arguments.most],
        "clients of six kinds": [1, 6],
        "debox run, all details": [1, 2, 8],
    }
    samples: dict[tuple[str, int], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="debox-bench-") as name:
        os.chmod(name, 0o755)
        directory = Path(name)
        build(directory, arguments.release)
        socket = str(directory / "broker.sock")
        peers = [("none", 0), *((group, count) for group, counts in groups.items() for count in counts)]
        for number in range(arguments.rounds):
            turn = number % len(peers)
            for group, count in [*peers[turn:], *peers[:turn]]:
                with ExitStack() as stack:
                    if group in list(groups)[1:]:
                        stack.enter_context(Broker(directory / "debox", socket, LIMITS))
                    if group == "sessions of root's":
                        stack.enter_context(crowd(directory, count, 1, 0, ""))
                    elif group == "clients of a broker":
                        stack.enter_context(crowd(directory, count, 1, USER, socket))
                    elif group == "clients of six kinds":
                        stack.enter_context(crowd(directory, count, count, USER, socket))
                    elif group == "debox run, all details":
                        stack.enter_context(runs(directory, count, socket))
                    samples.setdefault((group, count), []).append(bystander_times(directory, arguments.seconds))

    print(f"{'':24}{'':>6}" + "".join(f"{name:>14}   {'ratio (quartiles)':24}" for name, _ in COLUMNS))
    for peer in peers:
        group, count = peer
        base = peer if group == "none" else (group, groups[group][0])
        line = f"{group:24}{count:6}"
        for call, _ in COLUMNS:
            def column(of: tuple[str, int]) -> dict[int, float]:
                return {at: sample[call] for at, sample in enumerate(samples[of])}

            ratio = stats.summarize(stats.ratios(column(peer), column(base)))
            line += f"{median(column(peer).values()):11.0f} ns"
            line += f"   {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        print(line)


if __name__ == "__main__":
    main()
