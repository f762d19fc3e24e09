# SPDX-License-Identifier: MIT OR Apache-2.0
"""Histories as others read them: DuckDB, with the queries of debox/docs/history.md."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb

DOCS = Path(__file__).resolve().parents[2] / "docs" / "history.md"


def one(query):
    """The only row of an answer."""
    return duckdb.sql(query).fetchall()[0]


def meta(path):
    found = duckdb.sql(f"SELECT value FROM parquet_kv_metadata('{path}') WHERE key = 'debox.history'")
    return json.loads(found.fetchall()[0][0])


def test_every_call_is_there_once(record, programs):
    path, _ = record(programs("count"))
    calls, first, last = one(
        f"SELECT count(*), min(ordinal), max(ordinal) FROM '{path}' WHERE call != '(user)'"
    )
    described = meta(path)
    assert (first, last - first + 1) == (1, calls + described["lost"]["records"])
    found = one(f"SELECT count(*) FROM '{path}' WHERE call = 'getppid'")[0]
    assert 10_000 - described["lost"]["records"] <= found <= 10_000
    assert described["complete"]


def test_the_parts_of_each_call_add_up(record):
    path, _ = record("tar", "cf", "/dev/null", "/usr/include/linux")
    wrong = one(
        f"""SELECT count(*) FROM '{path}' WHERE wall_ns != cpu_ns + blocked_ns + runqueue_ns
            + preempted_ns + coalesce(irq_ns, 0)"""
    )
    assert wrong == (0,)
    # Calls of a thread follow each other; sleeps lie inside their call and are its blocked time.
    assert one(
        f"""SELECT count(*) FROM (SELECT epoch_ns(time) AS begins, lag(epoch_ns(time) + wall_ns)
            OVER (PARTITION BY tid ORDER BY ordinal, call != '(user)') AS ended FROM '{path}')
            WHERE ended > begins"""
    ) == (0,)
    assert one(
        f"""SELECT count(*) FROM '{path}' WHERE sleeps_left_out = 0
            AND list_sum([s.blocked_ns for s in sleeps]) != blocked_ns"""
    ) == (0,)


def test_sleeps_say_what_they_waited_for(record, programs):
    path, _ = record(programs("pipe_read"), "thread", "50", "4")
    rows = duckdb.sql(
        f"""SELECT s.label, s.class, s.resource_kind, s.waker_comm, s.blocked_ns, caller, stack
            FROM (SELECT unnest(sleeps) AS s, caller, stack, comm FROM '{path}'
                  WHERE call = 'read') WHERE s.blocked_ns > 40e6"""
    ).fetchall()
    assert len(rows) == 4
    for label, kind, resource_kind, waker, blocked, caller, stack in rows:
        assert (label, kind, resource_kind, waker) == ("pipe empty", "process", "pipe", "writer")
        assert 49_000_000 < blocked < 5_000_000_000
        assert "pipe_read.c" in caller
        assert stack.split(";")[-1].startswith("__") or "read" in stack.split(";")[-1]
        assert any("main" in frame for frame in stack.split(";"))


def test_time_is_the_time_of_day(record):
    before = time.time_ns()
    path, _ = record("sleep", "0.2")
    after = time.time_ns()
    begins, wall = one(
        f"SELECT epoch_ns(time), wall_ns FROM '{path}' WHERE call = 'clock_nanosleep'"
    )
    assert before < begins and begins + wall < after
    assert 200_000_000 <= wall < 5_000_000_000


def test_cpu_time_is_what_the_kernel_says(record):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path, _ = record("sha256sum", "/usr/bin/python3", "/proc/cpuinfo")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    in_calls = one(f"SELECT sum(cpu_ns) FROM '{path}' WHERE call != '(user)'")[0]
    # All of debox is in what the kernel says.
    system = after.ru_stime + after.ru_utime - before.ru_stime - before.ru_utime
    assert 0 < in_calls / 1e9 < system


def test_a_filter_keeps_what_holds(record, programs):
    path, said = record(
        programs("pipe_read"),
        "thread",
        "20",
        "3",
        options=["--filter", "blocked > 10ms && label == 'pipe*'".replace("'", '"')],
    )
    assert one(f"SELECT count(*), count(DISTINCT call) FROM '{path}'") == (3, 1)
    assert meta(path)["filtered_out"] > 10
    assert "3 records" in said


def test_a_wrong_filter_is_shown(debox, tmp_path):
    done = subprocess.run(
        [debox, "record", "-o", tmp_path / "x", "--filter", "blokced > 1ms", "--", "true"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "blocked" in done.stderr


def test_a_killed_recorder_loses_seconds(debox, tmp_path):
    path = tmp_path / "killed.parquet"
    program = "import os, time\nwhile True:\n os.getppid(); time.sleep(0.001)"
    recorder = subprocess.Popen(
        [debox, "record", "-o", path, "--", sys.executable, "-c", program]
    )
    children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children")
    try:
        deadline = time.monotonic() + 60
        tail = Path(f"{path}.tail")
        while not tail.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(3)
        children = [int(pid) for pid in children.read_text().split()]
        killed_ns = time.time_ns()
    finally:
        recorder.kill()
        recorder.wait()
        for pid in children if isinstance(children, list) else []:
            os.kill(pid, signal.SIGKILL)
    assert not meta(path)["complete"]
    newest = one(f"SELECT epoch_ns(max(time)) FROM read_parquet(['{path}', '{tail}'])")[0]
    # Two seconds, and what writing them takes on a busy machine.
    assert killed_ns - newest < 10_000_000_000
    rows = one(f"SELECT count(*) FROM read_parquet(['{path}', '{tail}'])")
    done = subprocess.run([debox, "repair", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not tail.exists()
    assert one(f"SELECT count(*) FROM '{path}'") == rows


def test_files_rotate(debox, tmp_path):
    program = "import os, time\nfor i in range(3000): os.getppid(); time.sleep(0.001)"
    done = subprocess.run(
        [
            debox, "record", "-o", tmp_path / "host={host}" / "hour={hour}" / "{part}.parquet",
            "--rotate-time", "1s", "--", sys.executable, "-c", program,
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("*/*/*.parquet"))
    assert len(files) >= 3
    assert [meta(path)["part"] for path in files] == list(range(len(files)))
    assert all(meta(path)["complete"] for path in files)
    assert meta(files[1])["rows_before"] == one(f"SELECT count(*) FROM '{files[0]}'")[0]
    calls, first, last = one(
        f"""SELECT count(*), min(ordinal), max(ordinal) FROM '{tmp_path}/*/*/*.parquet'
            WHERE call != '(user)'"""
    )
    assert (first, last) == (1, calls)


def test_the_oldest_files_go(debox, tmp_path):
    program = "import os, time\nfor i in range(4000): os.getppid(); time.sleep(0.001)"
    done = subprocess.run(
        [debox, "record", "-o", tmp_path / "t.parquet", "--rotate-time", "1s", "--keep-files",
         "2", "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("*.parquet"))
    assert len(files) == 2 and files[0].name != "t-0000.parquet"


def test_a_flight_recorder_writes_when_told(debox, tmp_path):
    path = tmp_path / "last.parquet"
    program = "import os, time\nwhile True:\n os.getppid(); time.sleep(0.001)"
    busy = subprocess.Popen([sys.executable, "-c", program])
    recorder = subprocess.Popen(
        [debox, "record", "-o", path, "--flight", "2s", "-p", str(busy.pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(6)
        assert not path.exists()
        recorder.send_signal(signal.SIGUSR1)
        said = recorder.stderr.readline()
        assert "records" in said and str(path) in said
        told_ns = time.time_ns()
        oldest, newest, rows = one(
            f"SELECT epoch_ns(min(time)), epoch_ns(max(time)), count(*) FROM '{path}'"
        )
        assert told_ns - 5_000_000_000 < oldest < newest < told_ns
        assert newest - oldest > 1_500_000_000 and rows > 100
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(timeout=60) == 0
    finally:
        for process in recorder, busy:
            process.kill()
            process.wait()


def test_attach_records_a_running_process(debox, tmp_path):
    path = tmp_path / "trace.parquet"
    done = threading.Event()
    reader, writer = os.pipe()

    def wait():
        while not done.is_set():
            os.read(reader, 1)

    waiting = threading.Thread(target=wait)
    waiting.start()
    recorder = subprocess.Popen([debox, "record", "-o", path, "-p", str(os.getpid())])
    try:
        while "debox" not in Path("/proc/self/status").read_text() and recorder.poll() is None:
            os.write(writer, b"x")
            time.sleep(0.01)
            if path.exists() and path.stat().st_size > 4 and time.monotonic() % 1 < 0.02:
                rows = Path(f"{path}.tail").exists()
                if rows:
                    break
    finally:
        recorder.send_signal(signal.SIGINT)
        done.set()
        os.write(writer, b"x")
        waiting.join()
    assert recorder.wait(timeout=60) == 0
    assert one(f"SELECT count(*) > 10 FROM '{path}' WHERE call = 'read' AND tid != pid")[0]


def catches(pid, number):
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16) >> (number - 1) & 1


def test_ctrl_c_leaves_what_hangs_in_the_recording(debox, tmp_path):
    path = tmp_path / "hangs.parquet"
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE) as hangs:
        recorder = subprocess.Popen([debox, "record", "-o", path, "-p", str(hangs.pid)])
        while not catches(recorder.pid, signal.SIGINT):
            time.sleep(0.01)
        time.sleep(0.5)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(timeout=60) == 0
    query = next(
        query for query in re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if "in_flight" in query
    )  # fmt: skip
    row = one(query.replace("trace.parquet", str(path)))
    assert row[:5] == ("sh", hangs.pid, "read", 0, True)
    assert row[6] == "pipe empty"
    assert one(f"SELECT ret, error, blocked_ns > 0 FROM '{path}'") == (None, None, True)


def test_the_queries_of_the_manual_run(record, programs, tmp_path):
    path, _ = record("tar", "czf", "/dev/null", "-C", "/usr/include", "linux")
    lake = tmp_path / "lake" / "host=a" / "hour=2026-01-01T07"
    lake.mkdir(parents=True)
    (lake / "0000.parquet").hardlink_to(path)
    queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(queries) == 7
    for query in queries:
        query = query.replace("trace.parquet", str(path)).replace("lake/", f"{tmp_path}/lake/")
        answer = duckdb.sql(query).fetchall()
        may_be_empty = ("owner_comm", "mmap", "in_flight", "user_ns")
        assert answer or any(word in query for word in may_be_empty), query


def test_the_manual_names_every_column(record):
    path, _ = record("true")
    text = DOCS.read_text()
    for column, kind in duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").project(
        "column_name, column_type"
    ).fetchall():
        assert f"`{column}`" in text, column
        for field in re.findall(r'["(, ](\w+) (?:UINTEGER|UBIGINT|VARCHAR)', kind):
            assert f"`{field}`" in text, field


def test_a_trigger_writes_the_flight_recorder(debox, tmp_path, programs):
    path = tmp_path / "slow.parquet"
    trigger = "syscall == clock_nanosleep && wall > 150ms"
    program = (
        "import time\n"
        "for _ in range(500): time.sleep(0.001)\n"
        "time.sleep(0.2)\n"
        "for _ in range(500): time.sleep(0.001)\n"
    )
    done = subprocess.run(
        [debox, "record", "-o", path, "--flight", "30s", "--trigger", trigger, "--",
         sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    slow, before = one(
        f"""SELECT count(*) FILTER (wall_ns > 150e6), count(*) FROM '{path}'
            WHERE call = 'clock_nanosleep'"""
    )
    assert slow == 1 and before >= 400
