# SPDX-License-Identifier: MIT OR Apache-2.0
"""What REDbot, which checks HTTP resources, finds wrong with flash's answers: nothing that is not explained here."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REDBOT = Path(sys.executable).parent / "redbot"
FLASH = os.environ.get("FLASH", "")

CONFIG = """
[[server]]
listen = ["127.0.0.1:0"]
root = "root"
precompressed = true
cache = "1h"

[[server.location]]
path = "/uncached"
root = "root"
cache = "0s"
"""

PAGE = b"<!doctype html>\n<meta charset=utf-8>\n<title>a</title>\n" + b"<p>A paragraph of text.\n" * 200

# Notes of the levels BAD and WARN that are no defects, with reasons.
EXPLAINED = {
    ("/sub", "FRESHNESS_HEURISTIC"): "`cache` is for files; how long a redirect is kept is left to caches",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("flash")
    root = place / "root"
    for folder in (root / "sub", root / "uncached"):
        folder.mkdir(parents=True)
    for name in ("index.html", "sub/index.html", "uncached/a.html"):
        (root / name).write_bytes(PAGE)
    (root / "style.css").write_bytes(b"p { color: red }\n" * 300)
    (root / "style.css.gz").write_bytes(gzip.compress(b"p { color: red }\n" * 300))
    (root / "script.js").write_bytes(b"console.log('a');\n" * 300)
    (root / "data.bin").write_bytes(os.urandom(300_000))
    (root / "empty.txt").write_bytes(b"")
    (place / "flash.toml").write_text(CONFIG)
    server = subprocess.Popen([FLASH, "run", place / "flash.toml"], stdout=subprocess.PIPE, text=True)
    try:
        said = server.stdout.readline()
        assert said.startswith("serving at http://"), said
        yield said.removeprefix("serving at ").strip().rstrip("/")
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


def notes(url):
    """The notes of all answers to the requests that REDbot sends for one resource."""
    done = subprocess.run(
        [REDBOT, "-o", "har", url], capture_output=True, text=True, timeout=120, check=True
    )
    entries = json.loads(done.stdout)["log"]["entries"]
    assert entries, done.stderr
    return [note for entry in entries for note in entry["_red_messages"]]


TARGETS = [
    "/",
    "/sub",
    "/sub/",
    "/style.css",
    "/script.js",
    "/data.bin",
    "/empty.txt",
    "/none",
    "/uncached/a.html",
]


@pytest.mark.skipif(not Path(FLASH).exists(), reason=f"{FLASH} is not built")
@pytest.mark.parametrize("target", TARGETS)
def test_redbot_has_no_complaint(address, target):
    found = notes(address + target)
    bad = [note for note in found if note["level"] in ("BAD", "WARN")]
    unexplained = [note for note in bad if (target, note["note_id"]) not in EXPLAINED]
    assert not unexplained, json.dumps(unexplained, indent=2)
    if target in ("/", "/style.css", "/data.bin"):
        good = {note["note_id"] for note in found if note["level"] == "GOOD"}
        wanted = {"DATE_CORRECT", "CL_CORRECT", "RANGE_CORRECT", "INM_304", "IMS_304"}
        assert wanted <= good, sorted(good)
