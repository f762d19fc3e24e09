# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests of files need: the built command, programs that know what they do, and DuckDB."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def debox():
    """The built command."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = Path(os.environ.get("DEBOX", target / "release" / "debox"))
    assert binary.exists(), f"{binary} is not built"
    return str(binary.resolve())


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Compiles a program of debox/tests/truth/programs, once; gives its path."""
    directory = tmp_path_factory.mktemp("programs")

    def program(name):
        path = directory / name
        if not path.exists():
            source = ROOT / "debox" / "tests" / "truth" / "programs" / f"{name}.c"
            subprocess.run(
                ["gcc", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o", path, source], check=True
            )
        return str(path)

    return program


@pytest.fixture
def record(debox, tmp_path):
    """Records a command; gives the file and what debox said of it."""

    def run(*command, options=(), name="trace.parquet", status=0):
        path = tmp_path / name
        done = subprocess.run(
            [debox, "record", "-o", path, *options, "--", *command],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stderr
        return path, done.stderr

    return run
