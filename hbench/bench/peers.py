#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same quantity by hbench and by its peers, in turn: medians, the ratio with its 95 % interval, and the spread of both.

    python3 hbench/bench/peers.py --hbench target/release/hbench [--lmbench DIR] [--lebench FILE] [--rounds 9] [--only NAME...]

Without further options the peer is `perf bench`, which takes a minute. All run on the same CPU. The others are built
outside of this repository:

    git clone https://github.com/intel/lmbench && cd lmbench/src                    # --lmbench lmbench/bin/x86_64-linux-gnu
    gcc -O2 -w -std=gnu89 -I/usr/include/tirpc -D_POSIX_SELECT -DHAVE_RAND -DHAVE_RANDOM -DHAVE_DRAND48 \
        -o ../bin/x86_64-linux-gnu/NAME NAME.c lib_*.c getopt.c -ltirpc -lm
    cp ../bin/x86_64-linux-gnu/hello /tmp/hello                                     # what lat_proc starts
    git clone https://github.com/LinuxPerfStudy/LEBench && cd LEBench/TEST_DIR
    sed 's/sleep(60)/sleep(0)/; s/BASE_ITER 10000/BASE_ITER 200/; s|"/TEST_DIR/|"./|' OS_Eval.c > shorter.c
    gcc -O0 -pthread -o OS_Eval shorter.c                                           # --lebench LEBench/TEST_DIR/OS_Eval

LEBench is shortened: with its own counts it takes hours. A program that measures several rows runs once in a round.
`docs/peers.md` explains the differences.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

US = 1e3
MEGABYTES_2 = 2 << 20


# What takes longer, or prints or writes more, has no result.
PATIENCE_S = 60
OUTPUT_MAX = 64 << 20


def words(command, lmbench, **options):
    """What a command prints; an error says what it was."""
    bound = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_MAX, OUTPUT_MAX))
    # lmbench reports on standard error.
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            command, stdout=printed, stderr=printed, start_new_session=True, preexec_fn=bound, **options
        )
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return f"{' '.join(command)} did not end within {PATIENCE_S} s"
        finally:
            # Some of lmbench's programs end before their children, which then print errors without end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    # Some of lmbench's programs end with any status; its result is looked for in what they print.
    if child.returncode != 0 and not lmbench:
        sys.exit(f"peers: {' '.join(command)} failed: {text.strip()}")
    return text


def by_hbench(program, row):
    """Nanoseconds of an operation, or of a byte; or how many times as long the one is as the other."""
    command = [program, "run", *row.benchmarks, "--rounds", "1", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    figures = {one["benchmark"]: one for one in json.loads(done.stdout or '{"figures": []}')["figures"]}
    for name in row.benchmarks:
        if name not in figures:
            sys.exit(f"peers: hbench has no {name}: {done.stderr.strip()}")
    found = [figures[name]["operation_ns"] / (figures[name]["bytes"] if row.per_byte else 1) for name in row.benchmarks]
    return found[0] / found[1] if len(found) == 2 else found[0]


def found(row, printed):
    """The peer's number, or None: lmbench leaves out what its own calibration makes zero or less, and prints some as 0."""
    match = re.search(row.pattern, printed)
    if not match:
        end = printed.strip().splitlines()[-1:] or ["nothing"]
        print(f"peers: {row.peer} printed no result for {row.benchmark}: {end[0][:100]}", file=sys.stderr)
        return None
    number = float(match.group(1))
    return row.to_ns(number) if number > 0 else None


USECS = r"([0-9.]+) usecs/op"
MICROSECONDS = r": ([0-9.]+) microseconds"


# Of lmbench's server.
SOCKET = "/tmp/af_unix"


class Row:
    """`benchmark`: a name, or two, `a : b`, of which the ratio is compared. `command`: words after the peer's own; `to_ns`: of
    the number that the pattern finds; `served`: it needs its server; `per_byte`: times are of a byte, as the sizes differ."""

    def __init__(self, peer, benchmark, command, pattern=MICROSECONDS, to_ns=lambda us: us * US, served=False, per_byte=False):
        self.peer = peer
        self.benchmark = benchmark
        # Two programs of a peer may measure the same.
        self.name = (peer, command if isinstance(command, str) else command[0], benchmark)
        self.benchmarks = benchmark.split(" : ")
        self.command = command
        self.pattern = pattern
        self.to_ns = to_ns
        self.served = served
        self.per_byte = per_byte


def of_perf():
    # Its gigabyte is 2^30 bytes.
    rate = lambda per_s: MEGABYTES_2 / (per_s * (1 << 30)) * 1e9
    copy = ["bench", "mem", "memcpy", "-s", "2MB", "-l", "400", "-f", "default"]
    pipe = ["bench", "sched", "pipe", "-l", "100000"]
    return [
        Row("perf", "call.null", ["bench", "syscall", "basic"], USECS),
        Row("perf", "pipe.latency/one-cpu", pipe, USECS),
        Row("perf", "memory.copy-library/4M", copy, r"([0-9.]+) GB/sec", rate),
    ]


def lm(benchmark, *command, **more):
    return Row("lmbench", benchmark, command, **more)


def rate(size):
    """Of a transfer of so many bytes; lmbench's megabyte is 10^6 bytes."""
    return {"pattern": r"[0-9.]+ ([0-9.]+)", "to_ns": lambda per_s: size / (per_s * 1e6) * 1e9}


ONCE = ["-N", "1"]


def of_lmbench(file, long_file):
    """`file`: of 1 MiB, which lmbench opens and reads; `long_file`: of 8 MiB."""
    latency = {"pattern": r"\n0\.00781 ([0-9.]+)", "to_ns": lambda ns: ns}
    return [
        lm("call.null", "lat_syscall", *ONCE, "null"),
        lm("call.read-zero/1", "lat_syscall", *ONCE, "read"),
        lm("call.write-null/1", "lat_syscall", *ONCE, "write"),
        lm("file.stat/hot", "lat_syscall", *ONCE, "stat", file),
        lm("file.fstat", "lat_syscall", *ONCE, "fstat", file),
        lm("file.open/hot", "lat_syscall", *ONCE, "open", file),
        lm("file.lock-handover/one-cpu", "lat_fcntl", *ONCE),
        lm("signal.install", "lat_sig", *ONCE, "install"),
        lm("signal.deliver", "lat_sig", *ONCE, "catch"),
        lm("select.descriptors/10", "lat_select", *ONCE, "-n", "10", "file"),
        lm("select.descriptors/tcp-10", "lat_select", *ONCE, "-n", "10", "tcp"),
        lm("pipe.latency/one-cpu", "lat_pipe", *ONCE),
        lm("fifo.latency/one-cpu", "lat_fifo", *ONCE),
        lm("unix.latency/one-cpu", "lat_unix", *ONCE),
        lm("unix.connect", "lat_unix_connect", *ONCE, served=True),
        # A round trip has two of what it counts.
        lm("semaphore.latency/one-cpu", "lat_sem", *ONCE, to_ns=lambda us: 2 * us * US),
        lm("process.fork/small", "lat_proc", *ONCE, "fork"),
        lm("process.exec/dynamic", "lat_proc", *ONCE, "exec"),
        lm("cpu.operation/function-call", "lat_proc", *ONCE, "procedure"),
        lm("context-switch-with-working-set/2-processes-0K", "lat_ctx", *ONCE, "-s", "0", "2", pattern=r"\n2 ([0-9.]+)"),
        lm("context-switch-with-working-set/8-processes-16K", "lat_ctx", *ONCE, "-s", "16", "8", pattern=r"\n8 ([0-9.]+)"),
        lm("fault.page/file-in-disorder", "lat_pagefault", *ONCE, file),
        lm("memory.latency/16K", "lat_mem_rd", *ONCE, "1", "64", **latency),
        lm("memory.other-page/memory", "lat_dram_page", *ONCE, "-M", "128m", pattern=r"([0-9.]+)", to_ns=lambda ns: ns),
        lm("memory.translation/128-pages", "tlb", "-c", *ONCE, pattern=r"pages ([0-9.]+)", to_ns=lambda ns: ns),
        *bandwidths(file, long_file),
        *sleeps(),
        *files(),
        *operations(),
    ]


def bandwidths(file, long_file):
    rows = []
    for benchmark, mode, size in [
        ("memory.read/256K", "frd", 256),
        ("memory.write/256K", "fwr", 256),
        ("memory.copy/256K", "fcp", 128),
        ("memory.clear/256K", "bzero", 256),
        ("memory.copy-library/256K", "bcopy", 128),
        ("memory.strided/read-256K", "rd", 256),
        ("memory.strided/write-256K", "wr", 256),
        ("memory.strided/read-write-256K", "rdwr", 256),
        ("memory.strided/copy-256K", "cp", 128),
    ]:
        rows.append(lm(benchmark, "bw_mem", *ONCE, f"{size}k", mode, **rate(size << 10)))
    for version, loops in [("1", ["copy", "scale", "add", "triad"]), ("2", ["fill", "daxpy", "sum"])]:
        for loop in loops:
            per_byte = {"per_byte": True, "to_ns": lambda per_s: 1e3 / per_s}
            pattern = rf"{loop} bandwidth: ([0-9.]+)"
            rows.append(lm(f"memory.stream/{loop}", "stream", *ONCE, "-M", "128m", "-v", version, pattern=pattern, **per_byte))
    for benchmark, name, mode, of, size in [
        ("file.reread/64K", "bw_file_rd", "io_only", long_file, 64 << 10),
        ("file.reread/64K-open-to-close", "bw_file_rd", "open2close", long_file, 64 << 10),
        ("map.reread/mapped", "bw_mmap_rd", "mmap_only", long_file, 4 << 20),
        ("map.reread/open-to-close", "bw_mmap_rd", "open2close", long_file, 4 << 20),
    ]:
        whole = "8m" if name == "bw_file_rd" else "4m"
        rows.append(lm(benchmark, name, *ONCE, whole, mode, of, **rate(size)))
    for benchmark, name in [("pipe.bandwidth/64K", "bw_pipe"), ("unix.bandwidth/64K", "bw_unix")]:
        per_s = {**rate(64 << 10), "pattern": r"bandwidth: ([0-9.]+)"}
        rows.append(lm(benchmark, name, *ONCE, "-m", "64k", **per_s))
    return rows


def sleeps():
    late = {"pattern": r"microseconds: ([0-9.]+) microseconds", "to_ns": lambda us: (us - 100) * US}
    methods = [("100us", "nanosleep"), ("select-100us", "select"), ("pselect-100us", "pselect"), ("itimer-100us", "itimer")]
    return [lm(f"timer.late/{variant}", "lat_usleep", "-u", method, *ONCE, "100", **late) for variant, method in methods]


def files():
    """What is created, and what is removed, in a second."""
    rows = []
    for size in [0, 1, 4, 10]:
        for what, pattern in [("create", rf"\b{size}k\t\d+\t(\d+)"), ("remove", rf"\b{size}k\t\d+\t\d+\t(\d+)")]:
            rows.append(lm(f"file.many/{what}-{size}K", "lat_fs", *ONCE, ".", pattern=pattern, to_ns=lambda per_s: 1e9 / per_s))
    return rows


def operations():
    rows = [lm("cpu.operation/integer-add", "mhz", pattern=r"([0-9.]+) nanosec clock", to_ns=lambda ns: ns)]
    rows += [
        lm(f"library.random/{name}", "lat_rand", *ONCE, pattern=rf"\b{name} latency: ([0-9.]+)", to_ns=lambda ns: ns)
        for name in ["drand48", "lrand48", "rand", "random"]
    ]
    words_of = {"bit": "bit", "add": "add", "multiply": "mul", "divide": "div", "modulo": "mod"}
    kinds = {"integer32": "integer", "integer": "int64", "float": "float", "double": "double"}
    for kind, theirs in kinds.items():
        for operation, word in words_of.items():
            if "integer" not in kind and operation in ["bit", "modulo"]:
                continue
            pattern = rf"{theirs} {word}: ([0-9.]+)"
            rows.append(lm(f"cpu.operation/{kind}-{operation}", "lat_ops", *ONCE, pattern=pattern, to_ns=lambda ns: ns))
            if kind != "integer32":
                both = f"cpu.operation/{kind}-{operation} : cpu.parallel/{kind}-{operation}"
                pattern = rf"{theirs} {word} parallelism: ([0-9.]+)"
                rows.append(lm(both, "par_ops", *ONCE, pattern=pattern, to_ns=lambda times: times))
    for kind in ["float", "double"]:
        pattern = rf"{kind} bogomflops: ([0-9.]+)"
        rows.append(lm(f"cpu.parallel/{kind}-formula", "lat_ops", *ONCE, pattern=pattern, to_ns=lambda ns: ns))
    both = "memory.latency/256K : memory.parallel/256K-8-chains"
    rows.append(lm(both, "par_mem", "-L", "128", *ONCE, "-M", "256k", pattern=r"0\.262144 ([0-9.]+)", to_ns=lambda times: times))
    return rows


SIZES = {"small": "4K", "mid": "40K", "big": "4000K", "huge": "40000K"}
# Divisions of a run of its row `cpu`.
DIVISIONS = 500_000


def of_lebench():
    """One run of LEBench has all of them. Its rows are times of single calls, of which `ref` takes the clock's part."""
    le = lambda benchmark, row: Row("LEBench", benchmark, row)
    rows = [
        le("call.null", "getpid"),
        le("cpu.operation/double-divide", "cpu"),
        le("pipe.latency/one-cpu", "context siwtch"),
        le("unix.one-way/send-1", "send"),
        le("unix.one-way/receive-1", "recv"),
        le("unix.one-way/send-96000", "big send"),
        le("unix.one-way/receive-96000", "big recv"),
        le("process.fork-call/small", "fork"),
        le("process.fork-call/6000-areas", "big fork"),
        le("process.fork-call/12000-areas", "huge fork"),
        le("thread.create", "thr create"),
        le("fault.page/file", "small page fault"),
    ]
    for theirs, size in SIZES.items():
        rows += [
            le(f"file.rewrite/{size}", f"{theirs} write"),
            le(f"file.read-call/{size}", f"{theirs} read"),
            le(f"map.calls/map-{size}", f"{theirs} mmap"),
            le(f"map.calls/unmap-{size}", f"{theirs} munmap"),
            le(f"map.calls/access-{size}", f"{theirs} page fault"),
        ]
    for name in ["select", "poll", "epoll"]:
        rows += [le(f"{name}.descriptors/10", name), le(f"{name}.descriptors/1000", f"{name} big")]
    return rows


def run_lebench(program, cpu, work):
    """Its averages by row, in ns, without what reading the clock takes. Its other column has the smallest cluster of times."""
    command = ["taskset", "-c", str(cpu), program, "0", "peers"]
    with open(os.devnull, "wb") as nothing:
        environment = {**os.environ, "LEBENCH_DIR": f"{work}/"}
        # Its children end by SIGINT, which they send to themselves. Where that is ignored, as in the background of a shell, each
        # goes on to fork children of its own, until the machine has no room for more.
        awake = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        done = subprocess.run(
            command, cwd=work, env=environment, stdout=nothing, stderr=nothing, check=False, preexec_fn=awake
        )
    if done.returncode != 0:
        sys.exit(f"peers: LEBench ended with status {done.returncode}")
    with open(os.path.join(work, "output.peers.csv"), encoding="utf-8") as file:
        rows = re.findall(r"^ *(.+?) +average:,([0-9.]+)", file.read(), re.MULTILINE)
    mean = {name: float(seconds) * 1e9 for name, seconds in rows if not name.endswith("Child")}
    mean["cpu"] = (mean["cpu"] - mean["ref"]) / DIVISIONS
    single = {"ref", "context siwtch", "cpu"}
    return {name: ns - (0 if name in single else mean["ref"]) for name, ns in mean.items()}


def interval(own, other):
    """95 % interval of the ratio of the medians, by a bootstrap over pairs."""
    draws = random.Random(18)
    pairs = list(zip(own, other))
    ratios = []
    for _ in range(2000):
        drawn = draws.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(a for a, _ in drawn) / statistics.median(b for _, b in drawn))
    ratios.sort()
    return ratios[50], ratios[-51]


def spread(values):
    quarters = statistics.quantiles(values, n=4)
    return (quarters[2] - quarters[0]) / statistics.median(values)


def digits(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def table(measured):
    lines = [
        "| benchmark | peer | hbench ns | spread | peer ns | spread | ratio | 95 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lower = total = 0
    rounds = max((len(own) for own, _ in measured.values()), default=0)
    missing = []
    for (peer, program, benchmark), (own, other) in measured.items():
        if len(own) < rounds:
            missing.append(f"{peer} ({program}) has no result for {benchmark} in {rounds - len(own)} of {rounds} rounds.")
        if len(own) < 2:
            continue
        low, high = interval(own, other)
        a, b = statistics.median(own), statistics.median(other)
        lower += spread(own) <= spread(other)
        total += 1
        same = "" if low <= 1 <= high or abs(a / b - 1) < 0.05 else " *"
        lines.append(
            f"| {benchmark} | {peer} | {digits(a)} | {spread(own):.0%} | {digits(b)} | {spread(other):.0%} | {a / b:.2f}{same} | "
            f"{low:.2f} to {high:.2f} |"
        )
    lines += ["", f"hbench has the lower spread in {lower} of {total} rows. *: another answer.", *missing]
    return "\n".join(lines)


def take(pair, own, other):
    if other is not None:
        pair[0].append(own)
        pair[1].append(other)


def write(path, measured):
    rows = [
        {"peer": peer, "program": program, "benchmark": benchmark, "hbench_ns": own, "peer_ns": other}
        for (peer, program, benchmark), (own, other) in measured.items()
    ]
    pathlib.Path(path).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def read(paths):
    """Of a row that several files have, what the last one has."""
    rows = [row for path in paths for row in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))]
    return {(row["peer"], row["program"], row["benchmark"]): (row["hbench_ns"], row["peer_ns"]) for row in rows}


@contextlib.contextmanager
def server(command):
    """lmbench's server, which goes into the background with `-s` and ends with `-S`."""
    pathlib.Path(SOCKET).unlink(missing_ok=True)
    # Not to a pipe, which the server would keep open.
    subprocess.run([*command, "-s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    try:
        until = time.monotonic() + 5
        while not os.path.exists(SOCKET):
            if time.monotonic() > until:
                sys.exit(f"peers: {command[-1]} -s does not serve {SOCKET}")
            time.sleep(0.01)
        # It is bound, and will listen soon.
        time.sleep(0.1)
        yield
    finally:
        subprocess.run([*command, "-S"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def prepared():
    with tempfile.TemporaryDirectory(prefix="hbench-peers.") as work:
        # As many directories down as hbench's own: each takes part of the time to find the file.
        below = os.path.join(work, "sample-0", "some", "directories", "down")
        os.makedirs(below)
        paths = [os.path.join(below, "file"), os.path.join(work, "long-file")]
        for path, size in zip(paths, [1 << 20, 8 << 20]):
            with open(path, "wb") as file:
                file.write(bytes(size))
        yield work, *paths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hbench", default="target/release/hbench")
    parser.add_argument("--lmbench", help="directory of its programs")
    parser.add_argument("--lebench", help="its program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="rows whose benchmark's name begins so")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no round after so long")
    parser.add_argument("--samples", metavar="FILE", help="write what was measured here, after each round")
    parser.add_argument("--from", dest="earlier", nargs="+", metavar="FILE", help="only the table of what was written")
    arguments = parser.parse_args()
    if arguments.earlier:
        print(table(read(arguments.earlier)))
        return
    # How long lmbench has to measure for, in us. It would find that out at each start, which takes half a minute; its own
    # scripts find it out once, and pass it on like this.
    os.environ.setdefault("ENOUGH", "10000")
    # As hbench chooses it.
    cpu = max(os.sched_getaffinity(0))
    with prepared() as (work, file, long_file):
        named = lambda rows: [row for row in rows if row.benchmark.startswith(tuple(arguments.only))]
        rows = named(of_perf() + (of_lmbench(file, long_file) if arguments.lmbench else []))
        lebench = named(of_lebench() if arguments.lebench else [])
        measured = {row.name: ([], []) for row in rows + lebench}
        begun = time.monotonic()
        for at in range(arguments.rounds):
            if at > 1 and time.monotonic() - begun > arguments.seconds:
                break
            print(f"peers: round {at + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
            printed = {}
            for row in rows:
                name, *options = row.command
                lmbench = row.peer == "lmbench"
                program = [os.path.abspath(f"{arguments.lmbench}/{name}")] if lmbench else ["perf", name]
                start = ["taskset", "-c", str(cpu), *program]
                command = (*start, *options)
                if command not in printed:
                    with server(start) if row.served else contextlib.nullcontext():
                        printed[command] = words(command, lmbench, cwd=work)
                take(measured[row.name], by_hbench(arguments.hbench, row), found(row, printed[command]))
            means = run_lebench(os.path.abspath(arguments.lebench), cpu, work) if lebench else {}
            for row in lebench:
                # Less than what reading the clock takes is nothing.
                other = means[row.command] if means[row.command] > 0 else None
                take(measured[row.name], by_hbench(arguments.hbench, row), other)
            if arguments.samples:
                write(arguments.samples, measured)
    print(table(measured))


if __name__ == "__main__":
    main()
