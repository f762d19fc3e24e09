# SPDX-License-Identifier: MIT OR Apache-2.0
"""Without privilege: through the broker."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import debox
from conftest import ROOT

USER = 65534

PROGRAM = """
import os, time, debox

try:
    debox.enable()
except debox.Error as error:
    print(type(error).__name__)
    raise SystemExit
time.sleep(0.020)
last = debox.last().copy()
with debox.scope("request") as scope:
    for _ in range(10_000):
        os.getppid()
    time.sleep(0.020)
unseen = scope.unseen
assert last.name == "clock_nanosleep" and last.wall_ns >= 20_000_000, last
assert scope.calls == 10_001, scope
assert unseen or scope.blocked_ns >= 19_000_000, scope
assert scope.wall_ns == (
    scope.cpu_ns + scope.blocked_ns + scope.runqueue_ns + scope.preempted_ns
), scope
print("measured")
input()  # until the broker has gone
for _ in range(500):
    with debox.scope("request") as scope:
        os.getppid()
    if not scope.measured:
        break
    time.sleep(0.01)
print(scope, debox.last())
"""


def debox_command():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = target / "release/debox"
    if not command.exists():
        pytest.fail(f"{command} is not built: cargo build --release")
    return command


@pytest.fixture
def place():
    """A directory that any user can reach, with the package and an interpreter for it."""
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        pytest.fail(f"{python} is missing, which every user may execute: scripts/setup test")
    with tempfile.TemporaryDirectory(prefix="debox-python-") as directory:
        os.chmod(directory, 0o755)
        shutil.copytree(Path(debox.__file__).parent, Path(directory, "debox"))
        yield directory, python


def start(place):
    directory, python = place
    return subprocess.Popen(
        [python, "-c", PROGRAM],
        cwd="/",
        env={"PYTHONPATH": directory, "DEBOX_BROKER": f"{directory}/broker.sock"},
        user=USER,
        group=USER,
        extra_groups=[],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_user_without_privilege_is_served(place):
    broker = subprocess.Popen(
        [debox_command(), "broker", "--socket", f"{place[0]}/broker.sock"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "listening" in broker.stderr.readline()
        program = start(place)
        said = program.stdout.readline()
        assert said == "measured\n", said + program.stderr.read()
        broker.kill()
        broker.wait()
        out, errors = program.communicate("\n", timeout=60)
        assert out == "unmeasured None\n", out + errors
    finally:
        broker.kill()
        broker.wait()
        broker.stderr.close()


def test_without_a_broker_it_is_said(place):
    out, errors = start(place).communicate(timeout=60)
    assert out == "PrivilegeError\n", out + errors
