# SPDX-License-Identifier: MIT OR Apache-2.0
"""A machine that is slow for five reasons at once, made of real programs:

- PostgreSQL under pgbench, whose clients all update the few rows of a small bank;
- nginx, which serves files from a slow disk;
- a Node service whose loop runs a program for every request (`execSync`);
- a backup (`tar`) that reads the slow disk all the time, and so saturates it;
- a nightly job that holds a lock (`flock`) while the next one waits for it.

The slow disk is the machine's own loop device (`latlab disk`), so nothing else on the machine is slow.
"""

import http.client
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import threading
import time

SERVICE = """
const http = require('http');
const { execSync } = require('child_process');
http.createServer((request, response) => {
    if (request.url === '/thumbnail') execSync('sleep 0.3');
    response.end('ok');
}).listen(Number(process.argv[2]), '127.0.0.1');
"""

NGINX = """
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx.error;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {work}/tmp;
    proxy_temp_path {work}/tmp;
    fastcgi_temp_path {work}/tmp;
    uwsgi_temp_path {work}/tmp;
    scgi_temp_path {work}/tmp;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""

FILES = 80
FILE_BYTES = 4 << 20
PG = pathlib.Path("/usr/lib/postgresql")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(holds, what, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Machine:
    """Starts everything, and ends it."""

    def __init__(self, work, latlab, parts=("postgres", "disk", "nginx", "node", "backup", "cron"), loads=True):
        self.work = pathlib.Path(work)
        self.latlab = latlab
        self.parts = parts
        # Without, the servers have no clients.
        self.loads = loads
        self.disk = f"operator-{os.getpid()}"
        self.started = []
        self.pids = {}
        self.ends = threading.Event()
        self.helpers = []

    def __enter__(self):
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            self.work.chmod(0o755)
            self.work.parent.chmod(0o755)
            for part in self.parts:
                getattr(self, f"start_{part}")()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.ends.set()
        for helper in self.helpers:
            helper.join()
        for child in reversed(self.started):
            try:
                os.killpg(child.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        for child in reversed(self.started):
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if "disk" in self.parts:
            subprocess.run([self.latlab, "disk", "down", self.disk], check=False, capture_output=True)
        shutil.rmtree(self.work, ignore_errors=True)

    def start(self, name, command, **options):
        with open(self.work / f"{name}.log", "ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
            )
        self.started.append(child)
        self.pids[name] = child.pid
        return child

    def repeat(self, work):
        """Does this in a thread until the machine ends."""

        def loop():
            while not self.ends.is_set():
                work()

        helper = threading.Thread(target=loop, daemon=True)
        helper.start()
        self.helpers.append(helper)

    def start_postgres(self):
        binaries = max(PG.glob("*/bin"), key=lambda path: int(path.parent.name))
        data = self.work / "postgres"
        data.mkdir()
        owner = pwd.getpwnam("postgres")
        os.chown(data, owner.pw_uid, owner.pw_gid)
        asks = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        place = {"cwd": data, **asks}
        subprocess.run([binaries / "initdb", "-D", data / "db"], check=True, capture_output=True, **place)
        self.start(
            "postgres",
            [binaries / "postgres", "-D", data / "db", "-k", data, "-c", "listen_addresses="],
            **place,
        )
        host = ["-h", str(data)]
        ready = [binaries / "pg_isready", *host]
        wait_for(lambda: subprocess.run(ready, capture_output=True).returncode == 0, "PostgreSQL")
        self.sql_options, self.sql_place = host, place
        if not self.loads:
            return
        bench = str(binaries / "pgbench")
        subprocess.run([bench, *host, "-i", "-s", "1", "-q", "postgres"], check=True, capture_output=True, **place)
        self.start("pgbench", [bench, *host, "-c", "6", "-R", "150", "-T", "36000", "postgres"], **place)

    def start_disk(self):
        files = self.work / "files"
        files.mkdir()
        block = os.urandom(1 << 20)
        for number in range(FILES):
            with open(files / f"{number}.bin", "wb") as file:
                for _ in range(FILE_BYTES >> 20):
                    file.write(block)
        self.mount = self.work / "disk"
        self.mount.mkdir()
        subprocess.run(
            [self.latlab, "disk", "up", self.disk, "--from", files, "--mount", self.mount]
            + ["--service", "8ms", "--sequential", "8ms"],
            check=True,
            capture_output=True,
        )
        self.repeat(self.forget)

    def forget(self):
        """Files are read seldom on a real machine; here they are dropped from memory instead."""
        for file in self.mount.glob("*.bin"):
            with open(file, "rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.ends.wait(2)

    def start_nginx(self):
        self.nginx_port = free_port()
        (self.work / "tmp").mkdir()
        text = NGINX.format(work=self.work, port=self.nginx_port, root=self.mount)
        (self.work / "nginx.conf").write_text(text)
        self.start("nginx", ["nginx", "-c", str(self.work / "nginx.conf")])
        wait_for(lambda: answers(self.nginx_port), "nginx")
        if not self.loads:
            return
        # The worker must be able to read the mount.
        self.repeat(lambda: self.ask(self.nginx_port, f"/{time.monotonic_ns() // 1000 % FILES}.bin", 0.1))

    def start_node(self):
        self.node_port = free_port()
        (self.work / "service.js").write_text(SERVICE)
        self.start("node", ["node", str(self.work / "service.js"), str(self.node_port)])
        wait_for(lambda: answers(self.node_port), "node")
        if self.loads:
            self.repeat(lambda: self.ask(self.node_port, "/thumbnail", 0.7))

    def ask(self, port, path, pause):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path)
            connection.getresponse().read()
            connection.close()
        except (OSError, http.client.HTTPException):
            pass
        self.ends.wait(pause)

    def start_backup(self):
        command = f"while :; do tar cf - {self.mount} | cat >/dev/null; done"
        self.start("backup", ["sh", "-c", command])

    def start_cron(self):
        lock = self.work / "nightly.lock"
        self.start("cron", ["flock", str(lock), "sleep", "36000"])
        time.sleep(0.3)
        self.start("cron-next", ["flock", str(lock), "true"])
