# SPDX-License-Identifier: MIT OR Apache-2.0
"""Six recordings of real programs, each with a cause that is known because it was made, and what is true about each from
other sources: the servers' own statistics, /proc, the shell's `times`, the programs' own clocks.

A recording is `NAME.parquet`, its truth `NAME.json`: names to numbers (times in milliseconds), texts, or lists of texts
of which any is right.
"""

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import signal
import subprocess
import time

from machine import FILES, Machine, answers, free_port, wait_for

# From the start of `debox record` until it monitors: it loads probes.
LOADS_S = 3.0
# How long loads last.
LASTS_S = 5.0
DELAYS = pathlib.Path("/proc/sys/kernel/task_delayacct")

DEADLOCK = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;

static void *transfer(void *unused)
{
	pthread_mutex_lock(&accounts);
	usleep(200000);
	pthread_mutex_lock(&journal);
	return unused;
}

static void *archive(void *unused)
{
	pthread_mutex_lock(&journal);
	usleep(200000);
	pthread_mutex_lock(&accounts);
	return unused;
}

int main(void)
{
	pthread_t one, other;

	getchar();
	pthread_create(&one, 0, transfer, 0);
	pthread_setname_np(one, "transfer");
	pthread_create(&other, 0, archive, 0);
	pthread_setname_np(other, "archive");
	pthread_join(one, 0);
	return 0;
}
"""

# Every fourth request makes a report with another program. The answer is the time that this took, in milliseconds.
SERVICE = """
const http = require('http');
const { execSync } = require('child_process');
http.createServer((request, response) => {
    const began = process.hrtime.bigint();
    if (request.url === '/report') execSync('sleep 0.25');
    response.end(String(Number(process.hrtime.bigint() - began) / 1e6));
}).listen(Number(process.argv[2]), '127.0.0.1');
"""

HOLD = "begin; update stock set n = n + 1 where id = 1; select pg_sleep(2); commit; select pg_sleep(0.3);"
SALE = "update stock set n = n + 1 where id = 1;"


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_ms(pid):
    """Of the first thread."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def disk_ms(pid):
    """How long the first thread waited for block devices: delayacct_blkio_ticks."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[39]) * 10


@contextlib.contextmanager
def delays_counted():
    """The kernel counts the waits for block devices of processes that start meanwhile."""
    before = DELAYS.read_text()
    DELAYS.write_text("1")
    try:
        yield
    finally:
        DELAYS.write_text(before)


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


class Recordings:
    """Makes recordings in the directory `out`, one after the other."""

    def __init__(self, debox, latlab, work, out):
        self.debox, self.latlab, self.work, self.out = debox, latlab, work, out

    def make(self, name):
        """Returns the recording."""
        file = self.out / f"{name}.parquet"
        file.unlink(missing_ok=True)
        truth = getattr(self, name)(file)
        (self.out / f"{name}.json").write_text(json.dumps(truth, indent=1) + "\n")
        return file

    @contextlib.contextmanager
    def recording(self, file, pid):
        """Records a process and its descendants meanwhile."""
        command = [self.debox, "record", "-o", file, "-p", str(pid)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as recorder:
            try:
                time.sleep(LOADS_S)
                yield
                time.sleep(0.2)
            finally:
                recorder.send_signal(signal.SIGINT)
                said = recorder.stderr.read()
        if recorder.returncode:
            raise RuntimeError(f"debox record: {said.strip()}")

    def machine(self, *parts):
        return Machine(self.work / "machine", self.latlab, parts, loads=False)

    def redis(self, file):
        port = free_port()
        directory = self.work / "redis"
        directory.mkdir()
        command = ["redis-server", "--port", str(port), "--dir", str(directory), "--save", "", "--appendonly", "yes"]
        command += ["--appendfsync", "always", "--latency-monitor-threshold", "1"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

        def ask(*words):
            return output("redis-cli", "-p", str(port), *words)

        def log_writes():
            """All writes are answers, one for each command, or go to the log, which is synchronized after each."""
            commands = int(re.search(r"total_commands_processed:(\d+)", ask("info", "stats")).group(1))
            writes = re.search(r"syscw: (\d+)", pathlib.Path(f"/proc/{server.pid}/io").read_text())
            return int(writes.group(1)) - commands

        try:
            wait_for(lambda: answers(port), "redis")
            load = ["redis-benchmark", "-p", str(port), "-t", "set", "-c", "10", "-n", "10000000", "-q"]
            with self.recording(file, server.pid):
                ask("latency", "reset")
                before = log_writes()
                with subprocess.Popen(load, stdout=subprocess.DEVNULL) as client:
                    time.sleep(LASTS_S)
                    client.kill()
                time.sleep(0.2)
                syncs = log_writes() - before
                latest = ask("latency", "latest").split()
            longest = int(latest[latest.index("aof-fsync-always") + 3]) if "aof-fsync-always" in latest else 0
            return {"syncs": syncs, "longest_sync_ms": longest}
        finally:
            server.kill()
            server.wait()
            shutil.rmtree(directory)

    def nginx(self, file):
        with delays_counted(), self.machine("disk", "nginx") as machine:
            [worker] = children(machine.pids["nginx"])
            files = [f"{number}.bin" for number in range(0, FILES, 8)]
            with self.recording(file, machine.pids["nginx"]):
                before = disk_ms(worker), cpu_ms(worker)
                for name in files:
                    get(machine.nginx_port, "/" + name)
                after = disk_ms(worker), cpu_ms(worker)
            return {"disk_ms": after[0] - before[0], "cpu_ms": after[1] - before[1], "file": files}

    def postgres(self, file):
        with self.machine("postgres") as machine:
            binaries = pathlib.Path(f"/proc/{machine.pids['postgres']}/exe").resolve().parent

            def ask(*statements):
                options = [word for statement in statements for word in ("-c", statement)]
                words = [binaries / "psql", *machine.sql_options, "-XAtq", *options, "postgres"]
                return output(*words, **machine.sql_place)

            ask("create table stock (id int primary key, n int)", "insert into stock values (1, 0)")
            ask("alter system set log_lock_waits = on", "alter system set deadlock_timeout = '100ms'")
            ask("select pg_reload_conf()")
            sale = machine.work / "sale.sql"
            sale.write_text(SALE)
            sale.chmod(0o644)
            hold = ["env", "PGAPPNAME=nightly", str(binaries / "psql"), *machine.sql_options, "-Xq", "postgres"]
            hold += 2 * ["-c", HOLD]
            sell = [str(binaries / "pgbench"), *machine.sql_options, "-n", "-c", "3", "-T", "600"]
            sell += ["-f", str(sale), "postgres"]
            who = "select pid from pg_stat_activity where application_name = '{}'"
            with self.recording(file, machine.pids["postgres"]):
                holder = machine.start("nightly", hold, **machine.sql_place)
                time.sleep(0.3)
                seller = machine.start("pgbench", sell, **machine.sql_place)
                time.sleep(1)
                blocker, waiters = ask(who.format("nightly")).split(), ask(who.format("pgbench")).split()
                holder.wait(30)
                seller.terminate()
                seller.wait(30)
            log = (machine.work / "postgres.log").read_text()
            waits = [float(ms) for ms in re.findall(r"acquired \w+ on .* after ([\d.]+) ms", log)]
            return {"blocker": blocker, "waiter": waiters, "longest_wait_ms": max(waits)}

    def build(self, file):
        sources = self.work / "build"
        sources.mkdir()
        functions = {"parser": 6000, **{f"part{number}": 1500 for number in range(5)}}
        for name, number in functions.items():
            each = (f"int {name}_{at}(int x) {{ return x * {at} + (x >> {at % 30}); }}\n" for at in range(number))
            (sources / f"{name}.c").write_text("".join(each))
        rules = "all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n"
        (sources / "Makefile").write_text(rules)
        spent = self.work / "times"
        script = f"make -s -j2 -C {sources}; times >{spent}"
        output(self.debox, "record", "-o", file, "--", "bash", "-c", script, timeout=120)
        # The second line has the children's user and system time.
        parts = re.findall(r"(\d+)m([\d.]+)s", spent.read_text().splitlines()[1])
        # The shell, make, and for each file the compiler's driver, the compiler and the assembler.
        return {
            "cpu_ms": sum(int(minutes) * 60e3 + float(seconds) * 1e3 for minutes, seconds in parts),
            "processes": 2 + 3 * len(functions),
            "slow_file": "parser.c",
        }

    def node(self, file):
        port = free_port()
        source = self.work / "service.js"
        source.write_text(SERVICE)
        service = subprocess.Popen(["node", str(source), str(port)], stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: answers(port), "node")
            stalls = []
            with self.recording(file, service.pid):
                until = time.monotonic() + LASTS_S
                while time.monotonic() < until:
                    for path in ["/", "/", "/", "/report"]:
                        took = float(get(port, path))
                        time.sleep(0.05)
                    stalls.append(took)
            return {"longest_stall_ms": max(stalls), "stalls": len(stalls), "program": "sleep"}
        finally:
            service.kill()
            service.wait()

    def deadlock(self, file):
        source, program = self.work / "deadlock.c", self.work / "deadlock"
        source.write_text(DEADLOCK)
        subprocess.run(["cc", "-D_GNU_SOURCE", "-g", "-O1", "-pthread", "-o", program, source], check=True)
        hung = subprocess.Popen([program], stdin=subprocess.PIPE)
        try:
            with self.recording(file, hung.pid):
                hung.stdin.close()
                time.sleep(LASTS_S)
                tasks = pathlib.Path(f"/proc/{hung.pid}/task").iterdir()
                named = {(task / "comm").read_text().strip(): task.name for task in tasks}
            second = [at for at, line in enumerate(DEADLOCK.splitlines(), 1) if "lock(&journal)" in line][0]
            return {
                "transfer": f"transfer ({named['transfer']})",
                "archive": f"archive ({named['archive']})",
                "line": f"deadlock.c:{second}",
            }
        finally:
            hung.kill()
            hung.wait()
