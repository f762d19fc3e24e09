# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""One run of one suite under one peer, in processes that always end together with it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peers import Peer
from workloads import Suite

RUN_TIMEOUT_S = 120
OPEN_TIMEOUT_S = 20
SETTLE_S = 0.05  # after opening a session beside the run


class Unusable(Exception):
    """The reason why a run failed, or did not measure what it should."""


@dataclass
class Sample:
    times: dict[str, float] = field(default_factory=dict)  # ns per operation
    values: dict[str, float] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)  # minimum number of system calls
    startup_s: float = 0.0  # from the peer's start to the script's
    windup_s: float = 0.0  # from the script's end to the peer's
    note: str | None = None  # what the peer did not see as it should


@contextmanager
def own_group(command: list[str], **options) -> Iterator[subprocess.Popen]:
    """Runs a command in its own process group, and kills what is left of the group."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0, **options
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


@contextmanager
def session_beside(peer: Peer, scratch: Path) -> Iterator[None]:
    """Keeps a session open on a sleeping process, if the peer asks for one."""
    if peer.beside is None:
        yield
        return
    opened, errors = scratch / "opened", scratch / "beside.stderr"
    opened.unlink(missing_ok=True)
    sleeper = ["sh", "-c", f": >'{opened}' && exec sleep 3600"]
    command = [peer.needs, "run", *peer.beside, "--output", "/dev/null", "--", *sleeper]
    with errors.open("w") as stderr, own_group(command, stderr=stderr) as process:
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while not opened.exists():
            if process.poll() is not None:
                raise Unusable(last_line(errors))
            if time.monotonic() > deadline:
                raise Unusable("the session beside did not open")
            time.sleep(0.005)
        time.sleep(SETTLE_S)
        yield
        if process.poll() is not None:
            raise Unusable("the session beside ended early")
        process.terminate()  # debox forwards it to the sleeper, and then reports
        try:
            process.wait(timeout=OPEN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unusable("the session beside did not end") from None


def parse(text: str) -> tuple[Sample, float]:
    """The lines that workloads write (see measure.h), and when the first workload began."""
    sample = Sample()
    started: list[float] = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        name, _, number = rest.rpartition(" ")
        if kind == "start":
            started.append(float(rest) / 1e9)
        elif kind == "time":
            sample.times[name] = float(number)
        elif kind == "value":
            sample.values[name] = float(number)
        elif kind == "made":
            sample.made[name] = sample.made.get(name, 0) + int(number)
    if not started:
        raise Unusable("the workload did not start")
    return sample, started[0]


def check_report(path: Path, made: dict[str, int]) -> str | None:
    """Checks that a session saw all calls; otherwise it would be cheap for the wrong reason.

    Calls that the user tap missed, but whose sleep the kernel saw, count as seen, and are reported.
    """
    report = json.loads(path.read_text())
    seen = {row["name"]: row["calls"] for row in report["syscalls"] if row["name"] != "(user)"}
    if not sum(seen.values()):
        raise Unusable("recorded no calls")
    lost = {what: count for what, count in report["lost"].items() if count}
    if lost:
        raise Unusable("lost " + ", ".join(f"{count:,} {what}" for what, count in lost.items()))
    untapped: dict[str, int] = {}
    for row in report["untapped"]:
        untapped[row["syscall"]] = untapped.get(row["syscall"], 0) + row["count"]
    note = None
    for call, count in made.items():
        tapped = seen.get(call, 0)
        if tapped + untapped.get(call, 0) < count:
            raise Unusable(f"recorded {tapped:,} of {count:,} {call} calls")
        if tapped < count:
            note = f"tapped {tapped:,} of {count:,} {call} calls; the others were seen to sleep"
    return note


def take(peer: Peer, suite: Suite, scratch: Path) -> Sample:
    result, report, errors = (scratch / name for name in ("result", "report", "stderr"))
    for path in (result, report):
        path.unlink(missing_ok=True)
    command = peer.command([str(suite.script), str(result)], suite.processes, report)
    with session_beside(peer, scratch), errors.open("w") as stderr:
        begun = time.monotonic()
        with own_group(command, stderr=stderr) as process:
            try:
                status = process.wait(timeout=RUN_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise Unusable(f"still running after {RUN_TIMEOUT_S} s") from None
        ended = time.monotonic()
    if status or not result.exists():
        raise Unusable(f"exit status {status}: {last_line(errors)}")
    sample, started = parse(result.read_text())
    missing = [name for name in suite.workloads if name not in sample.times]
    if missing:
        raise Unusable(f"{missing[0]} was not measured: {last_line(errors)}")
    if peer.reports:
        sample.note = check_report(report, sample.made)
    sample.startup_s = started - begun
    sample.windup_s = ended - result.stat().st_mtime_ns / 1e9 + clock_offset()
    return sample


def clock_offset() -> float:
    """The offset from the clock of file times to the monotonic clock."""
    return time.time() - time.monotonic()
