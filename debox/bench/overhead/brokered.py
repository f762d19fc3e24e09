#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""Compares the library through the broker with the library with its own probes:
sudo python3 debox/bench/overhead/brokered.py

A program reads the record of each of its calls (brokered.c). In each round it runs without DeBox,
as root with its own session, and as an unprivileged user through a broker, in turn, all on one CPU.
`ratio` is the ratio of the two in each round: the median and the quartiles. `again` is the same for two
of the program's own sessions, one after the other: the noise of the machine. `user` is the same without
DeBox, as that user and as root: the difference that the user makes anyway.
"""

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import stats

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
USER = 65534


def build(directory: Path, release: Path) -> Path:
    shutil.copy(release / "debox", directory)
    library = directory / "libdebox.so.0"
    shutil.copy(release / "libdebox.so", library)
    program = directory / "brokered"
    subprocess.run(
        ["cc", "-O2", "-pthread", f"-I{CHECKOUT / 'debox/include'}",
         f"-Wl,-rpath,{directory}", "-o", str(program), str(HERE / "brokered.c"), str(library)],
        check=True,
    )
    return program


def run(program: Path, seconds: str, tap: str, socket: str, user: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        result = Path(name) / "result"
        subprocess.run(
            ["taskset", "-c", str(max(os.sched_getaffinity(0))), program, result, seconds, tap],
            check=True, user=user, group=user, extra_groups=[],
            env={**os.environ, "DEBOX_BROKER": socket},
        )
        lines = [line.split() for line in result.read_text().splitlines()]
    return {" ".join(line[1:-1]): float(line[-1]) for line in lines if line[0] == "time"}


class Broker:
    """Runs only while it serves a program, because its probes would slow down other sessions."""

    def __init__(self, debox: Path, socket: str, options: list[str] = []):
        self.process = subprocess.Popen(
            [debox, "broker", "--socket", socket, *options], stderr=subprocess.PIPE, text=True
        )
        line = self.process.stderr.readline()
        if "listening" not in line:
            raise SystemExit(f"the broker says: {line}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", type=Path, default=CHECKOUT / "target/release")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", default="0.5")
    arguments = parser.parse_args()

    samples: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="debox-bench-") as name:
        os.chmod(name, 0o755)
        directory = Path(name)
        program = build(directory, arguments.release)
        socket = str(directory / "broker.sock")

        def own(tap: str) -> dict[str, float]:
            return run(program, arguments.seconds, tap, "", 0)

        def brokered(tap: str) -> dict[str, float]:
            with Broker(directory / "debox", socket):
                return run(program, arguments.seconds, tap, socket, USER)

        for tap in ["kernel", "user"]:
            peers = {
                "off": lambda: own("off"),
                "off as user": lambda: run(program, arguments.seconds, "off", "", USER),
                "own": lambda: own(tap),
                "again": lambda: own(tap),
                "broker": lambda: brokered(tap),
            }
            for number in range(arguments.rounds):
                first = number % len(peers)
                for peer in [*list(peers)[first:], *list(peers)[:first]]:
                    samples.setdefault((tap, peer), []).append(peers[peer]())
                    time.sleep(0.2)

    print(f"{'tap':7} {'call':11} {'off':>8} {'own':>8} {'broker':>8}   ratio (quartiles)"
          f"{'':8}again{'':20}user")
    for tap in ["kernel", "user"]:
        for call in samples[tap, "off"][0]:
            def column(peer: str) -> dict[int, float]:
                return {at: sample[call] for at, sample in enumerate(samples[tap, peer])}

            cells = [median(column(peer).values()) for peer in ["off", "own", "broker"]]
            line = f"{tap:7} {call:11}" + "".join(f" {cell:5.0f} ns" for cell in cells)
            for peer, base in [("broker", "own"), ("again", "own"), ("off as user", "off")]:
                ratio = stats.summarize(stats.ratios(column(peer), column(base)))
                line += f"   {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
            print(line)


if __name__ == "__main__":
    main()
