#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares flash with other servers on files in memory: requests per second, latency, CPU per request, idle connections.

On a machine that does nothing else, with two CPUs or more; as root, so that all servers can run as one other user:

    sudo python3 flash/bench/in_memory.py -o in-memory.json --rounds 5

Each server has one thread (or process) for its connections, alone on the first CPU; wrk has the others. In a round each
server is started once, answers all workloads in turn, and ends; the next round begins with another server. So what
the machine does meanwhile hits all of them. Per workload and round: requests per second, median and 99th percentile of
wrk's latencies, and the CPU time of the server's threads for each request. A ratio is of two servers in the same round;
shown are the median of the rounds and, in brackets, the least and the greatest.

`--file-system` puts the files on an overlayfs, as a container's are, or on a tmpfs: mounts that only this program and the
servers see. The rounds of each file system need an output of their own.

If the output exists, the rounds are added to it: long measurements can be made in pieces. `--from` shows the tables of a
file. `--servers` and `--workloads` choose some by their names. What is not installed is left out, and named.
`flash/bench/newest_nginx DIR` builds a newer nginx than a distribution's.

Exit status: 0 if flash meets all goals, 1 if not, 2 if it could not be measured.
"""

import argparse
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import in_memory_page
import peers

CONNECTIONS = 32
SMALL, LARGE = 1 << 10, 1 << 20
# SPECweb99's classes: how many of 100 requests are for files of up to so many bytes.
MIXED = ((35, 1 << 10), (50, 10 << 10), (14, 100 << 10), (1, 1 << 20))
USER = "nobody"
# In the environment, if this process has mounts of its own.
ALONE = "FLASH_BENCH_HAS_OWN_MOUNTS"

# wrk's script of a list of paths, in an order that is the same in all runs.
PATHS = """
local requests, at = {}, 0
init = function()
  for line in io.lines("%s") do requests[#requests + 1] = wrk.format("GET", line) end
end
request = function() at = at %% #requests + 1; return requests[at] end
"""

WORKLOADS = {
    "small": ("http", "/small", []),
    "mixed": ("http", None, []),
    "large": ("http", "/large", []),
    "small, new connections": ("http", "/small", ["-H", "Connection: close"]),
    "small, TLS": ("https", "/small", []),
    "mixed, TLS": ("https", None, []),
    "large, TLS": ("https", "/large", []),
}


def fail(why):
    """Ends the program: it could not be measured."""
    print(f"in_memory.py: {why}", file=sys.stderr)
    sys.exit(2)


def free_port():
    """A port that nobody has now."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def make_files(place):
    """Files of the server's own user, and the same ones of another; their directories, and the list of the mix."""
    files = {whose: place / whose for whose in ("own", "another")}
    owner = pwd.getpwnam(USER)
    paths = []
    for whose, root in files.items():
        root.mkdir()
        names = {"small": SMALL, "large": LARGE}
        for share, most in MIXED:
            # Nine sizes of each class, as in SPECweb99.
            names.update({f"{most}-{step}": most * step // 9 for step in range(1, 10)})
        for name, size in names.items():
            (root / name).write_bytes(os.urandom(size))
        if whose == "own":
            for path in [root, *root.iterdir()]:
                os.chown(path, owner.pw_uid, owner.pw_gid)
    for number in range(1000):
        # A fixed permutation of the hundredths, so that all runs ask for the same.
        at, hundredth = 0, number * 37 % 100
        for share, most in MIXED:
            at += share
            if hundredth < at:
                paths.append(f"/{most}-{number * 7 % 9 + 1}\n")
                break
    mix = place / "mix"
    mix.write_text("".join(paths), encoding="ascii")
    script = place / "mix.lua"
    script.write_text(PATHS % mix, encoding="ascii")
    return files, script


@contextlib.contextmanager
def documents(kind, place):
    """As `make_files`, on such a file system."""
    if not kind:
        yield make_files(place)
        return
    mounted, below = place / "mounted", place / "below"
    for directory in (mounted, below, place / "upper", place / "work"):
        directory.mkdir()
    options = "mode=0755"
    if kind == "overlay":
        # The files are in the lower layer, as those of a container's image.
        made = make_files(below)
        options = f"lowerdir={below},upperdir={place / 'upper'},workdir={place / 'work'}"
    command = ["mount", "-t", kind, "-o", options, kind, str(mounted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"there is no {kind} here: {done.stderr.strip()}")
    try:
        files, script = made if kind == "overlay" else make_files(mounted)
        yield {whose: mounted / whose for whose in files}, script
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def certificate(place):
    """A certificate and its key."""
    cert, key = place / "cert.pem", place / "key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    for path in (cert, key):
        path.chmod(0o644)
    return str(cert), str(key)


def processes(pid):
    """A process and all that come from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                parents.setdefault(int(after[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def cpu_ns(pid):
    """CPU time of all threads of a server."""
    total = 0
    for one in processes(pid):
        for file in Path(f"/proc/{one}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(file.read_text(encoding="ascii").split()[0])
    return total


def memory_kib(pid):
    """Memory of all processes of a server; what they share counts once."""
    total = 0
    for one in processes(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii")
            total += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    return total


@contextlib.contextmanager
def running(server, files, pair):
    """The server on the first CPU; its process and ports."""
    with tempfile.TemporaryDirectory(prefix="flash-in-memory-") as place:
        owner = pwd.getpwnam(USER)
        os.chown(place, owner.pw_uid, owner.pw_gid)
        port, tls = free_port(), free_port()
        command, environment = server.command(place, port, tls, files, pair)
        os.chown(os.path.join(place, "server.conf"), owner.pw_uid, owner.pw_gid)
        own = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
        with open(os.path.join(place, "said"), "w", encoding="utf-8") as said:
            it = subprocess.Popen(
                ["prlimit", f"--nofile={peers.DESCRIPTORS}", "taskset", "-c", "0", *own, *command],
                env={**os.environ, **environment},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                for address in (port, tls):
                    wait_for(server, it, address, place)
                yield it.pid, port, tls
            finally:
                it.send_signal(signal.SIGTERM)
                try:
                    it.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(it.pid, signal.SIGKILL)
                    it.wait()


def wait_for(server, process, port, place):
    """Until the server accepts connections."""
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    said = Path(place, "said").read_text(encoding="utf-8", errors="replace")
    fail(f"{server.name} did not start: {said.strip()[-500:]}")


def check(server, port, tls, files):
    """The server sends these very files, in both ways; what was agreed upon for TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    agreed = None
    for number, address in enumerate((port, tls)):
        for name in ("small", "large"):
            with socket.create_connection(("127.0.0.1", address), timeout=10) as it:
                if number == 1:
                    it = context.wrap_socket(it)
                    agreed = f"{it.version()} {it.cipher()[0]}"
                it.sendall(f"GET /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = b"".join(iter(lambda: it.recv(1 << 16), b""))
                it.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200") or body != (files[server.files] / name).read_bytes():
                fail(f"{server.name} does not send {name}: {head[:200]!r}")
    return agreed


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def load(workload, port, tls, script, seconds):
    """What wrk says of a workload; None if some requests were not answered well."""
    scheme, path, words = WORKLOADS[workload]
    others = max((os.cpu_count() or 2) - 1, 1)
    url = f"{scheme}://127.0.0.1:{port if scheme == 'http' else tls}{path or '/'}"
    command = ["wrk", "-t", str(min(others, 4)), "-c", str(CONNECTIONS), "-d", f"{seconds}s", "--latency", *words]
    command += [] if path else ["-s", str(script)]
    done = subprocess.run(
        ["taskset", "-c", f"1-{others}", *command, url], capture_output=True, text=True, check=False
    )
    found = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)", done.stdout)
    wrong = re.search(r"Non-2xx.*|Socket errors.*", done.stdout)
    if done.returncode != 0 or not found or int(found[1]) == 0:
        return None
    # A client that closes while wrk ends is no error of the server.
    if wrong and not re.search(r"connect 0, read \d+, write 0, timeout 0", wrong[0]):
        return None
    result = {"requests": int(found[1]), "rate": float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])}
    for name in ("50", "99"):
        value = re.search(rf"^\s+{name}%\s+([\d.]+)(us|ms|s|m)", done.stdout, re.M)
        result[f"p{name}"] = float(value[1]) * UNITS[value[2]]
    return result


def idle(server, files, pair):
    """Memory of a server with so many idle connections, of which each has asked for a file; and without."""
    with running(server, files, pair) as (pid, port, _), contextlib.ExitStack() as clients:
        def ask(sockets):
            for it in sockets:
                it.sendall(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for it in sockets:
                it.settimeout(10)
                left = None
                answer = b""
                while left is None or left > 0:
                    more = it.recv(1 << 16)
                    if not more:
                        return False
                    answer += more
                    if left is None and b"\r\n\r\n" in answer:
                        head, _, body = answer.partition(b"\r\n\r\n")
                        left = int(re.search(rb"(?i)content-length:\s*(\d+)", head)[1]) - len(body)
                    elif left is not None:
                        left -= len(more)
            return True

        before = memory_kib(pid)
        try:
            for _ in range(peers.IDLE // 100):
                group = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(100)]
                for it in group:
                    clients.enter_context(it)
                if not ask(group):
                    return None
        except OSError:
            return None
        time.sleep(2)
        return {"connections": peers.IDLE // 100 * 100, "before": before, "with": memory_kib(pid)}


def one_round(number, servers, workloads, files, pair, script, seconds):
    """Measures all servers once, beginning with another one each time."""
    results = {}
    at = number % len(servers)
    for server in servers[at:] + servers[:at]:
        with running(server, files, pair) as (pid, port, tls):
            results[server.name] = {"tls": check(server, port, tls, files), "workloads": {}}
            for workload in workloads:
                load(workload, port, tls, script, 1)
                before = cpu_ns(pid)
                said = load(workload, port, tls, script, seconds)
                if said:
                    said["cpu_us"] = (cpu_ns(pid) - before) / 1000 / said["requests"]
                results[server.name]["workloads"][workload] = said
        print(f"  {server.name}", file=sys.stderr, flush=True)
    return results


def version(program):
    """What a program says that it is."""
    for word in ("-v", "version", "--version"):
        done = subprocess.run([program, word], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (text := (done.stdout + done.stderr).strip()):
            return re.sub(r"^[A-Za-z ]*version: ", "", text.splitlines()[0], flags=re.I)
    return "unknown"


def measure(arguments):
    """Adds rounds to the output, and returns all that is in it."""
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        fail("this takes root, and two CPUs: one for the server")
    for program in ("wrk", "openssl", "setpriv", "taskset", "prlimit"):
        if not shutil.which(program):
            fail(f"{program} is not installed")
    chosen = [one.strip() for one in arguments.servers.split(";")] if arguments.servers else []
    every = peers.known(arguments.flash, arguments.nginx)
    for word, names, known in (
        ("server", chosen, [one.name for one in every]),
        ("workload", arguments.workloads.split(";") if arguments.workloads else [], list(WORKLOADS)),
    ):
        for name in names:
            if name not in known:
                fail(f"there is no {word} `{name}`; there are {'; '.join(known)}")
    servers = [one for one in every if one.program and (not chosen or one.name in chosen)]
    workloads = [one for one in WORKLOADS if not arguments.workloads or one in arguments.workloads.split(";")]
    found = {"schema": "flash.in-memory/1", "versions": {}, "rounds": [], "idle": []}
    if os.path.exists(arguments.output):
        found = json.loads(Path(arguments.output).read_text(encoding="utf-8"))
    if found.setdefault("file_system", arguments.file_system) != arguments.file_system:
        fail(f"{arguments.output} has rounds of another file system")
    found["absent"] = [one.name for one in every if not one.program]
    found["versions"].update({one.name: version(one.program) for one in servers})
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flash-in-memory-")))
        place.chmod(0o755)
        files, script = stack.enter_context(documents(arguments.file_system, place))
        pair = certificate(place)
        for _ in range(arguments.rounds):
            number = len(found["rounds"])
            print(f"round {number + 1}", file=sys.stderr, flush=True)
            found["rounds"].append(one_round(number, servers, workloads, files, pair, script, arguments.seconds))
            Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if arguments.idle:
            found["idle"].append({one.name: idle(one, files, pair) for one in servers})
            Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="in-memory.json", help="file that the rounds are added to")
    parser.add_argument("--from", dest="kept", metavar="FILE", help="show what was measured before")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each workload")
    parser.add_argument("--idle", action="store_true", help=f"also {peers.IDLE} idle connections, at the end")
    parser.add_argument("--servers", help="names with ';' between them [default: all]")
    parser.add_argument("--workloads", help="names with ';' between them [default: all]")
    parser.add_argument("--file-system", choices=("overlay", "tmpfs"), help="for the files [default: that of temporary files]")
    parser.add_argument("--flash", default="target/release/flash")
    parser.add_argument("--nginx", help="a newer nginx than the installed one")
    arguments = parser.parse_args()
    if arguments.kept:
        try:
            found = json.loads(Path(arguments.kept).read_text(encoding="utf-8"))
            if found.get("schema") != "flash.in-memory/1":
                raise ValueError("it is not of in_memory.py")
        except (OSError, ValueError) as error:
            fail(f"{arguments.kept}: {error}")
    else:
        if arguments.file_system and not os.environ.get(ALONE):
            os.environ[ALONE] = "1"
            os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
        found = measure(arguments)
    sys.exit(0 if in_memory_page.show(found, list(WORKLOADS)) else 1)


if __name__ == "__main__":
    main()
