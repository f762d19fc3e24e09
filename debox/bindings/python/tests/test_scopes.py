# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scopes, compared with what is known and with other accounts."""

import asyncio
import os
import threading
import time

import pytest

import debox
from conftest import MS


def parts(scope):
    return scope.cpu_ns + scope.blocked_ns + scope.runqueue_ns + scope.preempted_ns


def test_every_call_counts(enabled):
    cpu = time.thread_time_ns()
    with debox.scope("calls") as scope:
        for _ in range(100_000):
            os.getppid()
    cpu = time.thread_time_ns() - cpu
    assert scope.calls == 100_000
    assert parts(scope) == scope.wall_ns
    assert scope.cpu_user_ns + scope.cpu_kernel_ns == scope.cpu_ns
    assert scope.cpu_user_ns > 0 and scope.cpu_kernel_ns > 0
    assert cpu * 0.9 - 10 * MS < scope.cpu_ns < cpu * 1.5 + 50 * MS
    assert scope.measured and scope.why is None and scope.irq_ns is None


def test_nothing_is_nothing(enabled):
    with debox.scope() as scope:
        pass
    assert (scope.calls, scope.sleeps, scope.blocked_ns, scope.cpu_kernel_ns) == (0, 0, 0, 0) or (
        scope.preempted_ns or scope.sleeps
    )
    assert scope.wall_ns > 0


def test_known_sleeps(enabled):
    with debox.scope("sleeps") as scope:
        for _ in range(20):
            time.sleep(0.010)
    assert scope.calls == 20 and scope.wall_ns >= 200 * MS
    if not scope.unseen:
        assert scope.sleeps >= 20
        # A thread may lose its CPU after its timer was set and before it sleeps.
        assert 199 * MS - scope.preempted_ns <= scope.blocked_ns < 5000 * MS
        assert scope.blocked_in_calls_ns == scope.blocked_ns


def test_a_lock_is_waited_for(enabled):
    lock, held = threading.Lock(), threading.Event()

    def hold():
        with lock:
            held.set()
            time.sleep(0.060)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with debox.scope("lock") as scope:
        with lock:
            pass
    thread.join()
    # How long the lock was held before the scope began is not known more exactly.
    assert scope.unseen or 20 * MS <= scope.blocked_ns < 1000 * MS


def test_nesting_and_reading_while_open(enabled):
    with debox.scope("outer") as outer:
        with debox.scope("first") as first:
            os.getppid()
        so_far = outer.so_far()
        with pytest.raises(debox.Error, match="not ended"):
            outer.wall_ns
        with debox.scope("second") as second:
            time.sleep(0.010)
    assert (first.calls, so_far.calls, second.calls, outer.calls) == (1, 1, 1, 2)
    assert first.wall_ns + second.wall_ns <= outer.wall_ns
    assert so_far.name == "outer" and so_far.measured


def test_begin_and_end(enabled):
    scope = debox.scope("hooks")
    assert str(scope) == "not begun"
    with pytest.raises(debox.Error, match="not begun"):
        scope.end()
    scope.begin()
    os.getppid()
    assert str(scope).startswith("open wall=")
    scope.end()
    assert scope.calls == 1
    scope.begin()  # and once more
    scope.end()
    assert scope.calls == 0


def test_faults_if_asked_for(enabled):
    with debox.scope(faults=True) as scope:
        memory = bytearray(16 << 20)
        memory[:: 4096] = b"x" * len(memory[:: 4096])
    assert scope.faults_minor > 8  # with huge pages; else some thousands
    del memory


def test_another_thread_cannot_end_it(enabled):
    scope = debox.scope("elsewhere")
    scope.begin()
    raised = []

    def end():
        for name in ("end", "so_far"):
            with pytest.raises(debox.WrongThreadError, match="thread it began on") as error:
                getattr(scope, name)()
            raised.append(error.value)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert len(raised) == 2
    scope.end()
    assert scope.measured


def test_exceptions_pass(enabled):
    with pytest.raises(ZeroDivisionError):
        with debox.scope("failing") as scope:
            os.getppid()
            1 / 0
    assert scope.calls == 1


def test_unmeasured_scopes_do_no_harm():
    with debox.scope("request") as scope:
        os.getppid()
    assert scope.measured is False and "not enabled" in scope.why
    assert scope.wall_ns is None and scope.calls is None
    assert str(scope) == "unmeasured"
    assert scope.as_dict() == {"name": "request", "why": scope.why}


def test_monitoring_that_ends_inside(enabled):
    with debox.scope() as scope:
        debox.disable()
    assert not scope.measured and "inside this scope" in scope.why
    debox.enable()
    with debox.scope() as scope:
        debox.disable()
        debox.enable()
    assert not scope.measured


def test_words(enabled):
    with debox.scope("request") as scope:
        os.getppid()
    text = str(scope)
    for word in ("wall=", "cpu=", "blocked=", "runqueue=", "preempted=", "calls=1"):
        assert word in text
    assert repr(scope) == f'<debox.Scope "request" {text}>' or "unseen" in text
    named = scope.as_dict()
    assert named["name"] == "request" and named["calls"] == 1
    for name in named:
        assert getattr(scope, name) == named[name]


def test_threads_have_their_own(enabled):
    counts = {}

    def work(number):
        with debox.scope() as scope:
            for _ in range(number * 1000):
                os.getppid()
        counts[number] = (scope.calls, parts(scope) == scope.wall_ns)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (calls, adds_up) in counts.items():
        # Plus the futex calls for the interpreter's lock, at most one every few milliseconds.
        assert number * 1000 <= calls < number * 1000 + 1000 and adds_up


def test_under_asyncio_other_tasks_count(enabled):
    """As documented, the scope belongs to the thread."""

    async def other():
        time.sleep(0.030)

    async def main():
        task = asyncio.create_task(other())
        with debox.scope("around an await") as around:
            await task
        with debox.scope("a step") as step:
            os.getppid()
        return around, step

    around, step = asyncio.run(main())
    assert around.unseen or around.blocked_ns + around.preempted_ns >= 29 * MS
    assert step.calls == 1


def test_a_user_tap_has_times_without_records(enabled):
    debox.disable()
    debox.enable(tap="user")
    with debox.scope() as scope:
        time.sleep(0.020)
    assert debox.last() is None
    assert scope.unseen or 19 * MS <= scope.blocked_ns + scope.preempted_ns <= scope.wall_ns
    assert scope.calls == 0 and parts(scope) == scope.wall_ns
