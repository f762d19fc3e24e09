#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Serves a slow disk with each stage of Flash's history, and has DeBox say in which calls the event loop waits for it.

As root; some three minutes on a machine that does nothing else:

    sudo python3 flash/bench/stages.py -o stages

The files take twice the memory that the server may use, so the kernel takes names and bytes away all the time, as in the
thesis. `latlab` puts two loads on the server at once: requests for 16 hot files at a fixed rate, and 16 connections that
ask for all files, some of them often. `debox guard` watches the loop. Each stage is measured as the owner of the files and as another
user (nobody), to which mincore and cachestat report nothing. Then two stages start scripts while many files are mapped, and
`debox record` has the time of each fork. At last an application answers in the stage before direct-cgi and in this one;
measured is what an answer costs the loop. That takes cc and make.

The new directory gets stages.json and stages.txt. `--from stages.json` shows what was measured before.

Exit status: 0 if each stage waited only in calls that it names (`flash stages`), 1 if not, 2 if it could not be measured.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import math
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import stages_applications
import stages_page
from programs import fail, mounted, run, started

HOT, HOT_SIZE, HOT_RATE = 16, 8 << 10, 200
COLD, COLD_SIZE, COLD_CONNECTIONS = 600, 96 << 10, 16
MEMORY = (16 << 20) + COLD * COLD_SIZE // 2
# Files are asked for as often as in a list by popularity (Zipf), drawn with this seed.
DRAWS, SEED = 20_000, 1
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.mlock.argtypes = LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SCRIPTS, MAPPED, MAPPED_SIZE = 60, 2000, 1 << 20


@contextlib.contextmanager
def slow_disk(latlab, place, service):
    """A disk with the files, mounted; its name."""
    files = place / "files"
    for number in range(COLD):
        # The names of one directory are read together.
        directory = files / f"cold{number}"
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(os.urandom(COLD_SIZE))
    for number in range(HOT):
        (files / f"hot{number}").write_bytes(os.urandom(HOT_SIZE))
    (place / "root").mkdir()
    place.chmod(0o755)
    name = f"flash-stages-{os.getpid()}"
    speed = ["--service", service, "--sequential", service, "--no-check"]
    with mounted(latlab, name, files, place / "root", *speed):
        yield name


@contextlib.contextmanager
def group(memory):
    """A control group with so much memory; the file that takes its processes."""
    root = Path("/sys/fs/cgroup")
    try:
        if (root / "cgroup.controllers").exists():
            (root / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            parent, limit = root, "memory.max"
        else:
            parent, limit = root / "memory", "memory.limit_in_bytes"
        directory = parent / f"flash-stages-{os.getpid()}"
        directory.mkdir()
        (directory / limit).write_text(str(memory), encoding="ascii")
    except OSError as error:
        fail(f"cannot limit the server's memory: that takes root and the control group of memory: {error}")
    try:
        yield directory / "cgroup.procs"
    finally:
        for _ in range(200):
            with contextlib.suppress(OSError):
                directory.rmdir()
                break
            time.sleep(0.05)


def load(latlab, url, names, *options):
    """Starts latlab for these names."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as urls:
        urls.write("".join(f"/{name}\n" for name in names))
    command = [latlab, "run", url, "--urls", urls.name, "--max-lateness", "1s", "--format", "json", *options]
    it = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return it, urls.name


def result(started_load):
    """What latlab measured."""
    it, urls = started_load
    out, errors = it.communicate()
    os.unlink(urls)
    if it.returncode not in (0, 3) or not out:
        fail(f"latlab run: {errors.strip()}")
    return json.loads(out)


def percentile(sorted_values, share):
    """The value that so many of the sorted values do not exceed."""
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


@contextlib.contextmanager
def hot_in_memory(root):
    """Keeps names and bytes of the hot files in memory, whatever is taken away from the server."""
    with contextlib.ExitStack() as kept:
        for number in range(HOT):
            file = kept.enter_context(open(root / f"hot{number}", "rb"))
            address = LIBC.mmap(None, HOT_SIZE, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
            kept.callback(LIBC.munmap, address, HOT_SIZE)
            if LIBC.mlock(address, HOT_SIZE) != 0:
                fail("cannot keep the hot files in memory (mlock)")
        yield


def waits(violations):
    """By call and by what it waited for: how often and how long."""
    groups = collections.defaultdict(list)
    for violation in violations:
        groups[violation["syscall"], violation["label"], violation["class"]].append(violation["blocked_ns"])
    rows = []
    for (call, label, kind), times in sorted(groups.items(), key=lambda pair: -sum(pair[1])):
        times.sort()
        rows.append({
            "call": call, "label": label, "class": kind, "count": len(times),
            "p99_ns": percentile(times, 0.99), "max_ns": times[-1], "sum_ns": sum(times),
        })
    return rows


def measure(options, disk, place, stage, user, procs):
    """One stage under the guard."""
    latlab = options.latlab
    # A disk at full speed fills the memory; the measurement begins with a slow one.
    run(latlab, "disk", "cool", disk)
    run(latlab, "disk", "set", disk, "--service", "0ms", "--sequential", "0ms", "--bandwidth", "0")
    verdict = place / "verdict.json"
    serve = [
        os.path.abspath(options.flash), "serve", place / "root", "--listen", "127.0.0.1:0", "--loops", "1",
        "--stage", stage, "--open-files", "64", "--assumed-memory", str(MEMORY // 2),
    ]
    if user:
        serve += ["--user", user]
    inside = ["sh", "-c", f"echo $$ > {procs} && exec \"$@\"", "sh", *serve]
    guard = [options.debox, "guard", "--format", "json", "-o", verdict, "--for", "600s", "--", *inside]
    hot = [f"hot{number}" for number in range(HOT)]
    cold = [f"cold{number}/file" for number in range(COLD)]
    popular = random.Random(SEED).choices(cold, [1 / (rank + 1) for rank in range(COLD)], k=DRAWS)
    with hot_in_memory(place / "root"), started(guard) as (_, urls):
        url = urls["serving"]
        result(load(latlab, url, cold, "-c", "8", "-n", str(COLD)))
        result(load(latlab, url, hot, "-c", "1", "-n", str(HOT * 4)))
        speed = ["--service", options.service, "--sequential", options.service]
        run(latlab, "disk", "set", disk, *speed)
        began = time.monotonic_ns()
        seconds = f"{options.seconds}s"
        loads = [
            load(latlab, url, hot, "--rate", str(HOT_RATE), "-d", seconds),
            load(latlab, url, popular, "-c", str(COLD_CONNECTIONS), "-d", seconds),
        ]
        of_hot, of_cold = (result(it) for it in loads)
        ended = time.monotonic_ns()
    run(latlab, "disk", "set", disk, "--service", "0ms", "--sequential", "0ms", "--bandwidth", "0")
    found = json.loads(verdict.read_text(encoding="utf-8"))
    during = [it for it in found["violations"] if began <= it["monotonic_ns"] <= ended]
    return {
        "stage": stage, "user": user, "doubts": found["doubts"], "waits": waits(during),
        "hot": figures(of_hot), "cold": figures(of_cold),
    }


def figures(measured):
    """Of one load: good replies per second, and latency from when a request was due."""
    latency = measured["latency_from_intended"] or {}
    found = {name: latency.get(name) for name in ("p50_ns", "p99_ns", "max_ns")}
    return {"per_second": measured["throughput_rps"], "failed": measured["requests"] - measured["ok"], **found}


def scripts(options, place, stage):
    """The time of the loop's call that starts a script, while many files are mapped."""
    directory = place / f"scripts-{stage}"
    for name in ("root", "cgi"):
        (directory / name).mkdir(parents=True)
    for number in range(MAPPED):
        with open(directory / "root" / str(number), "wb") as file:
            file.truncate(MAPPED_SIZE)
    script = directory / "cgi" / "script"
    script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nhello'\n", encoding="ascii")
    script.chmod(0o755)
    # Without the sandbox in both, which the stage that forks cannot have.
    config = directory / "flash.toml"
    config.write_text(
        f'stage = "{stage}"\nsandbox = false\nloops = 1\nopen_files = {{ most = {MAPPED * 2}, check = "10m" }}\n'
        '[[server]]\nlisten = ["127.0.0.1:0"]\nroot = "root"\n'
        '[[server.location]]\npath = "/cgi"\ncgi = { root = "cgi" }\n',
        encoding="ascii",
    )
    rows = directory / "forks.parquet"
    # In the loop only: the small process forks, too.
    only = "comm == flash-loop-0 && (syscall == clone || syscall == clone3 || syscall == sendmsg)"
    record = [options.debox, "record", "-o", rows, "--filter", only, "--"]
    with started([*record, os.path.abspath(options.flash), "run", config]) as (_, urls):
        files = [str(number) for number in range(MAPPED)]
        result(load(options.latlab, urls["serving"], files, "-c", "4", "-n", str(MAPPED)))
        result(load(options.latlab, urls["serving"], ["cgi/script"], "-c", "1", "-n", str(SCRIPTS)))
    report = json.loads(run(options.debox, "report", "--json=-", rows))
    calls = [
        {"call": call["name"], "count": call["count"], "p50_ns": call["median_ns"], "max_ns": call["max_ns"]}
        for call in report["calls"]
    ]
    return {"stage": stage, "calls": calls}


def applications(options, place):
    """What the answer of an application costs the loop, before and with direct-cgi."""
    print("applications ...", file=sys.stderr)
    bench = types.SimpleNamespace(
        flash=os.path.abspath(options.flash), debox=options.debox, latlab=options.latlab,
        run=run, fail=fail, started=started, load=load, result=result,
    )
    rows = stages_applications.measure(bench, place)
    if not rows:
        print("applications were not measured: that takes cc and make", file=sys.stderr)
    return rows


def claims(found, known):
    """What a stage waited for and does not name, by stage."""
    wrong = []
    for row in found["stages"]:
        named = set(known[row["stage"]]["calls"])
        for wait in row["waits"]:
            if wait["class"] == "disk" and wait["call"] not in named:
                wrong.append(f"{row['stage']} as {row['user'] or 'root'}: {wait['call']} waited {wait['count']} times")
    return wrong


def main():
    """Measures all stages, or shows what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="stages", help="new directory for what is measured")
    parser.add_argument("--from", dest="kept", metavar="FILE", help="stages.json of an earlier measurement")
    for name in ("flash", "debox", "latlab"):
        parser.add_argument(f"--{name}", default=f"target/release/{name}")
    parser.add_argument("--service", default="5ms", help="time that the disk takes for each request")
    parser.add_argument("--seconds", type=int, default=8, help="of each measurement")
    parser.add_argument("--stage", action="append", help="only this one; can be given more than once")
    parser.add_argument("--applications", action="store_true", help="only what an application's answer costs the loop")
    options = parser.parse_args()
    if options.kept:
        found = json.loads(Path(options.kept).read_text(encoding="utf-8"))
    else:
        found = measure_all(options)
    known = {stage["name"]: stage for stage in found["known"]}
    page = stages_page.page(found, known)
    print(page)
    if not options.kept:
        Path(options.output, "stages.txt").write_text(page + "\n", encoding="utf-8")
    wrong = claims(found, known)
    for line in wrong:
        print(f"not named by the stage: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def measure_all(options):
    """Each stage as each user; the result is in the new directory, too."""
    if os.geteuid() != 0:
        fail("it takes root: a slow disk is mounted, and DeBox loads probes")
    try:
        os.mkdir(options.output)
    except OSError as error:
        fail(f"cannot make {options.output}: {error.strerror}")
    known = json.loads(run(options.flash, "stages", "--format", "json"))["stages"]
    names = options.stage or [stage["name"] for stage in known]
    found = {"schema": "flash.stages-measured/1", "known": known, "service": options.service, "stages": []}
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="flash-stages-") as directory:
        place = Path(directory)
        if options.applications:
            found["applications"] = applications(options, place)
            return keep(options, found)
        with slow_disk(options.latlab, place, options.service) as disk:
            for name in names:
                for user in (None, "nobody"):
                    print(f"{name} as {user or 'root'} ...", file=sys.stderr)
                    with group(MEMORY) as procs:
                        found["stages"].append(measure(options, disk, place, name, user, procs))
        found["scripts"] = [scripts(options, place, name) for name in ("fd-passing", "fork-helper")]
        found["applications"] = applications(options, place)
    return keep(options, found)


def keep(options, found):
    """Writes what was measured to the new directory."""
    text = json.dumps(found, indent=1)
    Path(options.output, "stages.json").write_text(text + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    main()
