# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""The results as Markdown."""

from statistics import median

import stats
import targets
from peers import BARE, BARE_AGAIN, KERNEL_BASIC, KERNEL_DEFAULT, USER_BASIC, Peer
from results import Results, SuiteResult


def time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e4)):
        if abs(ns) >= size:
            scale = 1e3 if unit == "us" else size
            return f"{ns / scale:.3g} {unit}" if ns < 1000 * scale else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns are padded, so that the source of the table is readable."""
    columns = list(zip(header, *rows))
    widths = [max(len(cell) for cell in column) for column in columns]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)])


def cell(result: SuiteResult, peer: str, workload: str) -> str:
    times = result.times(peer, workload)
    if not times:
        return "-"
    summary = stats.summarize(list(times.values()))
    if peer == BARE:
        return f"{time(summary.median)} (spread {100 * summary.spread:.1f} %)"
    ratio = stats.summarize(result.ratios(peer, workload))
    digits = 1 if ratio.median >= 10 else 3
    low, middle, high = (f"{x:.{digits}f}" for x in (ratio.low, ratio.median, ratio.high))
    return f"{time(summary.median)}, {middle}x ({low}..{high})"


def suite(result: SuiteResult, peers: list[Peer]) -> str:
    header = [f"{result.rounds} rounds", *result.suite.workloads, "start-up", "end"]
    rows = []
    for peer in peers:
        samples = result.samples.get(peer.name, {}).values()
        if not samples:
            continue
        row = [peer.name, *(cell(result, peer.name, name) for name in result.suite.workloads)]
        row.append(time(1e9 * median(sample.startup_s for sample in samples)))
        row.append(time(1e9 * max(0, median(sample.windup_s for sample in samples))))
        rows.append(row)
    lines = [f"## {result.suite.title}", "", table(header, rows)]
    remarks = []
    if result.crowded:
        remarks.append(
            f"{result.crowded} of {result.rounds} rounds found other tracers at work, which slow"
            " down bare calls too"
        )
    remarks += [f"{peer}: not available: {why}" for peer, why in result.unusable.items()]
    remarks += [f"one sample left out: {what}" for what in result.dropped]
    for peer, samples in result.samples.items():
        notes = [sample.note for sample in samples.values() if sample.note]
        remarks += [f"{peer}: {note}" for note in notes[:1]]
    if remarks:
        lines += ["", *(f"- {remark}" for remark in remarks)]
    return "\n".join(lines)


def judged(results: Results) -> str:
    header = [
        "at most, as a ratio to bare",
        "target",
        "now",
        "",
        "floor",
        "target above it",
        "now above it",
    ]
    rows = []
    for row in targets.judge(results):
        above = [row.floor, row.limit_above, row.measured_above]
        rows.append(
            [row.what, row.limit, row.measured or "-", row.verdict, *(cell or "" for cell in above)]
        )
    lines = ["## Targets", "", table(header, rows)]
    said = targets.remarks(results)
    if said:
        lines += [
            "",
            "The floor is what the same events cost with probes that do nothing, or only read the"
            " clock: no tool that uses them is cheaper, and what DeBox does itself is above it.",
            *(f"- {remark}" for remark in said),
        ]
    return "\n".join(lines)


def sleeps(results: Results) -> str:
    header = [
        "added by sleep, kernel tap",
        "bare round trip",
        "sleeps in it",
        "basic",
        "default, warm",
        "of that: its calls",
        "the rest",
        "cold (first)",
    ]
    rows = []
    for row in targets.explain_sleeps(results):
        calls = row.calls_ns
        spread = f"({time(row.default.low)}..{time(row.default.high)})"
        rows.append(
            [
                row.game,
                time(row.bare_ns),
                f"{row.sleeps:.2f}",
                time(row.basic.median),
                f"{time(row.default.median)} {spread}",
                time(calls) if calls is not None else "-",
                time(row.default.median - calls) if calls is not None else "-",
                time(row.cold.median),
            ]
        )
    if not rows:
        return "## A recorded sleep\n\nNot measured: the kernel tap is not available."
    return "## A recorded sleep\n\n" + table(header, rows)


def then(results: Results) -> str:
    header = ["ratio to bare", "2004", "2004, call trace", USER_BASIC, KERNEL_BASIC, KERNEL_DEFAULT]
    rows = []
    for workload, name, on, trace in targets.RATIOS_2004:
        now = [results.ratios(peer, workload) for peer in header[3:]]
        shown = [f"{median(ratios):.3f}" if ratios else "-" for ratios in now]
        rows.append([f"{workload} ({name})", f"{on:.3f}", f"{trace:.3f}", *shown])
    return "## Beside 2004 (FreeBSD 4.6, 933 MHz Pentium III)\n\n" + table(header, rows)


def noise(results: Results) -> str:
    """How much two bare runs of the same round differ: no ratio is more precise than that."""
    parts = []
    for result in results:
        for workload in result.suite.workloads:
            ratios = result.ratios(BARE_AGAIN, workload)
            if ratios:
                summary = stats.summarize(ratios)
                parts.append(f"{workload} {summary.low:.3f}..{summary.high:.3f}")
    return "Noise, bare again over bare (quartiles): " + "; ".join(parts) + "."


def machine(facts: dict) -> str:
    kind = "virtual, " if facts["virtual"] else ""
    load = "-".join(f"{value:.2f}" for value in facts["load"])
    lines = [
        f"Linux {facts['kernel']}, {facts['processor']}, {kind}{facts['cpus']} CPUs;"
        f" load average {load} (start-end), {facts['stolen_s']:.1f} s of CPU time taken by the"
        f" hypervisor.",
        f"Spectre v2: {facts['spectre_v2'] or 'unknown'}.",
        "Cells: median time, and the median ratio to the bare run of the same round (quartiles).",
    ]
    return "\n".join(lines)


def document(results: Results, peers: list[Peer], facts: dict) -> str:
    parts = ["# What DeBox costs", machine(facts), noise(results)]
    parts += [suite(result, peers) for result in results]
    parts += [sleeps(results), then(results), judged(results)]
    return "\n\n".join(parts)
