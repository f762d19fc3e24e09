# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page of flash/bench/stages.py: what the thesis measured for the stages of Flash, beside what was measured now."""

# Ruan, Understanding and Improving Modern Network Server Performance (Princeton 2005). SPECweb99 connections: 2.5.1 to
# 2.5.6 (Figure 2.8). Latency in ms and capacity in Mb/s: Table 3.3. Only what the text or a table says as a number.
SPECWEB99 = {
    "original": "200; 320 with step 2", "sendfile": "300", "fd-passing": "370, then 390", "fork-helper": "440",
    "no-mmap": "620", "direct-cgi": "710", "new-sendfile": "820",
}
TABLE_3_3 = {
    "original": (67.4, 181.0, 362.0, 336.0),
    "fd-passing": (11.5, 50.0, 71.2, 395.0),
    "no-mmap": (1.8, 93.5, 92.9, 437.5),
    "new-sendfile": (1.6, 29.3, 6.6, 450.0),
}
BLOCKED = {
    "sendfile": "Table 2.4: open 190 times, readlink 84, read 12, stat 6; disk reads 166, locks of inodes 127",
    "no-mmap": "Table 2.5: sendfile, 99 % of the time for disk reads (biord); reading from CGI 20 % of the kernel's time (2.5.5)",
}
DIFFERENCES = """\
Where 2026 differs from 2005
- A lookup takes the lock of its directory shared (Linux 4.7): a loop does not wait for a helper that looks for another
  name there, as in 127 of the 295 waits of Table 2.4. Names that were taken out of memory remain.
- mincore answers only to who owns the file or may write it; to others it says that all is in memory (Linux 5.2). So
  the stages that rely on it wait in writev or sendfile as any user but the owner.
- sendfile still has no form that reports a miss. preadv2(RWF_NOWAIT), since 4.14, reports one and copies. cachestat (6.5)
  tells without copying, but only the owner, and counts pages that are just being read.
- openat2(RESOLVE_CACHED), since 5.12, answers from memory or not at all: a loop may open files again.
- Helpers are threads here, not processes. A descriptor is passed through a queue, not by sendmsg, and a fork copies
  what all threads have. A table of descriptors that threads share makes its user wait when it grows.
- mincore walks no list of mappings any more: step 2 of Figure 2.8 has no counterpart."""


def ms(nanoseconds):
    """Milliseconds, as text."""
    return "-" if nanoseconds is None else f"{nanoseconds / 1e6:.1f}"


def us(nanoseconds):
    """Microseconds, as text."""
    return f"{nanoseconds / 1e3:.1f}"


def table(head, rows):
    """Columns as wide as they have to be."""
    rows = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def waiting(found):
    """Which calls of the loop waited, for what, how often and how long."""
    rows = []
    for row in found["stages"]:
        user = row["user"] or "root"
        for wait in row["waits"]:
            rows.append([
                row["stage"], user, wait["call"], wait["label"], wait["count"], ms(wait["p99_ns"]), ms(wait["max_ns"]),
            ])
        if not row["waits"]:
            rows.append([row["stage"], user, "none", "", "", "", ""])
        rows.extend([row["stage"], user, "unknown", doubt, "", "", ""] for doubt in row["doubts"])
    return table(["stage", "user", "call", "waited for", "times", "p99 ms", "max ms"], rows)


def requests(found):
    """What clients saw."""
    rows = []
    for row in found["stages"]:
        hot, cold = row["hot"], row["cold"]
        rows.append([
            row["stage"], row["user"] or "root", f"{hot['per_second']:.0f}", ms(hot["p50_ns"]), ms(hot["p99_ns"]),
            ms(hot["max_ns"]), f"{cold['per_second']:.0f}", ms(cold["p50_ns"]), ms(cold["p99_ns"]),
            hot["failed"] + cold["failed"],
        ])
    return table(
        ["stage", "user", "hot/s", "p50 ms", "p99 ms", "max ms", "all/s", "p50 ms", "p99 ms", "failed"], rows)


def thesis(known):
    """The thesis' numbers."""
    rows = []
    for name in known:
        latency = TABLE_3_3.get(name)
        cells = [f"{value}" for value in latency] if latency else ["-"] * 4
        rows.append([name, SPECWEB99.get(name, "-"), *cells, BLOCKED.get(name, "")])
    head = ["stage", "SPECweb99", "median ms", "mean ms", "90% ms", "Mb/s", "blocked"]
    return table(head, rows)


def removed(known):
    """What each stage removes of the one before it."""
    return "\n".join(f"  {name} removes {stage['removes']}" for name, stage in known.items())


def forks(found):
    """How long the loop's call took that starts a script."""
    rows = []
    for row in found.get("scripts", []):
        for call in row["calls"]:
            rows.append([row["stage"], call["call"], call["count"], ms(call["p50_ns"]), ms(call["max_ns"])])
    return table(["stage", "call of the loop", "times", "p50 ms", "max ms"], rows)


def applications(found):
    """What an application's answer costs, where its answers are relayed and where it has the client's socket."""
    rows = []
    for row in found["applications"]:
        share = 100 * row["reads_ns"] / row["kernel_ns"] if row["kernel_ns"] else 0
        rows.append([
            row["size"], row["stage"], us(row["loop_ns"]), f"{us(row['loop_from_ns'])} to {us(row['loop_to_ns'])}",
            us(row["processes_ns"]), us(row["kernel_ns"]), us(row["reads_ns"]), f"{share:.0f} %",
        ])
    rows.sort(key=lambda cells: cells[0])
    return table(
        ["bytes", "stage", "loop us", "of rounds", "processes us", "loop's calls us", "reading us", "of its calls"], rows)


def of_applications(found):
    """The section on applications, if they were measured."""
    if not found.get("applications"):
        return []
    return [
        "Processor time for each answer of an application: of the loop and of the application's processes (medians of "
        "rounds), and, recorded by DeBox, in the loop's calls and in those that read from the application",
        applications(found), "",
    ]


def page(found, known):
    """All of it."""
    if not found["stages"]:
        return "\n".join(of_applications(found))
    parts = [
        "Calls in which the event loop waited (debox guard, more than 0.2 ms asleep), data set twice the memory, "
        f"{found['service']} for each request to the disk",
        waiting(found), "",
        "Requests for hot files at a fixed rate, and of 16 connections for all files", requests(found), "",
        "Starting scripts while many files are mapped (debox record)", forks(found), "",
        *of_applications(found),
        "What each stage removes of the one before it", removed(known), "",
        "The thesis: SPECweb99 connections (2.5, Figure 2.8); latency and capacity (Table 3.3)", thesis(known), "",
        DIFFERENCES,
    ]
    return "\n".join(parts)
