# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests that fail when the event loop blocks.

    @pytest.mark.never_blocks
    def test_answers():
        asyncio.run(client_and_server())

    @pytest.mark.never_blocks(max_blocked="1ms", allow=["fsync"])
    async def test_saves(): ...

While such a test runs, `debox guard` watches the threads of this process that wait for events. If one
of their calls sleeps for longer than `max_blocked` (200us by default), the test fails with the call, its
reason and the stack. Waits for events and the calls in `allow` are exempt.

The guard needs root, or a broker (`sudo debox broker`). The command is `debox`; the setting `debox_command` in pytest's configuration, or
the environment variable DEBOX, sets another command, such as `sudo -n debox`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time

import pytest

MARK = "never_blocks"
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def pytest_addoption(parser):
    parser.addini("debox_command", "The command of debox, with sudo if it needs that", default="")


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        f"{MARK}(max_blocked='200us', allow=()): fails if an event loop of this process blocks "
        "(debox guard)",
    )
    config.stash[GUARD] = None


class Limits:
    """The limits that a mark sets."""

    def __init__(self, mark):
        known = {"max_blocked", "allow"}
        if mark.args or set(mark.kwargs) - known:
            raise pytest.UsageError(f"{MARK} takes max_blocked and allow, by name")
        self.max_blocked_ns = nanoseconds(mark.kwargs.get("max_blocked", "200us"))
        self.allow = set(mark.kwargs.get("allow", ()))

    def forbid(self, violation):
        return (
            violation["blocked_ns"] > self.max_blocked_ns and violation["syscall"] not in self.allow
        )


def nanoseconds(text):
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|ms|s)", text)
    if not found:
        raise pytest.UsageError(f"{MARK}: {text!r} is not a time, such as 200us or 1ms")
    return int(float(found[1]) * UNITS[found[2]])


class Guard:
    """A guard of this process, which reports violations as they happen."""

    def __init__(self, command, least_ns):
        arguments = [*command, "guard", "--stream", "--max-blocked", f"{least_ns}ns"]
        arguments += ["--output", "/dev/null", "--pid", str(os.getpid())]
        try:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise RuntimeError(f"cannot run {shlex.join(command)}: {error}") from error
        self.marks = 0
        self._read()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().strip()
            raise RuntimeError(f"debox guard ended: {said or 'it says nothing'}")
        return json.loads(line)

    def found(self):
        """The violations found since the last time."""
        self.marks += 1
        self.process.stdin.write(f"{self.marks}\n")
        self.process.stdin.flush()
        violations = []
        while True:
            line = self._read()
            if line.get("mark") == str(self.marks):
                return violations
            if "violation" in line:
                violations.append(line["violation"])

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


GUARD = pytest.StashKey()


def pytest_collection_finish(session):
    limits = [Limits(mark) for item in session.items if (mark := item.get_closest_marker(MARK))]
    least = min((limit.max_blocked_ns for limit in limits), default=None)
    session.config.stash[LEAST] = least


LEAST = pytest.StashKey()


def guard_of(config):
    """The guard; started for the first test that needs it."""
    guard = config.stash[GUARD]
    if guard is None:
        command = config.getini("debox_command") or os.environ.get("DEBOX") or "debox"
        guard = Guard(shlex.split(command), config.stash[LEAST])
        config.stash[GUARD] = guard
    return guard


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return (yield)
    limits = Limits(mark)
    try:
        guard = guard_of(item.config)
        guard.found()
    except RuntimeError as error:
        pytest.fail(f"{MARK}: {error}", pytrace=False)
    began = time.monotonic_ns()
    result = yield
    ended = time.monotonic_ns()
    inside = [
        one
        for one in guard.found()
        if began <= one["monotonic_ns"] < ended and limits.forbid(one)
    ]
    if inside:
        pytest.fail("\n".join(map(shown, text(inside))), pytrace=False)
    return result


def shown(line):
    """Names in the line are untrusted text and must not control the terminal."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


def text(violations):
    """The message for people: the longest violations, with their stacks."""
    yield f"the event loop blocked, {len(violations)} times; the longest first:"
    for one in sorted(violations, key=lambda one: -one["blocked_ns"])[:5]:
        what = f" for {one['resource']}" if one["resource"] else ""
        milliseconds = one["blocked_ns"] / 1e6
        yield f"  {milliseconds:.3f} ms in {one['syscall']} ({one['label']}){what}"
        for owner in one["owners"]:
            if owner["comm"]:
                yield f"    held by {owner['comm']}/{owner['tid']} ({owner['doing']})"
        for frame in one["frames"][:12]:
            yield f"      {frame}"


def pytest_unconfigure(config):
    guard = config.stash.get(GUARD, None)
    if guard is not None:
        guard.end()
