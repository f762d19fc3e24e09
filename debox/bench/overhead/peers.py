# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""The columns: how each peer runs a script, and which session is open beside it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BARE = "bare"
BARE_AGAIN = "bare again"
USER_BASIC = "user tap, basic"
USER_DEFAULT = "user tap, default"
KERNEL_BASIC = "kernel tap, basic"
KERNEL_SLEEPS = "kernel tap, without cpu"
KERNEL_DEFAULT = "kernel tap, default"
KERNEL_BYSTANDER = "bystander of the kernel tap"
SLEEPS_BYSTANDER = "bystander, without cpu"
USER_BYSTANDER = "bystander of the user tap"
# What the events themselves cost on this machine, for any tool.
FLOOR_CALLS = "floor: empty probes at calls"
FLOOR_CLOCK = "floor: probes that read the clock"
FLOOR_SWITCHES = "floor: empty probes at switches"

# Records the time of every call in a histogram. A script that counts all calls on the machine would not
# need a filter, but would not be used to examine one program.
BPFTRACE_ONE_PROCESS = """
tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @start[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@start[tid]/ {
    @ns = hist(nsecs - @start[tid]); delete(@start[tid]);
}
"""
BPFTRACE_CHILDREN_TOO = """
BEGIN { @traced[cpid] = 1; }
tracepoint:sched:sched_process_fork /@traced[args->parent_pid]/ { @traced[args->child_pid] = 1; }
tracepoint:sched:sched_process_exit { delete(@traced[tid]); }
tracepoint:raw_syscalls:sys_enter /@traced[tid]/ { @start[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@start[tid]/ {
    @ns = hist(nsecs - @start[tid]); delete(@start[tid]);
}
"""


@dataclass
class Peer:
    name: str
    # (script and its argument, follow children, where a report may go) -> command line
    command: Callable[[list[str], bool, Path], list[str]]
    needs: str | None = None  # a program
    # A session that is open on another, sleeping process: its options
    beside: list[str] | None = None
    beside_of: str | None = None  # the peer that must work, otherwise this one says nothing
    reports: bool = False  # writes a DeBox report, which is checked
    suite: str | None = None  # the only suite that it applies to


def debox(path: str, name: str, *options: str) -> Peer:
    return Peer(
        name,
        lambda script, _children, report: (
            [path, "run", *options, "--format", "json", "--output", str(report), "--", *script]
        ),
        needs=path,
        reports=True,
    )


def floor(debox_path: str, name: str, events: str, suite: str) -> Peer:
    """Built together with debox, in the same directory."""
    path = str(Path(debox_path).with_name("debox-floor"))
    return Peer(
        name,
        lambda script, *_: [path, events, "--", *script],
        needs=path,
        suite=suite,
    )


def plain(script: list[str], _children: bool, _report: Path) -> list[str]:
    return script


def bpftrace(script: list[str], children: bool, _report: Path) -> list[str]:
    program = BPFTRACE_CHILDREN_TOO if children else BPFTRACE_ONE_PROCESS
    # bpftrace can only start programs, so the script's shell is named. The script ends with exec, so it
    # stays in the shell's process.
    return ["bpftrace", "-e", program, "-c", " ".join(["/bin/sh", *script])]


def all_peers(debox_path: str) -> list[Peer]:
    return [
        Peer(BARE, plain),
        Peer(BARE_AGAIN, plain),
        floor(debox_path, FLOOR_CALLS, "calls", "calls"),
        floor(debox_path, FLOOR_CLOCK, "clock", "calls"),
        floor(debox_path, FLOOR_SWITCHES, "switches", "switches"),
        debox(debox_path, USER_BASIC, "--tap", "user", "--detail", "basic"),
        debox(debox_path, USER_DEFAULT, "--tap", "user"),
        Peer(USER_BYSTANDER, plain, debox_path, ["--tap", "user"], USER_DEFAULT),
        debox(debox_path, KERNEL_BASIC, "--tap", "kernel", "--detail", "basic"),
        # The default records who had the CPU, which writes a word at each switch of every process.
        debox(debox_path, KERNEL_SLEEPS, "--tap", "kernel", "--detail", "sleeps"),
        debox(debox_path, KERNEL_DEFAULT, "--tap", "kernel"),
        Peer(KERNEL_BYSTANDER, plain, debox_path, ["--tap", "kernel"], KERNEL_DEFAULT),
        Peer(
            SLEEPS_BYSTANDER,
            plain,
            debox_path,
            ["--tap", "kernel", "--detail", "sleeps"],
            KERNEL_SLEEPS,
        ),
        Peer("bpftrace", bpftrace, "bpftrace"),
        Peer(
            "perf trace -s",
            lambda script, _, report: ["perf", "trace", "-s", "-o", str(report), "--", *script],
            "perf",
        ),
        Peer(
            "strace -f",
            lambda script, *_: ["strace", "-f", "-o", "/dev/null", *script],
            "strace",
        ),
        Peer(
            "strace -c -f",
            lambda script, _, report: ["strace", "-c", "-f", "-o", str(report), *script],
            "strace",
        ),
    ]


def lacks(peer: Peer) -> str | None:
    if peer.needs and not shutil.which(peer.needs):
        return f"{peer.needs} is not installed"
    return None
