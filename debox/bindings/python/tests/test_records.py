# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records of a thread's own calls."""

import gc
import os
import sys
import threading
import time

import pytest

import debox
from conftest import MS


def test_the_last_call_is_the_programs(enabled):
    reader, writer = os.pipe()
    assert os.write(writer, b"abc") == 3
    last = debox.last()
    assert (last.name, last.call, last.ret, last.args[0]) == ("write", 1, 3, writer)
    assert last.errno is None and last.irq_ns is None and last.sleeps == []
    parts = last.cpu_ns + last.blocked_ns + last.runqueue_ns + last.preempted_ns
    assert parts + last.outside_ns == last.wall_ns
    # Looking at a record, and making objects of it, makes no call.
    numbers = {debox.last().copy().number for _ in range(5000)}
    assert numbers == {last.number}
    os.close(reader), os.close(writer)


def test_errors_of_calls_are_told(enabled):
    with pytest.raises(OSError):
        os.read(-1, 1)
    last = debox.last()
    assert (last.name, last.ret, last.errno) == ("read", -9, 9)


def test_a_known_sleep_is_measured_and_explained(enabled):
    time.sleep(0.020)
    last = debox.last()
    assert last.name == "clock_nanosleep"
    assert 20 * MS <= last.wall_ns < 2000 * MS
    assert last.sleeps_lost == 0
    if not last.sleeps or not last.sleeps[0].stack:
        pytest.skip("this machine hid the switch")
    assert 19 * MS <= last.blocked_ns + last.preempted_ns <= last.wall_ns
    (sleep,) = last.sleeps
    assert sleep.count == 1 and sleep.longest_ns == sleep.blocked_ns == last.blocked_ns
    assert sleep.waker == "hard interrupt" and sleep.waker_tid is None
    assert sleep.resource_kind == "timer"
    (explained,) = debox.explain(last)
    assert explained.wait_class == "idle" and "nanosleep" in explained.function
    assert debox.explain(last.copy(), 0)[0].label == explained.label
    with pytest.raises(debox.ArgumentError):
        debox.explain(last, 1)


def test_history_is_newest_first(enabled):
    os.getppid(), os.getuid(), os.getppid()
    names = [record.name for record in debox.history()]
    assert names[:3] == ["getppid", "getuid", "getppid"]
    assert len(debox.history(2)) == 2
    numbers = [record.number for record in debox.history()]
    assert numbers == sorted(numbers, reverse=True)


def test_history_of_another_thread(enabled):
    gone, ready = threading.Event(), threading.Event()

    def wait():
        os.getuid()
        ready.set()
        gone.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    names = [record.name for record in debox.history(tid=thread.native_id, interpreter=True)]
    assert "getuid" in names
    gone.set()
    thread.join()
    with pytest.raises(debox.NoSuchThreadError):
        debox.history(tid=1)


def test_a_record_that_was_overwritten_says_so(enabled):
    os.getppid()
    last = debox.last()
    kept = last.copy()
    for _ in range(7):
        os.getuid()
    assert last.name == "getppid"
    os.getuid()
    with pytest.raises(debox.StaleError):
        last.wall_ns
    with pytest.raises(debox.StaleError):
        last.copy()
    assert kept.name == "getppid"
    debox.disable()
    with pytest.raises(debox.StaleError):
        last.name


def test_the_interpreters_lock_is_passed_over(enabled):
    """Another thread takes the lock while this one is in a call, so this one has to wait for it."""
    stop = False

    def compute():
        while not stop:
            pass

    thread = threading.Thread(target=compute)
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    thread.start()
    seen, behind = set(), 0
    try:
        for _ in range(200):
            time.sleep(0.0001)
            last, latest = debox.last(), debox.last(interpreter=True)
            if last is not None:  # else the wait took more calls than there are records
                seen.add(last.name)
            behind += latest.name == "futex"
    finally:
        stop = True
        thread.join()
        sys.setswitchinterval(before)
    assert seen == {"clock_nanosleep"}
    assert behind > 0


def test_pausing(enabled):
    os.getppid()
    debox.pause()
    os.getuid()
    assert debox.last().name == "getppid"
    debox.resume()
    os.getuid()
    assert debox.last().name == "getuid"


def test_interrupts_are_measured_if_asked_for(enabled):
    debox.disable()
    debox.enable(irq=True)
    os.getppid()
    assert debox.last().irq_ns is not None


def test_the_owner_of_the_cpu_is_measured_if_asked_for(enabled):
    os.getppid()
    assert debox.last().throttled_ns is None and debox.last().cpu_owner is None
    debox.disable()
    debox.enable(cpu=True)
    time.sleep(0.01)  # waking an idle CPU is a wait
    last = debox.last()
    assert last.throttled_ns == 0
    waited = last.runqueue_ns + last.preempted_ns
    assert last.cpu_owner is None if waited == 0 else 0 < last.cpu_owner.ns <= waited


def test_errors():
    assert debox.last() is None and not debox.is_enabled()
    for call in (debox.disable, debox.history, debox.pause, debox.resume):
        with pytest.raises(debox.NotEnabledError, match="not enabled"):
            call()
    with pytest.raises(debox.ArgumentError):
        debox.enable(max_threads=0)
    with pytest.raises(debox.ArgumentError):
        debox.enable(tap="other")
    with pytest.raises(TypeError):
        debox.explain(None)


def test_sessions_follow_each_other(enabled):
    with pytest.raises(debox.AlreadyEnabledError):
        debox.enable()
    descriptors = os.listdir("/proc/self/fd")
    for _ in range(3):
        debox.disable()
        assert debox.last() is None
        debox.enable()
        os.getppid()
        assert debox.last().name == "getppid"
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors) + 1


def test_crowds_are_told(enabled):
    debox.disable()
    debox.enable(max_threads=1)
    found = []

    def look():
        found.append(debox.last())
        with debox.scope() as scope:
            pass
        found.append(scope.measured)
        try:
            debox.history()
        except debox.NotMonitoredError:
            found.append("not monitored")

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [None, False, "not monitored"]


def test_forked_children_have_their_own(enabled):
    os.getppid()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.getuid()
            with debox.scope() as scope:
                os.getppid()
            code = 0 if scope.calls == 1 and debox.last().name == "getppid" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert debox.last().name == "wait4"


def test_objects_are_freed(enabled):
    os.getppid()
    for _ in range(1000):
        repr(debox.last()), repr(debox.history())
    gc.collect()
    before = int(open("/proc/self/statm").read().split()[1])
    for _ in range(20000):
        repr(debox.last()), debox.history()
    gc.collect()
    assert int(open("/proc/self/statm").read().split()[1]) < before + 2000
