# SPDX-License-Identifier: MIT OR Apache-2.0
"""What stages.py measures of step 7 (2.5.5): what an application's answer costs the loop that relays it, and the loop that
passes the client's socket on. The application is flash/bench/applications.c."""

import contextlib
import csv
import io
import shutil
import statistics
from pathlib import Path

# The stage that relays, and the first one that does not.
STAGES = ("no-mmap", "direct-cgi")
# Bytes of an answer, and requests for one measurement.
SIZES = {200: 4000, 16 << 10: 4000, 1 << 20: 200}
ROUNDS, CONNECTIONS, PROCESSES = 5, 4, 4
# DeBox records one run of so many times fewer requests.
RECORDED = 4
LOOP = "flash-loop-0"
PROGRAM = "application"
# The loop reads answers of applications into at least so much room, and everything else into less.
ROOM = 32 << 10


def build(run, place):
    """The application. None: something is missing."""
    if not all(map(shutil.which, ("cc", "make"))):
        return None
    here = Path(__file__).resolve().parent
    library = here.parent / "application" / "c"
    run("make", "-C", library, f"OUT={place}", place / "libflash_application.a")
    program = place / PROGRAM
    source, archive = here / "applications.c", place / "libflash_application.a"
    run("cc", "-O2", "-o", program, source, f"-I{library}", archive)
    return program


def configuration(place, stage, program):
    """Writes that of a stage, and returns its file."""
    root = place / f"applications-{stage}"
    root.mkdir(exist_ok=True)
    file = root / "flash.toml"
    file.write_text(
        f'stage = "{stage}"\nloops = 1\n[[server]]\nlisten = ["127.0.0.1:0"]\nroot = "{root}"\n'
        f'[[server.location]]\npath = "/app"\napplication = {{ command = ["{program}"], processes = {PROCESSES} }}\n',
        encoding="ascii",
    )
    return file


def below(pid):
    """A process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            found += below(int(child))
    return found


def threads(pids, name):
    """Their threads of this name."""
    found = []
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text(encoding="ascii").strip() == name:
                found.append(task)
    return found


def cpu_ns(tasks):
    """The processor time that they have taken."""
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks)


class Server:
    """flash in a stage, with its application."""

    def __init__(self, it, urls):
        self.url = urls["serving"]
        pids = below(it.pid)
        self.loop, self.program = threads(pids, LOOP), threads(pids, PROGRAM)

    def ask(self, bench, size, requests):
        """Asks for answers of this size; the processor time of loop and processes for each, in nanoseconds."""
        before = cpu_ns(self.loop), cpu_ns(self.program)
        options = ["-c", str(CONNECTIONS), "-n", str(requests)]
        measured = bench.result(bench.load(bench.latlab, self.url, [f"app?{size}"], *options))
        if measured["ok"] != measured["requests"]:
            bench.fail(f"{measured['requests'] - measured['ok']} answers of the application were wrong")
        after = cpu_ns(self.loop), cpu_ns(self.program)
        return [(end - begin) / measured["requests"] for begin, end in zip(before, after)]


def measure(bench, place):
    """All sizes in both stages. Empty: there is no compiler."""
    program = build(bench.run, place)
    if not program:
        return []
    times = {(stage, size): [] for stage in STAGES for size in SIZES}
    with contextlib.ExitStack() as stack:
        servers = {}
        for stage in STAGES:
            # `started` expects flash below the process that it starts.
            file = configuration(place, stage, program)
            command = ["sh", "-c", '"$@" & wait', "sh", bench.flash, "run", file]
            servers[stage] = Server(*stack.enter_context(bench.started(command)))
            servers[stage].ask(bench, 200, 1000)
        for number in range(ROUNDS):
            for size, requests in SIZES.items():
                # Each goes first in turn.
                for stage in STAGES if number % 2 else reversed(STAGES):
                    times[stage, size].append(servers[stage].ask(bench, size, requests))
    rows = []
    for (stage, size), of_rounds in times.items():
        loop, processes = (sorted(column) for column in zip(*of_rounds))
        rows.append({
            "stage": stage, "size": size, "requests": SIZES[size], "rounds": ROUNDS,
            "loop_ns": statistics.median(loop), "loop_from_ns": loop[0], "loop_to_ns": loop[-1],
            "processes_ns": statistics.median(processes), **calls(bench, place, program, stage, size),
        })
    return rows


def calls(bench, place, program, stage, size):
    """What DeBox says of the loop's calls: processor time of all, and of those that read from the application."""
    rows = place / f"applications-{stage}-{size}.parquet"
    record = [bench.debox, "record", "-o", rows, "--filter", f"comm == {LOOP}", "--"]
    requests = SIZES[size] // RECORDED
    with bench.started([*record, bench.flash, "run", configuration(place, stage, program)]) as (_, urls):
        options = ["-c", str(CONNECTIONS), "-n", str(requests)]
        bench.result(bench.load(bench.latlab, urls["serving"], [f"app?{size}"], *options))
    text = bench.run(bench.debox, "export", "--format", "csv", "-o", "-", rows)
    total = reads = count = 0
    for row in csv.DictReader(io.StringIO(text)):
        cpu = int(row["cpu_ns"] or 0)
        total += cpu
        if row["call"] == "recvfrom" and int(row["arg2"] or 0) >= ROOM:
            reads += cpu
            count += 1
    rows.unlink()
    return {"kernel_ns": total / requests, "reads_ns": reads / requests, "reads": count / requests}
