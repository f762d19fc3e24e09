# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""The targets for DeBox's cost, and its cost in 2004."""

from dataclasses import dataclass
from statistics import median

import stats
from peers import (
    BARE,
    BARE_AGAIN,
    FLOOR_CLOCK,
    FLOOR_SWITCHES,
    KERNEL_BASIC,
    KERNEL_DEFAULT,
    USER_BASIC,
    USER_BYSTANDER,
    USER_DEFAULT,
)
from results import Results

# (workload, peer, ratio to bare, the machine's own part of that)
RATIO_TARGETS = [
    ("getppid", USER_BASIC, 1.30, None),
    ("getppid", KERNEL_BASIC, 2.3, FLOOR_CLOCK),
    ("getppid", KERNEL_DEFAULT, 2.8, FLOOR_CLOCK),
    ("pread 4096", USER_BASIC, 1.15, None),
    ("pread 4096", KERNEL_BASIC, 1.6, FLOOR_CLOCK),
    ("pread 4096", KERNEL_DEFAULT, 1.9, FLOOR_CLOCK),
    ("getppid", USER_BYSTANDER, 1.01, None),
    ("pread 128", USER_BYSTANDER, 1.01, None),
    ("pread 1024", USER_BYSTANDER, 1.01, None),
    ("pread 4096", USER_BYSTANDER, 1.01, None),
    ("pipe, 1 CPU", USER_BYSTANDER, 1.03, FLOOR_SWITCHES),
    # The promise is about wall time. CPU time is added because a busy machine disturbs it less.
    ("tar+gzip", USER_DEFAULT, 1.015, None),
    ("tar+gzip", KERNEL_DEFAULT, 1.015, None),
    ("tar+gzip, CPU", KERNEL_DEFAULT, 1.015, None),
    ("compile", USER_DEFAULT, 1.015, None),
    ("compile", KERNEL_DEFAULT, 1.015, None),
    ("compile, CPU", KERNEL_DEFAULT, 1.015, None),
]
# The bare times that the targets are based on; with a faster bare call, the same cost is a greater ratio.
PLANNED_BARE_NS = {"getppid": 102, "pread 4096": 229}
SLEEP_TARGET_NS = 1500
GAMES = ["pipe, 1 CPU", "futex, 1 CPU"]
CALLS_OF_A_GAME = 4  # system calls of a round trip, both sides

# DeBox on FreeBSD 4.6, a 933 MHz Pentium III: (workload, its name then, ratio when on, ratio with
# call trace or full support). From Table 2.2 in microseconds; from Table 2.3 in milliseconds
# (tar-gz of a directory with a 10 MB file) and seconds (make kernel).
RATIOS_2004 = [
    ("getppid", "getpid", (0.46 + 0.50) / 0.46, (0.46 + 1.45) / 0.46),
    ("pread 128", "pread 128", (3.27 + 0.56) / 3.27, (3.27 + 2.03) / 3.27),
    ("pread 1024", "pread 1024", (6.74 + 0.68) / 6.74, (6.74 + 2.02) / 6.74),
    ("pread 4096", "pread 4096", (18.43 + 0.74) / 18.43, (18.43 + 2.16) / 18.43),
    ("tar+gzip", "tar-gz of 10 MB", (3078.50 + 22.73) / 3078.50, (3078.50 + 44.58) / 3078.50),
    ("compile", "make kernel", (236.96 + 1.74) / 236.96, (236.96 + 7.49) / 236.96),
]


@dataclass
class Judged:
    what: str
    limit: str
    measured: str | None
    verdict: str
    # If the machine itself causes a part of it: that part, and limit and measured value above it.
    floor: str | None = None
    limit_above: str | None = None
    measured_above: str | None = None


def judge(results: Results) -> list[Judged]:
    rows = []
    for workload, peer, limit, below in RATIO_TARGETS:
        ratios = results.ratios(peer, workload)
        row = Judged(f"{workload}, {peer}", f"{limit:.3f}", None, "not measured")
        if ratios:
            noise = stats.noise(results.ratios(BARE_AGAIN, workload))
            row.measured = f"{median(ratios):.3f}"
            row.verdict = stats.verdict(ratios, limit, noise)
        floor = results.ratios(below, workload) if below else []
        if floor:
            row.floor = f"{median(floor):.3f}"
            row.limit_above = f"{limit - median(floor):.3f}"
            above = stats.differences(
                results.ratios_by_round(peer, workload), results.ratios_by_round(below, workload)
            )
            row.measured_above = f"{median(above):.3f}" if above else None
        rows.append(row)
    for game in GAMES:
        costs = sleep_costs(results, game, KERNEL_DEFAULT)
        if costs:
            shown, verdict = f"{median(costs):.0f} ns", stats.verdict(costs, SLEEP_TARGET_NS)
        else:
            shown, verdict = None, "not measured"
        what = f"a recorded warm sleep with its calls, {game}"
        rows.append(Judged(what, f"{SLEEP_TARGET_NS} ns", shown, verdict))
    return rows


def remarks(results: Results) -> list[str]:
    """Why this machine may not allow a target, with figures of this run."""
    said = []
    for workload, planned_ns in PLANNED_BARE_NS.items():
        result = results.of(workload)
        added = stats.differences(
            result.times(FLOOR_CLOCK, workload), result.times(BARE, workload)
        ) if result else []
        if not added:
            continue
        bare_ns = median(result.times(BARE, workload).values())
        said.append(
            f"{workload}: the targets were set where it takes {planned_ns} ns; here it takes"
            f" {bare_ns:.0f} ns, and two probes that do nothing but read the clock add"
            f" {median(added):.0f} ns."
        )
    return said


def sleep_costs(results: Results, game: str, peer: str) -> list[float]:
    """What the peer adds to a warm round trip, per sleep, for each round."""
    result = results.of(game)
    if not result:
        return []
    added = stats.differences(result.times(peer, game), result.times(BARE, game))
    sleeps = result.values(peer, f"{game} sleeps")
    return [cost / median(sleeps.values()) for cost in added]


@dataclass
class SleepCost:
    game: str
    bare_ns: float  # per round trip
    sleeps: float  # per round trip
    basic: stats.Summary  # added per sleep, budgets only
    default: stats.Summary  # added per sleep
    calls_ns: float | None  # part of it for the calls that belong to a sleep
    cold: stats.Summary  # added per sleep to the first round trip of a session


def call_cost(results: Results) -> float | None:
    """What the kernel tap adds to a call that does not sleep."""
    result = results.of("getppid")
    if not result:
        return None
    added = stats.differences(
        result.times(KERNEL_DEFAULT, "getppid"), result.times(BARE, "getppid")
    )
    return median(added) if added else None


def explain_sleeps(results: Results) -> list[SleepCost]:
    call_ns = call_cost(results)
    rows = []
    for game in GAMES:
        result = results.of(game)
        basic = sleep_costs(results, game, KERNEL_BASIC)
        default = sleep_costs(results, game, KERNEL_DEFAULT)
        if not result or not basic or not default:
            continue
        sleeps = median(result.values(KERNEL_DEFAULT, f"{game} sleeps").values())
        first = f"{game} first"
        cold = stats.differences(result.values(KERNEL_DEFAULT, first), result.values(BARE, first))
        rows.append(
            SleepCost(
                game,
                median(result.times(BARE, game).values()),
                sleeps,
                stats.summarize(basic),
                stats.summarize(default),
                call_ns * CALLS_OF_A_GAME / sleeps if call_ns is not None else None,
                stats.summarize([cost / 2 for cost in cold]),
            )
        )
    return rows
