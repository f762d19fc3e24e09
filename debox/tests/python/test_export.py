# SPDX-License-Identifier: MIT OR Apache-2.0
"""Exports are read by what they are made for, and have the history's time to the nanosecond.

Needs root; DEBOX names the program.
"""

import json
import os
import pathlib
import shutil
import subprocess

import duckdb
import pytest

from trace_processor import Trace

DEBOX = os.environ.get("DEBOX", "debox")
CALLS = "category IN ('syscall', 'user')"


def debox(*words, **how):
    return subprocess.run([DEBOX, *map(str, words)], check=True, stderr=subprocess.PIPE, **how)


def rows(sql):
    return duckdb.sql(sql).fetchall()


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Two processes and a pipe, and a sleep of which one knows how long it is."""
    place = tmp_path_factory.mktemp("export")
    path = place / "trace.parquet"
    script = "tar c /etc/ssl | gzip -1 | wc -c; sleep 0.1"
    debox("record", "-o", path, "--", "sh", "-c", script, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="module")
def sums(history):
    names = ["count", "blocked", "cpu", "runqueue", "calls"]
    found = rows(
        f"""SELECT count(*), sum(blocked_ns)::BIGINT, sum(cpu_ns)::BIGINT, sum(runqueue_ns)::BIGINT,
            count(*) FILTER (number >= 0 AND NOT restarted) FROM '{history}'"""
    )
    sums = dict(zip(names, found[0]))
    assert sums["count"] > 100 and sums["blocked"] > 100_000_000
    return sums


@pytest.fixture(scope="module")
def trace(history):
    output = history.with_suffix(".pftrace")
    debox("export", history, "-o", output)
    with Trace(output) as trace:
        yield trace


def test_perfetto_has_nothing_to_complain_of(trace):
    sql = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
    assert trace.query(sql) == []
    assert trace.query("SELECT * FROM slice WHERE dur < 0") == []
    assert trace.query("SELECT * FROM slice WHERE name IS NULL") == []


def test_perfetto_has_every_call_with_its_time(trace, history, sums):
    sql = f"SELECT count(*) n, sum(extract_arg(arg_set_id, 'debug.blocked_ns')) b FROM slice WHERE {CALLS}"
    assert trace.query(sql) == [{"n": sums["count"], "b": sums["blocked"]}]
    found = trace.query(f"SELECT name, count(*) n, sum(dur) d FROM slice WHERE {CALLS} GROUP BY name")
    expected = rows(f"SELECT call, count(*), sum(wall_ns)::BIGINT FROM '{history}' GROUP BY call")
    assert {row["name"]: (row["n"], row["d"]) for row in found} == {c: (n, d) for c, n, d in expected}


def test_perfetto_has_every_sleep_in_its_call(trace, history):
    found = trace.query(
        """SELECT call.name call, sleep.name label, count(*) n, sum(sleep.dur) d
           FROM slice sleep JOIN slice call ON call.id = sleep.parent_id
           WHERE sleep.category = 'sleep' AND sleep.ts >= call.ts
             AND sleep.ts + sleep.dur <= call.ts + call.dur GROUP BY 1, 2"""
    )
    expected = rows(
        f"""SELECT call, s.label, count(*), sum(s.blocked_ns)::BIGINT
            FROM (SELECT call, unnest(sleeps) s FROM '{history}') GROUP BY ALL"""
    )
    assert {(r["call"], r["label"]): (r["n"], r["d"]) for r in found} == {
        (call, label): (n, d) for call, label, n, d in expected
    }


def test_perfetto_has_threads_by_their_names(trace, history):
    found = trace.query(
        """SELECT DISTINCT process.pid pid, tid, thread.name name FROM thread_track
           JOIN thread USING (utid) JOIN process USING (upid) JOIN slice ON slice.track_id = thread_track.id"""
    )
    expected = rows(f"SELECT pid, tid, arg_max(comm, time) FROM '{history}' GROUP BY ALL")
    assert {(r["pid"], r["tid"], r["name"]) for r in found} == set(expected)


def test_perfetto_has_the_time_of_day(trace, history):
    found = trace.query(f"SELECT min(ts) ts FROM slice WHERE {CALLS}")[0]["ts"]
    clocks = trace.query("SELECT clock_name, clock_value FROM clock_snapshot")
    clocks = {clock["clock_name"]: clock["clock_value"] for clock in clocks}
    began = found - clocks["MONOTONIC"] + clocks["REALTIME"]
    assert rows(f"SELECT min(epoch_ns(time)) FROM '{history}'") == [(began,)]


def test_perfetto_has_an_arrow_for_each_waking_by_a_known_thread(trace, history):
    found = trace.query(
        """SELECT thread.tid tid, woken.tid woken, source.ts at, target.ts target_at
           FROM flow JOIN slice source ON source.id = slice_out JOIN slice target ON target.id = slice_in
           JOIN thread_track ON source.track_id = thread_track.id JOIN thread USING (utid)
           JOIN thread_track other ON target.track_id = other.id JOIN thread woken ON other.utid = woken.utid"""
    )
    expected = rows(
        f"""SELECT s.waker_tid, tid FROM (SELECT tid, unnest(sleeps) s FROM '{history}')
            WHERE s.waker_kind = 'task' AND s.waker_tid != tid
              AND s.waker_tid IN (SELECT tid FROM '{history}')"""
    )
    assert len(expected) > 0
    assert sorted((r["tid"], r["woken"]) for r in found) == sorted(expected)
    assert all(row["at"] == row["target_at"] for row in found)


def go():
    found = shutil.which("go") or "/usr/local/go/bin/go"
    return found


def pprof(profile, *how):
    command = [go(), "tool", "pprof", *how, str(profile)]
    environment = {**os.environ, "PPROF_TMPDIR": str(profile.parent)}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout


def test_pprof_reads_the_profile(history, sums):
    output = history.with_suffix(".pb.gz")
    debox("export", history, "-o", output)
    raw = pprof(output, "-raw").splitlines()
    types = raw[raw.index("Samples:") + 1].split()
    assert types == [
        "blocked/nanoseconds[dflt]", "cpu/nanoseconds", "runqueue/nanoseconds", "calls/count", "samples/count",
    ]
    values = []
    for line in raw[raw.index("Samples:") + 2 : raw.index("Locations")]:
        numbers, found, _ = line.partition(":")
        if found and all(number.lstrip("-").isdigit() for number in numbers.split()):
            values.append([int(number) for number in numbers.split()])
    totals = [sum(column) for column in zip(*values)]
    report = json.loads(debox("report", "--json=-", history, stdout=subprocess.PIPE).stdout)
    samples = report["samples"]["total"]
    assert totals == [sums["blocked"], sums["cpu"], sums["runqueue"], sums["calls"], samples]
    # What one looks at: the label is the leaf, the call above it, the program above that.
    peek = pprof(output, "-traces", "-unit=ns", "-focus=clock_nanosleep")
    stack = [line.split()[-1] for line in peek.splitlines() if line.startswith(" ")]
    assert "clock_nanosleep" in stack and stack.index("clock_nanosleep") > 0
    top = pprof(output, "-top", "-sample_index=calls")
    assert "Type: calls" in top


@pytest.mark.parametrize("weight", ["blocked", "cpu", "runqueue"])
def test_folded_stacks_have_all_the_time(history, sums, weight):
    out = debox("export", history, "--format", "folded", "--weight", weight, stdout=subprocess.PIPE)
    lines = out.stdout.decode().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == sums[weight]
    if weight == "blocked":
        assert any(";clock_nanosleep;" in line for line in lines)


def test_ndjson_is_the_history(history):
    output = history.with_suffix(".ndjson")
    debox("export", history, "-o", output)
    columns = [name for (name, *_) in rows(f"DESCRIBE SELECT * FROM '{history}'")]
    with open(output) as file:
        lines = [json.loads(line) for line in file]
    # One more: what the process is called on its command line, which is in the file's metadata.
    assert all([name for name in line if name != "process"] == columns for line in lines)
    assert all(line["process"] for line in lines)
    exact = ["pid", "tid", "ordinal", "ret", "arg0", "arg1", "arg2", "wall_ns", "blocked_ns", "call", "error"]
    expected = rows(f"SELECT epoch_ns(time), {', '.join(exact)} FROM '{history}'")
    assert [(line["time"], *(line[name] for name in exact)) for line in lines] == expected
    sleeps = rows(f"SELECT sleeps FROM '{history}'")
    assert [line["sleeps"] for line in lines] == [row[0] for row in sleeps]
    again = rows(f"SELECT sum(blocked_ns)::BIGINT, count(*) FROM read_json('{output}')")
    assert again == rows(f"SELECT sum(blocked_ns)::BIGINT, count(*) FROM '{history}'")


def test_filters_and_spans_are_those_of_the_history(history):
    def count(*words):
        out = debox("export", history, "--format", "ndjson", *words, stdout=subprocess.PIPE)
        return len(out.stdout.splitlines())

    (slow,) = rows(f"SELECT count(*) FROM '{history}' WHERE blocked_ns > 1000000")[0]
    assert count("--filter", "blocked > 1ms") == slow
    assert count("--to", "50ms") + count("--from", "50ms") == count()


@pytest.mark.parametrize(
    "words, reason",
    [
        (["{text}", "-o", "{out}"], "is not a Parquet file"),
        (["{gone}", "-o", "{out}"], "No such file"),
        (["{foreign}", "-o", "{out}"], "not a history"),
        (["{history}", "-o", "{history}", "--format", "folded"], "name another file"),
        (["{history}", "-o", "/proc/nowhere/x.folded"], "cannot write"),
        (["{history}"], "--format"),
        (["{history}", "-o", "{out}", "--from", "2", "--to", "1"], "nothing between"),
        (["{history}", "-o", "{out}", "--filter", "blocked >"], "blocked >"),
    ],
)
def test_bad_input_is_said_and_leaves_nothing(history, tmp_path, words, reason):
    (tmp_path / "text").write_text("no parquet")
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{tmp_path}/foreign.parquet' (FORMAT parquet)")
    before = history.read_bytes()
    names = {
        "text": tmp_path / "text",
        "gone": tmp_path / "gone.parquet",
        "foreign": tmp_path / "foreign.parquet",
        "out": tmp_path / "out" / "a.folded",
        "history": history,
    }
    names["out"].parent.mkdir()
    command = [DEBOX, "export", *(word.format(**names) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (2, 125), done.stderr
    assert reason in done.stderr
    assert list(pathlib.Path(names["out"].parent).iterdir()) == []
    assert history.read_bytes() == before


def test_a_reader_that_has_enough_is_no_error(history):
    command = f"{DEBOX} export {history} --format ndjson | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
