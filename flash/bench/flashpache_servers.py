# SPDX-License-Identifier: MIT OR Apache-2.0
"""The servers of flashpache.py, as their distribution builds them: how each is started alone, and how it asks the path
server."""

import socket

# Waiting workers must not be what is short.
WORKERS = 100
USER = "www-data"


def shim(place, root, deadline):
    """What the environment of a server says to the preload shim."""
    return {
        "LD_PRELOAD": str(place / "libflash_paths.so"),
        "FLASH_PATHS_SOCKET": str(place / "paths"),
        "FLASH_PATHS_ROOTS": str(root),
        "FLASH_PATHS_DEADLINE_MS": str(deadline),
    }


class Apache:
    """With processes that have one connection each (prefork), or with threads for requests (event)."""

    variants = ("alone", "module", "shim")
    program = "apache2"
    warm_rate = 800

    def __init__(self, mpm):
        self.mpm = mpm
        self.title = f"Apache {mpm}"

    def command(self, place, root, port, variant, deadline):
        """Writes the configuration; the command."""
        event = "ServerLimit 64"
        prefork = f"ServerLimit {WORKERS}\nStartServers {WORKERS}"
        module = (
            f"LoadModule flashpache_module {place}/mod_flashpache.so\nFlashPathServer {place}/paths\n"
            f"FlashPathDeadline {deadline}"
        )
        file = place / f"apache-{self.mpm}.conf"
        file.write_text(
            f"""
ServerRoot {place}
ServerName localhost
PidFile {place}/pid
ErrorLog {place}/error.log
DefaultRuntimeDir {place}
Listen 127.0.0.1:{port}
ListenBacklog 4096
User {USER}
Group {USER}
LoadModule mpm_{self.mpm}_module /usr/lib/apache2/modules/mod_mpm_{self.mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
{event if self.mpm == "event" else prefork}
MaxRequestWorkers {WORKERS}
MaxKeepAliveRequests 0
DocumentRoot {root}
{module if variant == "module" else ""}
""",
            encoding="utf-8",
        )
        return [self.program, "-f", file, "-DFOREGROUND"]


class CherryPy:
    """A pool of threads, each of which serves one connection: `os.stat` and `open` by absolute names, and `read`. It has no
    module for the path server."""

    variants = ("alone", "shim")
    program = "cherryd3"
    title = "CherryPy"
    # It is in Python, and answers some hundred requests per second.
    warm_rate = 200

    def command(self, place, root, port, _variant, _deadline):
        """Writes the configuration; the command."""
        (place / "cherrypy.conf").write_text(
            f"""
[global]
environment = "production"
log.screen = False
server.socket_host = "127.0.0.1"
server.socket_port = {port}
server.socket_queue_size = 1024
server.thread_pool = {WORKERS}
[/]
tools.staticdir.on = True
tools.staticdir.dir = "{root}"
""",
            encoding="utf-8",
        )
        text = f'import cherrypy\n\ncherrypy.tree.mount(None, "/", "{place}/cherrypy.conf")\n'
        (place / "mounted_files.py").write_text(text, encoding="utf-8")
        # It stays root otherwise.
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
        return [*user, self.program, "-c", place / "cherrypy.conf", "-P", place, "-i", "mounted_files"]


SERVERS = {"prefork": Apache("prefork"), "event": Apache("event"), "cherrypy": CherryPy()}


def requests(files):
    """What is compared: requests for these files in many ways, and for what is not there."""
    lines = []
    for name in files:
        lines += [("GET", name, ""), ("HEAD", name, "")]
    first = files[0]
    folder = first.rpartition("/")[0]
    lines += [
        ("GET", first, "Range: bytes=10-19\r\n"),
        ("GET", first, "Range: bytes=99999999-\r\n"),
        ("GET", first, "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT\r\n"),
        ("GET", first, "If-None-Match: *\r\n"),
        ("POST", first, "Content-Length: 0\r\n"),
        ("GET", folder, ""), ("GET", f"{folder}/", ""), ("GET", "/none", ""), ("GET", "/none/none", ""),
        ("GET", f"{first}/none", ""), ("GET", f"{folder}/../{first.lstrip('/')}", ""), ("GET", "/../etc/passwd", ""),
        ("GET", f"{first}?x=1", ""), ("GET", f"/{first}", ""), ("GET", "/%00", ""),
    ]
    return [
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n".encode()
        for method, target, fields in lines
    ]


def answer(address, request):
    """What the server answers, without the time and the port."""
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(request)
        received = bytearray()
        while part := client.recv(1 << 16):
            received += part
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Date: ")]
    whole = b"\r\n".join(lines) + b"\r\n\r\n" + body
    return whole.replace(b":%d" % address[1], b":*").replace(b"Port %d" % address[1], b"Port *")
