# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pytest plugin of the Python package, on tests that block and tests that do not."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys

TESTS = """
import asyncio, time
import pytest

async def loop(work):
    for _ in range(5):
        await asyncio.sleep(0.001)
        work()

@pytest.mark.never_blocks(max_blocked="20ms")
def test_good():
    asyncio.run(loop(lambda: None))

@pytest.mark.never_blocks(max_blocked="20ms")
def test_bad():
    asyncio.run(loop(lambda: time.sleep(0.05)))

@pytest.mark.never_blocks(max_blocked="20ms", allow=["clock_nanosleep"])
def test_allowed():
    asyncio.run(loop(lambda: time.sleep(0.05)))

def test_not_marked():
    asyncio.run(loop(lambda: time.sleep(0.05)))
"""


def run(directory, command, tests=TESTS):
    (directory / "test_loop.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", directory],
        capture_output=True,
        text=True,
        env={**os.environ, "DEBOX": command},
        cwd=directory,
        timeout=300,
    )


def test_the_installed_package_brings_the_plugin():
    """Without the entry point pytest ignores the marker, and a test that blocks passes."""
    plugins = importlib.metadata.distribution("debox").entry_points.select(group="pytest11")
    assert [plugin.value for plugin in plugins] == ["debox.pytest_plugin"]


def test_only_what_blocks_fails(debox, tmp_path):
    done = run(tmp_path, debox)
    assert done.returncode == 1, done.stdout
    for name, result in ("good", "PASSED"), ("bad", "FAILED"), ("allowed", "PASSED"):
        assert f"test_{name} {result}" in done.stdout, done.stdout
    assert "test_not_marked PASSED" in done.stdout
    assert "the event loop blocked, 5 times" in done.stdout
    assert "ms in clock_nanosleep (timer)" in done.stdout


def test_without_debox_it_says_so(tmp_path):
    done = run(tmp_path, "/nonexistent/debox")
    assert done.returncode == 1
    assert "cannot run /nonexistent/debox" in done.stdout
    assert "test_not_marked PASSED" in done.stdout


def test_names_do_not_steer_the_terminal():
    path = os.path.join(
        os.path.dirname(__file__), "../../bindings/python/python/debox/pytest_plugin.py"
    )
    spec = importlib.util.spec_from_file_location("plugin", path)
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    assert plugin.shown("a\x1b]0;x\x07\n\u202e\u2028 é") == "a\\x1b]0;x\\x07\\n\\u202e\\u2028 é"
