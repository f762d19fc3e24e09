# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shows what in_memory.py has measured: a table for each workload, idle connections, and flash's goals."""

import statistics

# What is compared: how it is called, its figure, and whether more of it is better.
FIGURES = (("requests/s", "rate", True), ("median", "p50", False), ("p99", "p99", False), ("CPU", "cpu_us", False))
# Each with the peer that does the same: look up each name, or keep files open.
PAIRS = (("flash", "nginx"), ("flash, open files", "nginx, open files"))
IDLE_MIB = 30
# What rounds of the same server differ by: less is no difference.
SAME = 0.02


def figure(found, number, server, workload, name):
    """A figure of one round, if it was measured."""
    measured = found["rounds"][number].get(server, {}).get("workloads", {}).get(workload)
    return measured[name] if measured else None


def ratios(found, pair, workload, name):
    """Of the two servers of a pair, round by round."""
    result = []
    for number in range(len(found["rounds"])):
        ours, theirs = (figure(found, number, server, workload, name) for server in pair)
        if ours is not None and theirs:
            result.append(ours / theirs)
    return result


def spread(values, digits=2):
    """Median, least and greatest."""
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    return f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def milliseconds(values):
    """The median of times in seconds."""
    return f"{statistics.median(values) * 1000:.2f} ms" if values else "-"


def table(found, workload, servers):
    """A workload's table."""
    print(f"\n### {workload}\n")
    print("| server | requests/s | to nginx's | median | p99 | CPU for each |")
    print("| --- | --- | --- | --- | --- | --- |")
    rounds = range(len(found["rounds"]))
    for server in servers:
        columns = {}
        for _, name, _ in FIGURES:
            values = [figure(found, number, server, workload, name) for number in rounds]
            columns[name] = [value for value in values if value is not None]
        if not columns["rate"]:
            print(f"| {server} | failed | | | | |")
            continue
        compared = spread(ratios(found, (server, "nginx"), workload, "rate"))
        cpu = f"{statistics.median(columns['cpu_us']):.1f} µs"
        rate = f"{statistics.median(columns['rate']):,.0f}"
        print(
            f"| {server} | {rate} | {compared} | {milliseconds(columns['p50'])} | {milliseconds(columns['p99'])} | {cpu} |"
        )


def idle(found, servers):
    """The table of idle connections, and whether flash meets its goal."""
    rows = {}
    for one in found["idle"]:
        for server, memory in one.items():
            if memory:
                rows.setdefault(server, []).append(memory)
    if not rows:
        return True
    count = next(iter(rows.values()))[0]["connections"]
    print(f"\n### {count:,} idle connections\n")
    print("| server | memory with them | without |")
    print("| --- | --- | --- |")
    for server in servers:
        if server not in rows:
            print(f"| {server} | failed | |")
            continue
        after, before = (statistics.median(memory[key] / 1024 for memory in rows[server]) for key in ("with", "before"))
        print(f"| {server} | {after:.1f} MiB | {before:.1f} MiB |")
    ours = [memory["with"] / 1024 for memory in rows.get("flash", [])]
    return bool(ours) and max(ours) <= IDLE_MIB


def verdict(values, is_more_better):
    """Of a goal: met in all rounds, in none, or the rounds disagree."""
    if not values:
        return None, "not measured"
    holds = [value >= 1 - SAME if is_more_better else value <= 1 + SAME for value in values]
    words = spread(values)
    if all(holds):
        return True, f"met: {words}"
    if not any(holds):
        return False, f"not met: {words}"
    return None, f"the rounds disagree: {words}"


def show(found, workloads):
    """Prints all of it; whether all goals are met."""
    servers = list(dict.fromkeys(name for one in found["rounds"] for name in one))
    servers.sort(key=list(found["versions"]).index)
    print(f"{len(found['rounds'])} rounds. Ratios: median (least to greatest) of the rounds.")
    for server in servers:
        agreed = {one[server]["tls"] for one in found["rounds"] if server in one}
        print(f"- {server}: {found['versions'][server]}; {', '.join(sorted(agreed))}")
    for name in found["absent"]:
        print(f"- {name}: not installed")
    for workload in workloads:
        if any(figure(found, number, "flash", workload, "rate") for number in range(len(found["rounds"]))):
            table(found, workload, servers)
    is_all_met = idle(found, servers)
    print("\nGoals: of flash to nginx, in the same round")
    for pair in PAIRS:
        for workload in workloads:
            for words, name, is_more_better in FIGURES:
                values = ratios(found, pair, workload, name)
                if not values:
                    continue
                met, said = verdict(values, is_more_better)
                is_all_met &= met is True
                print(f"  {pair[0]}, {workload}: {words} {said}")
    return is_all_met
