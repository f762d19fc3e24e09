# SPDX-License-Identifier: MIT OR Apache-2.0
"""`debox guard` on real servers, with and without a call that blocks."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "debox/schema" / "guard-1.json").read_text())

# An asyncio server that answers 20 requests of its own; `BLOCK` is what each request does.
ASYNCIO = """
import asyncio, os, time
async def handle(reader, writer):
    await reader.readline()
    hidden_call()
    writer.write(b"ok\\n")
    await writer.drain()
    writer.close()
def hidden_call():
    {block}
async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x\\n")
        await reader.readline()
        writer.close()
    server.close()
asyncio.run(main())
"""

NODE = """
const http = require('http');
const fs = require('fs');
const {{ execFileSync }} = require('child_process');
function hiddenCall() {{ {block} }}
const server = http.createServer((request, response) => {{ hiddenCall(); response.end('ok'); }});
server.listen(0, '127.0.0.1', () => {{
  let left = 20;
  const next = () => http.get({{ port: server.address().port, agent: false }}, (answer) => {{
    answer.resume();
    answer.on('end', () => (--left ? next() : server.close()));
  }});
  next();
}});
"""


def guard(debox, tmp_path, *command, options=(), status=0):
    """Runs a command under the guard; gives its result as JSON."""
    path = tmp_path / "guard.json"
    done = subprocess.run(
        [debox, "guard", "--format", "json", "-o", path, *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, (done.stderr, path.read_text())
    result = json.loads(path.read_text())
    jsonschema.validate(result, SCHEMA)
    assert result["ok"] == (status == 0)
    return result


# What a busy machine does to a program that does not block at all: a lock inside the kernel that
# is held by a task which lost its CPU.
PATIENT = ["--max-blocked", "20ms"]


@pytest.mark.parametrize(
    "block, call",
    [("time.sleep(0.05)", "clock_nanosleep"), ("os.system('sleep 0.05')", "wait4")],
)
def test_a_blocking_call_in_asyncio_is_found(debox, tmp_path, block, call):
    program = tmp_path / "server.py"
    program.write_text(ASYNCIO.format(block=block))
    result = guard(debox, tmp_path, sys.executable, program, options=PATIENT, status=3)
    found = [one for one in result["violations"] if one["syscall"] == call]
    assert len(found) == 20
    loop = result["threads"][0]
    assert {one["tid"] for one in found} == {loop["tid"]} and loop["waits"] > 20
    for one in found:
        # The shell may begin to sleep before its parent, which needs a CPU, begins to wait.
        least = 49_000_000 if call != "wait4" else 30_000_000
        assert least < one["blocked_ns"] < 10_000_000_000
        assert any("asyncio" in frame or "task_step" in frame for frame in one["frames"])


def test_asyncio_that_does_not_block_passes(debox, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(ASYNCIO.format(block="pass"))
    result = guard(debox, tmp_path, sys.executable, program, options=PATIENT)
    assert result["violations"] == [] and result["threads"][0]["calls"] > 100


@pytest.fixture(scope="module")
def node():
    found = shutil.which("node")
    assert found, "node is not installed: scripts/setup test"
    return found


def test_a_blocking_call_in_node_is_found(debox, tmp_path, node):
    program = tmp_path / "server.js"
    program.write_text(NODE.format(block="execFileSync('sleep', ['0.05']);"))
    result = guard(debox, tmp_path, node, program, options=PATIENT, status=3)
    main = [one for one in result["threads"] if one["tid"] == one["pid"]]
    assert len(main) == 1
    blocked = [one for one in result["violations"] if one["tid"] == main[0]["tid"]]
    assert sum(one["blocked_ns"] for one in blocked) > 20 * 45_000_000
    # Node waits for the child in a loop of its own, with another epoll descriptor.
    assert {one["syscall"] for one in blocked} == {"epoll_wait"} or len(blocked) >= 20
    assert all(one["frames"] for one in blocked)


def test_node_that_does_not_block_passes(debox, tmp_path, node):
    program = tmp_path / "server.js"
    program.write_text(NODE.format(block=""))
    guard(debox, tmp_path, node, program, options=PATIENT)


def test_a_fault_in_user_code_is_a_violation(debox, tmp_path):
    # The loop reads memory whose pages it has handed out to a pipe of itself: a userfaultfd would
    # need rights; a page of a file that was dropped from the cache is as good.
    data = tmp_path / "data"
    data.write_bytes(bytes(8 << 20))
    subprocess.run(["sync", data], check=True)
    program = tmp_path / "server.py"
    program.write_text(
        ASYNCIO.format(
            block=f"touch({str(data)!r})",
        ).replace(
            "async def main",
            """def touch(path):
    import mmap
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            memory.madvise(mmap.MADV_RANDOM)
            sum(memory[at] for at in range(0, len(memory), 1 << 16))
async def main""",
            1,
        )
    )
    result = guard(
        debox, tmp_path, sys.executable, program, options=["--max-blocked", "1us"], status=3
    )
    faults = [one for one in result["violations"] if one["syscall"] == "(user)"]
    assert len(faults) >= 10, result
    assert any(one["class"] == "disk" for one in faults)


def test_the_time_ends_the_command(debox, tmp_path):
    program = "import asyncio; asyncio.run(asyncio.sleep(1000))"
    command = [sys.executable, "-c", program]
    result = guard(debox, tmp_path, *command, options=[*PATIENT, "--for", "1s"])
    assert result["threads"][0]["waits"] >= 1


def test_what_has_no_loop_is_not_called_good(debox, tmp_path):
    result = guard(debox, tmp_path, "sleep", "0.1", status=3)
    assert "No event loop" in result["doubts"][0]
    assert result["threads"] == [] and result["violations"] == []


def test_a_named_thread_is_looked_at(debox, tmp_path):
    result = guard(debox, tmp_path, "sleep", "0.1", options=["--thread", "sleep"], status=3)
    assert result["violations"][0]["label"] == "timer"
    allowed = ["--thread", "sleep", "--allow", "clock_nanosleep", *PATIENT]
    guard(debox, tmp_path, "sleep", "0.1", options=allowed)


def test_the_status_of_the_command_is_kept(debox, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(ASYNCIO.format(block="pass") + "raise SystemExit(7)\n")
    done = subprocess.run([debox, "guard", *PATIENT, "--", sys.executable, program])
    assert done.returncode == 7


def test_junit(debox, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(ASYNCIO.format(block="time.sleep(0.05)"))
    path = tmp_path / "guard.xml"
    done = subprocess.run(
        [debox, "guard", *PATIENT, "--format", "junit", "-o", path, "--", sys.executable, program],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    suite = xml.etree.ElementTree.parse(path).getroot().find("testsuite")
    cases = suite.findall("testcase")
    assert len(cases) == 2 and "never blocks" in cases[0].get("name")
    assert "clock_nanosleep" in cases[0].find("failure").get("message")
    assert cases[1].find("error") is None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def await_port(port):
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.1)


def test_redis_as_it_comes(debox, tmp_path):
    port = free_port()
    server = ["redis-server", "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    guarded = subprocess.Popen(
        [debox, "guard", *PATIENT, "--", *server],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        await_port(port)
        load = ["redis-benchmark", "-p", str(port), "-n", "20000", "-c", "10", "-t", "get,set"]
        subprocess.run(load, capture_output=True, check=True, timeout=120)
    finally:
        guarded.terminate()
    said = guarded.communicate(timeout=120)[1]
    assert guarded.returncode == 0, said
    assert "waits for events" in said


def test_nginx_as_it_comes(debox, tmp_path):
    port = free_port()
    (tmp_path / "index.html").write_text("hello" * 1000)
    for name in "logs", "body":
        (tmp_path / name).mkdir()
    config = tmp_path / "nginx.conf"
    paths = " ".join(
        f"{kind}_temp_path {tmp_path}/body/{kind};"
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    config.write_text(
        f"daemon off; worker_processes 1; pid {tmp_path}/pid; error_log {tmp_path}/logs/error;"
        f"user root; events {{}} http {{ access_log {tmp_path}/logs/access; {paths} server {{"
        f"listen 127.0.0.1:{port}; root {tmp_path}; }} }}"
    )
    guarded = subprocess.Popen(
        [debox, "guard", *PATIENT, "--", "nginx", "-c", config],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        await_port(port)
        for _ in range(200):
            answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=60)
            assert len(answer.read()) == 5000
    finally:
        guarded.terminate()
    said = guarded.communicate(timeout=120)[1]
    assert guarded.returncode == 0, said
    assert "nginx/" in said and "waits for events" in said


def test_a_running_loop_is_guarded_between_marks(debox, tmp_path):
    """As the pytest plugin uses it."""
    program = (
        "import asyncio, time\n"
        "async def main():\n"
        "    for _ in range(100000):\n"
        "        await asyncio.sleep(0.01)\n"
        "        time.sleep(0.03)\n"
        "asyncio.run(main())\n"
    )
    loop = subprocess.Popen([sys.executable, "-c", program])
    guarded = subprocess.Popen(
        [debox, "guard", *PATIENT, "--stream", "--format", "json", "-o", tmp_path / "out",
         "-p", str(loop.pid)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert json.loads(guarded.stdout.readline()) == {"ready": True}
        time.sleep(1)
        guarded.stdin.write("here\n")
        guarded.stdin.flush()
        seen = []
        while True:
            line = json.loads(guarded.stdout.readline())
            if "mark" in line:
                break
            seen.append(line["violation"])
        assert line["mark"] == "here"
        assert len(seen) >= 2 and all(one["syscall"] == "clock_nanosleep" for one in seen)
        assert all(one["monotonic_ns"] < line["now_ns"] for one in seen)
        guarded.stdin.close()
        assert guarded.wait(timeout=60) == 3
    finally:
        for process in guarded, loop:
            process.kill()
            process.wait()
