#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Known answers: a primitive is slowed on purpose. Its benchmark has to move by what was added, others not, and
`hbench explain` has to name it as the reason why a program is slower there.

    sudo python3 hbench/bench/known.py --hbench target/release/hbench

Five minutes, as root, on a machine that does nothing else. Another source says by how much each case slows the machine: Python
measures what strace's delay and a file system in user space add to a call, and how much longer a program takes with half a CPU;
`perf bench` measures what a filter adds; the kernel limits the reads of a disk to a given number. A result may differ from that
by its own 95 % interval and by the drift of the machine. A result whose interval is wider than what was added decides nothing.

Exit status: 0 if all answers are right, 1 if one is wrong, 3 if none is wrong and some decide nothing.
"""

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import machines

MS = 1e6
US = 1e3

# A program that opens, reads cold, writes and syncs; each often enough to be seen.
PROGRAM = """
import os
for at in range(40):
    file = os.open('known', os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(4096), 0)
    os.fsync(file)
    for _ in range(20):
        os.close(os.open('known', os.O_RDONLY))
    for _ in range(20):
        os.fstat(file), os.getppid()
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(file, 4096, 0)
    os.close(file)
"""

# One that only calls.
CALLS = """
import os
file = os.open('/', os.O_RDONLY)
for at in range(60000):
    os.fstat(file), os.getppid()
"""

# One that only computes, for a second or so.
COMPUTES = """
total = 0
for at in range(20_000_000):
    total += at
"""


def said(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"known: {' '.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Case:
    """A slowed machine. `moves`: by benchmark, what one operation takes longer, in ns, from the least to the most. `longer`:
    how many times as long the program takes, if that is known, from the least to the most. `plain`: where the files of the
    machine lie that is not slowed, if that is another directory. `alike`: what is called before both are measured."""

    def __init__(
        self,
        name,
        moves,
        stays,
        names,
        before=None,
        under=None,
        directory=None,
        plain=None,
        program=PROGRAM,
        longer=None,
        alike=None,
    ):
        self.name = name
        self.moves = moves
        self.stays = stays
        self.names = names
        self.before = before or alike
        self.alike = alike
        self.under = under
        self.directory = directory
        self.plain = plain or directory
        self.program = program
        self.longer = longer


# The median of one call, by Python's own clock. Like a benchmark's sample it runs on one CPU, and its file lies as deep.
TIMED = """
import os, statistics, tempfile, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with tempfile.TemporaryDirectory(dir='.') as top:
    os.makedirs(top + '/some/directories/down')
    file = open(top + '/some/directories/down/file', 'wb')
    def openat():
        os.close(os.open(file.name, os.O_RDONLY))
    def fsync():
        os.pwrite(file.fileno(), bytes(4096), 0)
        os.fsync(file.fileno())
    def stat():
        os.stat(file.name)
    def fstat():
        os.fstat(file.fileno())
    times = []
    for _ in range(TIMES):
        begin = time.perf_counter_ns()
        CALL()
        times.append(time.perf_counter_ns() - begin)
    file.close()
print(statistics.median(times))
"""


def median_ns(call, directory, prefix=(), times=50):
    code = TIMED.replace("CALL", call).replace("TIMES", str(times))
    return float(said([*prefix, "/usr/bin/python3", "-S", "-c", code], cwd=directory))


def delayed(call, us, moves, stays, names, work):
    """strace stops this call alone. The stop itself takes time, too, and its timer is late: Python measures all of it."""
    under = f"strace -f -qq -o /dev/null --seccomp-bpf -e trace={call} -e inject={call}:delay_enter={us}"
    times = [median_ns(call, work, prefix) for prefix in ([], under.split(), [], under.split())]
    added = (times[1] + times[3] - times[0] - times[2]) / 2
    print(f"known: by Python's clock, strace's delay of {us} us adds {added / US:.0f} us to {call}", file=sys.stderr)
    if added < us * US:
        sys.exit(f"known: strace delays {call} by {added / US:.0f} us instead of {us} us or more")
    return Case(f"{call} + {us} us", {moves: (0.9 * added, 1.1 * added)}, stays, names, under=under)


def perf_ns(before):
    """A null call, by another program."""
    words = ["perf", "bench", "syscall", "basic"]
    times = []
    for _ in range(5):
        printed = said(words, preexec_fn=before)
        times.append(float(re.search(r"([0-9.]+) usecs/op", printed).group(1)) * US)
    return sorted(times)[2]


def filtered():
    added = perf_ns(machines.filter_calls) - perf_ns(None)
    once = (0.85 * added, 1.15 * added)
    moves = {"call.null": once, "file.fstat": once, "call.read-zero/1": once, "file.open/hot": (1.7 * added, 2.3 * added)}
    print(f"known: by perf bench, the filter adds {added:.0f} ns to a call", file=sys.stderr)
    # All calls, and so whatever makes many of them.
    return Case("seccomp filter", moves, ["memory.read/16K"], ["entering the kernel"], machines.filter_calls, program=CALLS)


@contextlib.contextmanager
def limited_disk(work):
    """A disk that reads 100 times in a second, by the kernel's own limit."""
    controller = "/sys/fs/cgroup/blkio"
    if not os.path.exists(f"{controller}/blkio.throttle.read_iops_device"):
        raise machines.Missing("the control group's blkio of version 1")
    image = os.path.join(work, "disk.img")
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    machines.run("mkfs.ext4", "-q", "-F", image)
    group = f"{controller}/hbench-known-{os.getpid()}"
    point = os.path.join(work, "disk")
    os.mkdir(point)
    with machines.mounted(point, "-o", "loop", image):
        device = os.stat(point).st_dev
        # Each read is then one request to the disk.
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/read_ahead_kb", "w", encoding="ascii") as out:
            out.write("4")
        os.mkdir(group)
        try:
            with open(f"{group}/blkio.throttle.read_iops_device", "w", encoding="ascii") as out:
                out.write(f"{os.major(device)}:{os.minor(device)} 100")

            def enter():
                with open(f"{group}/cgroup.procs", "w", encoding="ascii") as out:
                    out.write(str(os.getpid()))

            moves = {"file.read-cold": (9 * MS, 14 * MS)}
            yield Case("100 reads in a second", moves, ["file.fstat"], ["waiting: disk.read"], enter, directory=point)
        finally:
            os.rmdir(group)


@contextlib.contextmanager
def in_user_space(work):
    """The same files through bindfs, a file system in user space that is asked for whatever a call wants to know. It is on the
    same CPU as its callers: what it takes to wake another one changes from one run to the next."""
    cpu = min(os.sched_getaffinity(0))
    if not shutil.which("bindfs"):
        raise machines.Missing("bindfs")
    point, own = (os.path.join(work, name) for name in ("through", "own"))
    os.mkdir(point)
    os.mkdir(own)
    options = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
    with machines.mounted(point, "-t", "fuse.bindfs", "-o", options, own, under=("taskset", "-c", str(cpu))):
        moves = {}
        for call, name in (("stat", "file.stat/hot"), ("fstat", "file.fstat"), ("openat", "file.open/hot")):
            times = [median_ns(call, directory, times=2000) for directory in (own, point) * 3]
            added = statistics.median(times[1::2]) - statistics.median(times[0::2])
            print(f"known: by Python's clock, bindfs adds {added / US:.1f} us to {call}", file=sys.stderr)
            moves[name] = (0.8 * added, 1.2 * added)
        yield Case(
            "a file system in user space",
            moves,
            ["call.null"],
            ["file.open", "file.stat"],
            directory=point,
            plain=own,
            alike=lambda: os.sched_setaffinity(0, [cpu]),
        )


def stretched(before):
    """How long the program that computes takes for each second of its CPU time: the CPU's own speed changes, and this does not."""
    words = ["/usr/bin/python3", "-S", "-c", COMPUTES]
    begin = time.monotonic_ns()
    _, status, usage = os.wait4(subprocess.Popen(words, preexec_fn=before).pid, 0)
    if status != 0:
        sys.exit(f"known: the program that computes failed with status {os.waitstatus_to_exitcode(status)}")
    return (time.monotonic_ns() - begin) / (1e9 * (usage.ru_utime + usage.ru_stime))


@contextlib.contextmanager
def halved():
    """Half a CPU: the program takes twice as long, and its operations cost what they did. Samples take longer there: only
    in a machine's vector is the time removed in which the quota was used up."""
    with machines.half_a_cpu() as enter:
        pairs = [(stretched(None), stretched(enter)) for _ in range(3)]
        whole, half = (statistics.median(times) for times in zip(*pairs))
        print(f"known: with half a CPU the program takes {half / whole:.2f} times as long", file=sys.stderr)
        longer = (0.9 * half / whole, 1.1 * half / whole)
        yield Case("half a CPU", {}, [], ["waiting: a quota"], enter, program=COMPUTES, longer=longer)


def measured(hbench, case, path, names):
    words = [hbench, "run", *names, "--rounds", "9", "--sample", "20ms", "-o", path, "--format", "json"]
    words += ["--under", case.under] if case.under else []
    words += ["--directory", case.directory] if case.directory else []
    figures = json.loads(said(words, preexec_fn=case.before))["figures"]
    return {figure["benchmark"]: (figure["operation_ns"], figure["interval_ns"]) for figure in figures}


def moved(plain, slowed):
    """The usual cost, by how much it moved, and half the width of the 95 % interval of that. The plain machine was measured
    before and after: it may have drifted meanwhile."""
    (before, _), (after, _) = plain
    drift = abs(after - before)
    widths = [(most - least) / 2 for _, (least, most) in (*plain, slowed)]
    return (before + after) / 2, slowed[0] - (before + after) / 2, math.hypot(drift, *widths)


def check(arguments, case, work):
    """What was wrong, and what decided nothing."""
    plain = Case("", {}, [], [], directory=case.plain, alike=case.alike)
    # What explains a program needs the speed of user mode, too.
    user = ["cpu.code", "memory.latency/256K", "memory.read/16K", "context-switch/2-processes-0K", "fault.page"]
    names = ["call.null", "call.read-zero/1", "file.fstat", "file.open/hot", "file.create/0K", "file.stat", "file.sync"]
    names += ["file.read-cold", "file.reread/4K", "file.rewrite/4K", "map.anonymous/4K", *user]
    paths = [os.path.join(work, name) for name in ("plain.parquet", "slowed.parquet", "app.vec")]
    again = os.path.join(work, "again.parquet")
    before = measured(arguments.hbench, plain, again, names)
    slowed = measured(arguments.hbench, case, paths[1], names)
    after = measured(arguments.hbench, plain, paths[0], names)
    wrong, undecided = [], []

    def judge(name, least, most, allowed):
        """`allowed`: how wide the interval may be for a result that decides something."""
        usual, by, width = moved((before[name], after[name]), slowed[name])
        verdict = ""
        if not least - width <= by <= most + width:
            verdict = "   WRONG"
            wrong.append(f"{case.name}: {name}")
        elif width > allowed:
            verdict = "   DECIDES NOTHING"
            undecided.append(f"{case.name}: {name}")
        print(f"  {name:20} {usual:12.1f} ns {by:+14.1f} ns ± {width:.1f}   added: {least:.0f} to {most:.0f}{verdict}")

    for name, (least, most) in case.moves.items():
        judge(name, least, most, least)
    for name in case.stays:
        tolerance = 0.15 * before[name][0]
        judge(name, -tolerance, tolerance, 2 * tolerance)
    here = case.plain or work
    record = ["vector", "--runs", "2", "--on", paths[0], "-o", paths[2], "--", "/usr/bin/python3", "-S", "-c", case.program]
    said([arguments.hbench, *record], cwd=here)
    contrast = json.loads(said([arguments.hbench, "explain", *paths, "--format", "json"]))
    top = contrast["parts"][0]
    difference = contrast["b_elapsed_ns"] - contrast["a_elapsed_ns"]
    own = top["b_ns"] - top["a_ns"]
    good = top["name"] in case.names
    print(f"  hbench explain: {top['name']} is {own / difference:.0%} of {difference / MS:+.1f} ms{'' if good else '   WRONG'}")
    wrong += [] if good else [f"{case.name}: explained by {top['name']}"]
    if case.longer:
        ratio = contrast["b_elapsed_ns"] / contrast["a_elapsed_ns"]
        good = case.longer[0] <= ratio <= case.longer[1]
        print(f"  the program takes {ratio:.2f} times as long{'' if good else '   WRONG'}")
        wrong += [] if good else [f"{case.name}: {ratio:.2f} times as long"]
    return wrong, undecided


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hbench", default="target/release/hbench")
    parser.add_argument("--only", default="", help="cases with this in their name")
    arguments = parser.parse_args()
    arguments.hbench = os.path.abspath(arguments.hbench)
    # Mounts and control groups are removed, too, when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wrong, undecided = [], []
    with machines.scratch() as work, contextlib.ExitStack() as stack:
        cases = [
            delayed("openat", 300, "file.open/hot", ["file.fstat"], ["file.open"], work),
            delayed("fsync", 5000, "file.sync/fsync", ["file.fstat"], ["waiting: disk.sync", "file.sync"], work),
            filtered(),
        ]
        for prepared in (halved(), limited_disk(work), in_user_space(work)):
            try:
                cases.append(stack.enter_context(prepared))
            except machines.Missing as missing:
                print(f"known: not tried, missing: {missing}", file=sys.stderr)
        chosen = [case for case in cases if arguments.only in case.name]
        if not chosen:
            sys.exit(f"known: no case has {arguments.only!r} in its name; there are: " + ", ".join(case.name for case in cases))
        for case in chosen:
            print(case.name)
            of_case = check(arguments, case, work)
            wrong += of_case[0]
            undecided += of_case[1]
    if undecided:
        print("known: the machine was too unsteady for: " + "; ".join(undecided), file=sys.stderr)
    if wrong:
        sys.exit("known: wrong: " + "; ".join(wrong))
    sys.exit(3 if undecided else 0)


if __name__ == "__main__":
    main()
