#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""What DeBox costs, compared with no tool and with the tools that would be used instead.

Every round runs a suite under each peer in turn, so that other work on the machine affects all peers
equally. Rounds are repeated until the time is used up. Some peers need root.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import machine
import tables
import targets
from peers import BARE, Peer, all_peers, lacks
from results import Results, SuiteResult
from sample import Unusable, take
from workloads import FULL, QUICK, CannotBuild, Scale, Suite, prepare

CHECKOUT = Path(__file__).resolve().parents[3]


def measure(suite: Suite, peers: list[Peer], scratch: Path, scale: Scale) -> SuiteResult:
    """Repeats rounds of all peers for about the suite's share of the time."""
    budget_s = scale.budget_s * suite.share
    peers = [peer for peer in peers if peer.suite in (None, suite.name)]
    result = SuiteResult(suite)
    begun = time.monotonic()
    take(peers[0], suite, scratch)  # bare, to warm the caches
    longest_s = 0.0
    while result.rounds < scale.rounds_min or time.monotonic() - begun + longest_s < budget_s:
        round_begun = time.monotonic()
        result.crowded += bool(machine.tracers())
        # The starting peer rotates. The first round is in order: it finds the peers that work
        # before those that depend on them.
        first = result.rounds % len(peers)
        for peer in peers[first:] + peers[:first]:
            sample_once(result, peer, scratch)
        result.rounds += 1
        longest_s = max(longest_s, time.monotonic() - round_begun)
    return result


def sample_once(result: SuiteResult, peer: Peer, scratch: Path) -> None:
    """Adds one sample; a peer that fails the first time is not tried again."""
    if peer.name in result.unusable:
        return
    reason = lacks(peer)
    if peer.beside_of in result.unusable:
        reason = f"needs {peer.beside_of}"
    if reason is None:
        try:
            result.samples.setdefault(peer.name, {})[result.rounds] = take(
                peer, result.suite, scratch
            )
            return
        except Unusable as unusable:
            reason = str(unusable)
    if result.samples.get(peer.name):
        result.dropped.append(f"{peer.name}, round {result.rounds + 1}: {reason}")
    elif peer.name == BARE:
        raise SystemExit(f"the {result.suite.name} workloads do not run: {reason}")
    else:
        result.unusable[peer.name] = reason


def as_json(results: Results, facts: dict, scale: Scale) -> dict:
    return {
        "schema": "debox.overhead/1",
        "machine": facts,
        "scale": asdict(scale),
        "suites": {
            result.suite.name: {
                "rounds": result.rounds,
                "rounds_beside_other_tracers": result.crowded,
                "unavailable": result.unusable,
                "left_out": result.dropped,
                "peers": {
                    peer: [{"round": at, **asdict(sample)} for at, sample in samples.items()]
                    for peer, samples in result.samples.items()
                },
            }
            for result in results
        },
        "sleeps": [asdict(row) for row in targets.explain_sleeps(results)],
        "targets": [asdict(row) for row in targets.judge(results)],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="one minute instead of six")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument(
        "--debox",
        type=Path,
        metavar="PATH",
        default=CHECKOUT / "target/release/debox",
        help="the command to measure (default: the release build of this checkout)",
    )
    parser.add_argument(
        "--suite",
        action="append",
        choices=["calls", "switches", "jobs"],
        help="only this one (may be repeated)",
    )
    return parser.parse_args()


def run(options: argparse.Namespace, scratch: Path) -> None:
    scale = QUICK if options.quick else FULL
    # Copies, so that a build during the run does not change what is measured.
    debox = scratch / "debox"
    for program in (options.debox, options.debox.with_name("debox-floor")):
        if program.exists():
            shutil.copy2(program, scratch / ("debox" if program == options.debox else program.name))
        else:
            print(f"{program} is not there: build it, or name debox with --debox", file=sys.stderr)
    peers = all_peers(str(debox))
    suites = prepare(scratch, scale)
    if options.suite:
        suites = [suite for suite in suites if suite.name in options.suite]

    facts = machine.describe()
    load, used = os.getloadavg()[0], machine.cpu_seconds()
    results = Results()
    for suite in suites:
        print(f"measuring: {suite.title} ...", file=sys.stderr)
        results.append(measure(suite, peers, scratch, scale))
    facts["load"] = [load, os.getloadavg()[0]]
    facts["stolen_s"] = machine.cpu_seconds()["stolen"] - used["stolen"]

    print(tables.document(results, peers, facts))
    if options.json:
        options.json.write_text(json.dumps(as_json(results, facts, scale), indent=1) + "\n")


def main() -> int:
    options = arguments()
    # If it is terminated, it still ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="debox-overhead-") as scratch:
        try:
            run(options, Path(scratch))
        except CannotBuild as problem:
            print(problem, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
