#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""What owners, resources and chains add to a sleep: sudo python3 debox/bench/overhead/owned.py

Each round runs the workload of owned.c bare, with `--before` (if given: a debox that does not look
for owners) and with `--debox`, in turn. The figures are medians over the rounds, per sleep, and include
the calls around the sleep. `before` and `debox` are what each adds to `bare` in the same round, with the
middle half of the rounds and the ratio to `bare`; on a machine with other work the ratio is more stable.
The cost of finding an owner is the difference to the case of a sleep without an owner.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).resolve().parent
SLEEPS_A_ROUND_TRIP = 2


def times(path: Path) -> dict[str, float]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[1]: float(words[2]) / SLEEPS_A_ROUND_TRIP for words in lines if words[0] == "time"}


def run(prefix: list[str], program: Path, directory: Path, seconds: str) -> dict[str, float]:
    result = directory / "result"
    result.unlink(missing_ok=True)
    subprocess.run([*prefix, str(program), str(result), seconds], check=True)
    return times(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debox", default=HERE.parents[2] / "target/release/debox")
    parser.add_argument("--before")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", default="0.5")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = directory / "owned"
        source = str(HERE / "owned.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", str(program), source], check=True)

        def session(debox: str) -> list[str]:
            report = str(directory / "report")
            return [debox, "run", "--format", "json", "--output", report, "--"]

        peers = {"bare": []}
        if arguments.before:
            peers["before"] = session(arguments.before)
        peers["debox"] = session(str(arguments.debox))
        samples: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
        for number in range(arguments.rounds):
            order = list(peers)[number % len(peers) :] + list(peers)[: number % len(peers)]
            for peer in order:
                samples[peer].append(run(peers[peer], program, directory, arguments.seconds))

    for case in samples["bare"][0]:
        bare = [sample[case] for sample in samples["bare"]]
        line = f"{case:18} bare {median(bare):7.0f} ns"
        for peer in list(peers)[1:]:
            added = [sample[case] - base for sample, base in zip(samples[peer], bare)]
            low, _, high = quantiles(added, n=4)
            ratio = median(sample[case] / base for sample, base in zip(samples[peer], bare))
            line += f"   {peer} {median(added):+7.0f} ns ({low:+.0f} to {high:+.0f}), {ratio:.2f} times"
        print(line)
    plain, *owned = samples["debox"][0]
    for case in owned:
        added = [sample[case] - sample[plain] for sample in samples["debox"]]
        low, _, high = quantiles(added, n=4)
        print(f"{case} less {plain}, both measured: {median(added):+.0f} ns ({low:+.0f} to {high:+.0f})")


if __name__ == "__main__":
    main()
