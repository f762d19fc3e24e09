#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs `latlab hot-cold` for all installed servers, and says whether flash meets its goals.

As root, on a machine that does nothing else; about 20 minutes:

    sudo python3 flash/bench/hot_cold.py -o hot-cold
    python3 flash/bench/hot_cold.py --from hot-cold/hot-cold.json     # judges what was measured before

A goal is met if it is met in every repeat, and not met if it is met in none. Otherwise the repeats disagree: nothing
is shown. Runs that are not valid for the server judge nothing.

Exit status: 0 if all goals are met, 1 if not, 2 if it could not be measured.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys

HOT_GROWTH_MAX = 1.5
FASTER_THAN_TUNED_MIN = 10.0
# "No slower": the runs are not more precise than this.
COLD_GROWTH_MAX = 1.05
TUNED = "nginx-tuned"


def ratio(above, below):
    """A ratio of two latencies; a failed request is slower than any other. None: it cannot be judged."""
    if above is None or below is None or (math.isinf(above) and math.isinf(below)):
        return None
    return above / max(below, 1.0)


def latency(run, kind, percentile):
    """A percentile of a class in one run; None if the run had no such request or is not valid."""
    figures = run.get(kind)
    if figures is None or figures["requests"] == 0 or run["wrong"] or run["summary"]["refused"]:
        return None
    value = figures[percentile]["value"]
    return math.inf if value is None else value


def judge(ratios, holds, wanted):
    """The verdict over the repeats, and the words for it."""
    known = [one for one in ratios if one is not None]
    if not known or len(known) < wanted:
        return None, "not judged: some runs are missing or not valid"
    held = [holds(one) for one in known]
    words = f"{statistics.median(known):.2f} ({min(known):.2f} to {max(known):.2f})"
    if all(held):
        return True, f"met: {words}"
    if not any(held):
        return False, f"not met: {words}"
    return None, f"not shown, the repeats disagree: {words}"


def runs_at(server, level):
    return next((one["runs"] for one in server["levels"] if one["level"] == level), [])


def goals(found):
    """Each goal with its verdict."""
    servers = {server["name"]: server for server in found["servers"]}
    flash = servers.get("flash")
    if flash is None:
        raise ValueError("flash was not measured")
    wanted = found["terms"]["repeats"]
    levels = [one["level"] for one in flash["levels"] if one["level"] > 0]
    own = runs_at(flash, 0.0)
    result = []

    def add(goal, ratios, holds):
        result.append((goal, *judge(ratios, holds, wanted)))

    for level in levels:
        pairs = zip(runs_at(flash, level), own)
        ratios = [ratio(latency(run, "hot", "p99_ns"), latency(first, "hot", "p99_ns")) for run, first in pairs]
        add(
            f"hot p99 with cold requests at {level:.0%}: at most {HOT_GROWTH_MAX} times that without",
            ratios,
            lambda one: one <= HOT_GROWTH_MAX,
        )
    if TUNED in servers and 1.0 in levels:
        pairs = zip(runs_at(servers[TUNED], 1.0), runs_at(flash, 1.0))
        ratios = [ratio(latency(theirs, "hot", "p99_ns"), latency(run, "hot", "p99_ns")) for theirs, run in pairs]
        add(
            f"{TUNED}'s hot p99 when cold names saturate the disk: at least {FASTER_THAN_TUNED_MIN:.0f} times flash's",
            ratios,
            lambda one: one >= FASTER_THAN_TUNED_MIN,
        )
    else:
        result.append((f"{TUNED} at 100 %", None, "not judged: it was not measured"))
    peers = {name: server for name, server in servers.items() if name != "flash"}
    for level in levels:
        # What is better for one of the two is worse for the other, so both together are judged, too.
        for kind, words in (
            ("cold_or_missing", "cold and missing names"),
            ("cold", "cold names"),
            ("missing", "missing names"),
        ):
            for percentile, name in (("p50_ns", "p50"), ("p99_ns", "p99")):
                ratios = []
                for at, run in enumerate(runs_at(flash, level)):
                    theirs = [runs[at] for runs in (runs_at(one, level) for one in peers.values()) if at < len(runs)]
                    known = [latency(one, kind, percentile) for one in theirs]
                    known = [one for one in known if one is not None]
                    ratios.append(ratio(latency(run, kind, percentile), min(known, default=None)))
                add(
                    f"{name} of {words} at {level:.0%}, relative to the best peer's: at most {COLD_GROWTH_MAX}",
                    ratios,
                    lambda one: one <= COLD_GROWTH_MAX,
                )
    return result


def measure(arguments):
    command = [arguments.latlab, "hot-cold", "-o", arguments.output]
    command += ["--quick"] if arguments.quick else []
    command += arguments.options
    status = subprocess.run(command).returncode
    path = os.path.join(arguments.output, "hot-cold.json")
    # 3: some runs are not valid; which ones is in the result.
    if status not in (0, 3) or not os.path.exists(path):
        sys.exit(2)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="hot-cold", help="new directory for what is measured")
    parser.add_argument("--from", dest="kept", metavar="FILE", help="hot-cold.json of an earlier measurement")
    parser.add_argument("--latlab", default="target/release/latlab")
    parser.add_argument("--quick", action="store_true", help="two levels once, to see how it goes")
    parser.add_argument("options", nargs="*", help="options of `latlab hot-cold`, after --")
    arguments = parser.parse_args()
    path = arguments.kept or measure(arguments)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if found.get("schema") != "latlab.hot-cold/1":
            raise ValueError("it is not of `latlab hot-cold`")
        verdicts = goals(found)
    except (OSError, ValueError, KeyError) as error:
        print(f"hot_cold.py: {path}: {error}", file=sys.stderr)
        sys.exit(2)
    print("\nGoals of flash; medians of the repeats, in brackets the least and the greatest")
    for goal, _, words in verdicts:
        print(f"  {goal}\n      {words}")
    for absent in found["absent"]:
        print(f"  {absent['why']}: it is no peer here")
    sys.exit(0 if all(met for _, met, _ in verdicts) else 1)


if __name__ == "__main__":
    main()
