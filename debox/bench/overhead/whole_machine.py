#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""What it costs to watch a whole machine: sudo python3 debox/bench/overhead/whole_machine.py

Two questions. What does a watcher cost each process: in each round, in rotating order, a program makes calls (calls.c)
and plays ping-pong over pipes on one CPU (pingpong.c) beside each of these: nothing; nothing again; `debox top`;
`debox record --all`; bpftrace with the time of every call and of every sleep in histograms; `perf trace -a -s`. `ratio` is
relative to nothing in the same round: median and quartiles. `each` is the median difference: for ping-pong by round
trip, which has two sleeps and four calls.

And what does `debox top` cost itself at so many threads that sleep (`--threads`): its CPU time in percent of one CPU,
after the first look, over `--looks` looks of 2 s, as median and range of them.

`--only details` (ten minutes) asks the first question of `debox` alone, by what it is asked to measure.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import stats
from brokered import CHECKOUT, HERE
from workloads import bystander_times

COLUMNS = ["getppid", "pread 4096", "pipe, 1 CPU"]
BPFTRACE = """
tracepoint:raw_syscalls:sys_enter { @start[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@start[tid]/ {
    @ns[comm] = hist(nsecs - @start[tid]); delete(@start[tid]);
}
tracepoint:sched:sched_switch {
    @off[args->prev_pid] = nsecs;
    if (@off[args->next_pid]) {
        @asleep[args->next_comm] = hist(nsecs - @off[args->next_pid]); delete(@off[args->next_pid]);
    }
}
"""
# The peers find tracepoints in tracefs. Where it is not mounted, it is for them alone.
WITH_TRACEFS = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"',
    "sh",
]
# Threads that sleep, as a crowd of idle workers: COUNT, in processes of 100 threads.
CROWD = r"""
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static void *rest(void *unused)
{
	pthread_mutex_lock(&lock);
	for (;;)
		pthread_cond_wait(&work, &lock);
	return unused;
}

int main(int argc, char **argv)
{
	int count = atoi(argv[argc - 1]);

	for (int done = 0; done < count; done += 100) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int at = 1; at < 100; at++) {
			pthread_t thread;
			pthread_attr_t small;

			pthread_attr_init(&small);
			pthread_attr_setstacksize(&small, 65536);
			if (pthread_create(&thread, &small, rest, NULL))
				err(1, "pthread_create");
		}
		pause();
	}
	sleep(2);
	puts("ready");
	fflush(stdout);
	pause();
}
"""


def build(directory: Path) -> None:
    for name in ["calls", "pingpong"]:
        subprocess.run(["cc", "-O2", "-o", directory / name, HERE / f"{name}.c"], check=True)
    source = directory / "sleepers.c"
    source.write_text(CROWD)
    subprocess.run(["cc", "-O2", "-pthread", "-o", directory / "sleepers", source], check=True)


@contextmanager
def running(command, settles_s, ends=signal.SIGINT):
    """Runs a watcher; it has begun after `settles_s`."""
    if command is None:
        time.sleep(0.2)
        yield None
        return
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        time.sleep(settles_s)
        if process.poll() is not None:
            raise SystemExit(f"ended at once with status {process.returncode}: {' '.join(map(str, command))}")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(ends)
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watchers_of_a_machine(directory: Path, debox: Path) -> dict[str, list | None]:
    watchers = {
        "debox top": [debox, "top", "--all", "--batch", "--interval", "1s"],
        "debox record --all": [debox, "record", "--all", "-o", directory / "all.parquet", "--for", "10m"],
    }
    peers = {
        "bpftrace": ["bpftrace", "-e", BPFTRACE],
        "perf trace -a": ["perf", "trace", "-a", "-s", "-o", directory / "perf"],
    }
    for name, command in peers.items():
        if shutil.which(command[0]) is None:
            print(f"{name}: not installed, left out")
            continue
        command = [*WITH_TRACEFS, *command]
        try:
            with running(command, 2):
                pass
        except SystemExit as error:
            print(f"{name}: does not work here, left out: it {error}")
            continue
        watchers[name] = command
    return watchers


def watchers_by_detail(directory: Path, debox: Path) -> dict[str, list | None]:
    """`debox` by what it is asked for: what debox/cli/src/price.rs tells the user beforehand."""

    def attach(*options):
        return [debox, "attach", "--all", "--for", "10m", "-o", directory / "report", *options]

    def record(*options):
        return [debox, "record", "--all", "--for", "10m", "-o", directory / "all.parquet", *options]

    return {
        "basic": attach("--detail", "basic"),
        "sleeps": attach("--detail", "sleeps"),
        "sleeps,cpu": attach("--detail", "sleeps,cpu"),
        "sleeps,samples": attach("--detail", "sleeps,samples"),
        "sleeps,irq": attach("--detail", "sleeps,irq"),
        "sleeps,io": attach("--detail", "sleeps,io"),
        "callsites": attach("--detail", "callsites"),
        "trigger": attach("--detail", "sleeps", "--trigger", "wall > 3600s"),
        "trace, sampled": attach("--detail", "sleeps", "--trace", "--trace-method", "sampled"),
        "record": record(),
        "record, all stacks": record("--stacks-from", "0s"),
        "record, irq": record("--detail", "irq"),
    }


def bystanders(directory: Path, watchers: dict[str, list | None], rounds: int, seconds: str) -> None:
    recording = directory / "all.parquet"
    watchers = {"nothing": None, "nothing again": None, **watchers}
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in watchers}
    names = list(watchers)
    for number in range(rounds):
        turn = number % len(names)
        for name in [*names[turn:], *names[:turn]]:
            with running(watchers[name], 4):
                samples[name].append(bystander_times(directory, seconds))
            recording.unlink(missing_ok=True)
    print(f"{rounds} rounds; ns by call or round trip, ratio to nothing: median (quartiles)")
    for column in COLUMNS:
        bare = dict(enumerate(sample[column] for sample in samples["nothing"]))
        print(f"\n{column}: {median(bare.values()):.0f} ns")
        for name in names[1:]:
            own = dict(enumerate(sample[column] for sample in samples[name]))
            ratio = stats.summarize(stats.ratios(own, bare))
            each = stats.summarize(stats.differences(own, bare))
            print(
                f"  {name:<20} {ratio.median:6.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
                f"   each {each.median:+8.0f} ns ({each.low:+.0f} to {each.high:+.0f})"
            )


def own_cost(directory: Path, debox: Path, threads: int, looks: int) -> None:
    crowd = subprocess.Popen([directory / "sleepers", str(threads)], stdout=subprocess.PIPE, text=True)
    try:
        if "ready" not in crowd.stdout.readline():
            raise SystemExit("the crowd could not be started")
        command = [debox, "top", "--all", "--batch", "--format", "json", "--max-threads", str(2 * threads + 4096)]
        top = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            parts = []
            # The first look reads what every thread waits for.
            json.loads(top.stdout.readline())
            json.loads(top.stdout.readline())
            before, began = cpu_seconds(top.pid), time.monotonic()
            seen = 0
            for _ in range(looks):
                seen = json.loads(top.stdout.readline())["threads"]
                after, now = cpu_seconds(top.pid), time.monotonic()
                parts.append(100 * (after - before) / (now - began))
                before, began = after, now
        finally:
            top.send_signal(signal.SIGINT)
            top.wait(60)
        print(
            f"\ndebox top at {seen} threads: {median(parts):.2f} % of one CPU "
            f"({min(parts):.2f} to {max(parts):.2f} in {looks} looks)"
        )
    finally:
        crowd.kill()
        crowd.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debox", type=Path, default=CHECKOUT / "target/release/debox")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", default="0.3")
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--looks", type=int, default=15)
    parser.add_argument("--only", choices=["bystanders", "details", "own"])
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("whole_machine.py loads probes and needs root: run it with sudo")
    with tempfile.TemporaryDirectory(prefix="debox-bench-") as name:
        directory = Path(name)
        build(directory)
        debox = arguments.debox.resolve()
        if arguments.only in (None, "bystanders"):
            bystanders(directory, watchers_of_a_machine(directory, debox), arguments.rounds, arguments.seconds)
        if arguments.only == "details":
            bystanders(directory, watchers_by_detail(directory, debox), arguments.rounds, arguments.seconds)
        if arguments.only in (None, "own"):
            own_cost(directory, debox, arguments.threads, arguments.looks)


if __name__ == "__main__":
    main()
