# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tests load probes, so they need root."""

import os
from pathlib import Path

import pytest

import debox

ROOT = Path(__file__).resolve().parents[4]
MS = 1_000_000


@pytest.fixture(autouse=True)
def own_probes(monkeypatch):
    """The tests do not use a broker that may run on this machine."""
    monkeypatch.setenv("DEBOX_BROKER", "")


@pytest.fixture
def enabled():
    if os.geteuid() != 0:
        pytest.fail("loading probes needs root")
    debox.enable()
    yield
    if debox.is_enabled():
        debox.disable()
