#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends the requests of this directory to flash, nginx, Apache, lighttpd, and to HAProxy in front of flash, and writes where
their answers differ to differences.md, each difference with the rule that explains it.

    python3 flash/conformance/compare.py [--flash target/release/flash] [--out flash/conformance/differences.md]

Fails if flash's answer is not the one of the corpus, or if no rule explains a difference.
"""

import argparse
import concurrent.futures
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBE = b"GET /probe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
# As long as a server may be silent before its connection counts as one that waits, and until it must be there.
QUIET_S = 1.5
PATIENCE_S = 30
AT_ONCE = 24
MODIFIED = 784111777

# As flash/server/tests/conformance.rs has them.
FILES = {
    "index.html": "the index\n",
    "hello.txt": "0123456789",
    "coded.txt": "plain",
    "coded.txt.gz": "gzip!",
    "coded.txt.br": "brotli",
    "empty": "",
    "a b.txt": "space",
    "100%": "percent",
    "back\\slash": "backslash",
    "sub/index.html": "below\n",
    ".hidden": "secret",
    "probe": "probe",
}

NGINX = """daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log; {user}
events {{}}
http {{
    access_log off; default_type application/octet-stream; types {{ text/html html; text/plain txt; }}
    client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
    server {{ listen 127.0.0.1:{port}; root {root}; index index.html; absolute_redirect off; gzip_static on; }}
}}
"""
APACHE = """ServerRoot {place}
PidFile {place}/apache.pid
ErrorLog {place}/apache.log
ServerName localhost
Listen 127.0.0.1:{port}
{modules}
TypesConfig /dev/null
AddType text/html .html
AddType text/plain .txt
{user}
DocumentRoot {root}
DirectoryIndex index.html
<Directory {root}>
    Options FollowSymLinks
    Require all granted
</Directory>
"""
LIGHTTPD = """server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{place}/lighttpd.log"
index-file.names = ( "index.html" )
mimetype.assign = ( ".html" => "text/html", ".txt" => "text/plain" )
"""
HAPROXY = """global
    maxconn 500
defaults
    mode http
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend front
    bind 127.0.0.1:{port}
    default_backend back
backend back
    server flash 127.0.0.1:{behind}
"""


def decode(text):
    """The bytes that a request of the corpus stands for (see README.md)."""
    out = bytearray()
    at = 0
    simple = {"r": 13, "n": 10, "t": 9, "0": 0, "s": 32, "\\": 92}
    while at < len(text):
        char = text[at]
        repeat = re.compile(r"\{(\d+)\*([^}]*)\}").match(text, at)
        if repeat:
            out += decode(repeat[2]) * int(repeat[1])
            at = repeat.end()
        elif char == "⏎":
            out += b"\r\n"
            at += 1
        elif char == "\\" and text[at + 1] == "x":
            out.append(int(text[at + 2 : at + 4], 16))
            at += 4
        elif char == "\\":
            out.append(simple[text[at + 1]])
            at += 2
        else:
            out += char.encode()
            at += 1
    return bytes(out)


def corpus():
    """Entries as (name, request, statuses, end, reason)."""
    reason = ""
    for path in sorted((HERE / "requests").glob("*.txt")):
        for line in path.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            name, request, answer, why = (part.strip() for part in line.split(" | "))
            reason = reason if why.lower().endswith("as before") else why
            *statuses, end = answer.split("; ")[0].split(" ")
            request = request.replace("{get}", "GET /hello.txt HTTP/1.1⏎Host: a⏎")
            request = request.replace("{h}", " HTTP/1.1⏎Host: a⏎")
            yield name, request, [status.rstrip("h").split("/") for status in statuses], end, reason


def ask(port, request):
    """What a server answers: the statuses, and what becomes of the connection, as the corpus has it."""
    received = b""
    ended = False
    with socket.create_connection(("127.0.0.1", port)) as client:
        with contextlib.suppress(OSError):
            client.sendall(request)
        client.settimeout(QUIET_S)
        try:
            while more := client.recv(1 << 16):
                received += more
            ended = True
        except TimeoutError:
            pass
        except OSError:
            ended = True
    statuses = [status.decode() for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", received)]
    statuses = [status for status in statuses if status != "100"]
    if received.endswith(b"probe"):
        return statuses[:-1], "open"
    return statuses, "close" if ended else "wait"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fill(root):
    (root / "sub/deep").mkdir(parents=True)
    for name, content in FILES.items():
        (root / name).write_text(content)
        os.utime(root / name, (MODIFIED, MODIFIED))
    (root / "future").write_text("tomorrow")
    os.utime(root / "future", (time.time() + 86400,) * 2)
    (root / "out").symlink_to("/etc/passwd")
    (root / "in").symlink_to("hello.txt")


def apache_modules():
    folder = Path("/usr/lib/apache2/modules")
    names = ["mpm_event", "authz_core", "dir", "mime"]
    return "\n".join(f"LoadModule {name}_module {folder}/mod_{name}.so" for name in names)


def commands(place, root, ports, flash):
    """How each server is started: its command line, after its configuration was written."""
    is_root = os.geteuid() == 0
    names = {"place": place, "root": root, "modules": apache_modules(), "behind": ports["flash"]}
    files = {}
    for server, text, user in [
        ("nginx", NGINX, "user root;"),
        ("apache", APACHE, "User www-data\nGroup www-data"),
        ("lighttpd", LIGHTTPD, ""),
        ("haproxy", HAPROXY, ""),
    ]:
        files[server] = place / f"{server}.conf"
        values = names | {"port": ports[server], "user": user if is_root else ""}
        files[server].write_text(text.format(**values))
    listen = f"127.0.0.1:{ports['flash']}"
    return {
        "flash": [flash, "serve", root, "--listen", listen, "--precompressed"],
        "nginx": ["nginx", "-p", place, "-c", files["nginx"]],
        "apache": ["apache2", "-d", place, "-f", files["apache"], "-DFOREGROUND"],
        "lighttpd": ["lighttpd", "-D", "-f", files["lighttpd"]],
        "haproxy": ["haproxy", "-db", "-f", files["haproxy"]],
    }


def version(server, flash):
    asked = {
        "flash": ([flash, "--version"], r"flash (\S+)"),
        "nginx": (["nginx", "-v"], r"nginx/(\S+)"),
        "apache": (["apache2", "-v"], r"Apache/(\S+)"),
        "lighttpd": (["lighttpd", "-v"], r"lighttpd/(\S+)"),
        "haproxy": (["haproxy", "-v"], r"version (\d+\.\d+\.\d+)"),
    }
    command, pattern = asked[server]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "unknown version"


@contextlib.contextmanager
def servers(flash):
    """Starts all of them, and gives their ports."""
    running = []
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        place.chmod(0o755)
        root = place / "root"
        fill(root)
        ports = {server: free_port() for server in ["flash", "nginx", "apache", "lighttpd", "haproxy"]}
        log = (place / "said").open("w")
        try:
            for server, command in commands(place, root, ports, flash).items():
                if not shutil.which(command[0]):
                    sys.exit(f"compare.py: {command[0]} is not installed: run scripts/setup test")
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
                wait_for(server, ports[server], running[-1], place / "said")
            yield ports
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(timeout=60)
            log.close()


def wait_for(server, port, process, said):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            statuses, _ = ask(port, PROBE)
            if statuses == [] or statuses == ["200"]:
                return
        time.sleep(0.1)
    sys.exit(f"compare.py: {server} does not serve: {said.read_text()}")


# A letter for the rule, and what it says. The first that fits explains a difference; see `rule`.
RULES = {
    "L": "Lenient: it serves, or finds nothing at, what flash refuses to read. Two servers can read such a request in two "
    "ways; RFC 9110 and 9112 ask for the refusal, or allow it and name the danger.",
    "S": "Strict: it refuses what flash answers. The standard allows the request.",
    "N": "No answer: it ends the connection, or waits, where flash says what is wrong.",
    "C": "The refusal has another status. Standards leave the choice, or recommend the one that flash sends.",
    "M": "Methods: it answers a method other than GET and HEAD in its own way (OPTIONS with 200 or 405, POST like GET, TRACE "
    "with an echo). flash answers 405 with Allow, or 501 to methods that it does not know.",
    "K": "The same answer, and another end: it keeps a connection that flash closes, or closes one that flash keeps. flash "
    "closes after each request that it could not read, and after a body that it did not read.",
    "R": "Resources: conditions, ranges, names and types are treated otherwise (a symbolic link, a file that begins with "
    "a dot, a compressed form, an invalid range).",
}
REFUSALS = {"400", "405", "408", "411", "413", "414", "417", "421", "422", "426", "431", "501", "505"}
FOUND_OR_NOT = {"101", "200", "206", "301", "304", "403", "404", "412", "416"}


def rule(request, ours, theirs):
    """The letter of the rule that explains a difference, or None."""
    (our_statuses, our_end), (their_statuses, their_end) = ours, theirs
    method = request.lstrip().split(b" ", 1)[0]
    if our_statuses == their_statuses:
        return "K"
    if len(their_statuses) < len(our_statuses):
        return "N"
    first = next((pair for pair in zip(our_statuses, their_statuses) if pair[0] != pair[1]), None)
    if first is None:
        return "L" if our_end != "wait" or their_end == "close" else "S"
    our, their = first
    if method not in (b"GET", b"HEAD") and our in ("204", "405", "501"):
        return "M"
    if our in REFUSALS:
        return "C" if their in REFUSALS or their >= "500" else "L"
    if their in REFUSALS or their >= "500":
        return "S"
    return "R" if {our, their} <= FOUND_OR_NOT else None


def shown(outcome):
    statuses, end = outcome
    return " ".join([*statuses, end])


def measure(ports):
    entries = list(corpus())
    tags = {server: etag(port) for server, port in ports.items()}

    def one(job):
        server, (_, request, _, end, _) = job
        data = decode(request.replace("{etag}", tags[server]))
        return ask(ports[server], data + (PROBE if end != "wait" else b""))

    jobs = [(server, entry) for entry in entries for server in ports]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(one, jobs))
    by_entry = [outcomes[at : at + len(ports)] for at in range(0, len(outcomes), len(ports))]
    return [(entry, dict(zip(ports, outcome))) for entry, outcome in zip(entries, by_entry)]


def etag(port):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"HEAD /hello.txt HTTP/1.0\r\n\r\n")
        head = client.makefile("rb").read().decode()
    return re.search(r"(?i)\netag: (\S+)", head)[1]


def is_expected(entry, outcome):
    _, _, wanted, end, _ = entry
    statuses, their_end = outcome
    fits = len(statuses) == len(wanted) and all(own in one for own, one in zip(statuses, wanted))
    return fits and their_end == end


def table(results, peers):
    """The rows of the differences, how often each rule explains one, and what is wrong."""
    rows, wrong = [], []
    counts = {peer: dict.fromkeys(RULES, 0) for peer in peers}
    for entry, outcomes in results:
        name, request, _, _, reason = entry
        ours = outcomes["flash"]
        if not is_expected(entry, ours):
            wrong.append(f"{name}: flash's answer is {shown(ours)}, which is not that of the corpus")
        cells = []
        for peer in peers:
            theirs = outcomes[peer]
            if theirs == ours:
                cells.append("=")
                continue
            letter = rule(decode(request), ours, theirs)
            if letter is None:
                wrong.append(f"{name}: no rule explains {shown(theirs)} of {peer} beside {shown(ours)}")
                continue
            counts[peer][letter] += 1
            cells.append(f"{shown(theirs)} **{letter}**")
        if any(cell != "=" for cell in cells):
            reason = reason.replace("|", "\\|").replace("<", "&lt;")
            rows.append(f"| {name} | {shown(ours)} | {' | '.join(cells)} | {reason} |")
    return rows, counts, wrong


def page(results, peers, versions):
    rows, counts, wrong = table(results, peers)
    lines = [
        "# Where other servers answer otherwise",
        "",
        "`compare.py` writes this page. It sends the requests of `requests/` to flash and to other servers with plain",
        "configurations, and compares statuses and what becomes of the connection (`README.md` explains both).",
        "HAProxy stands in front of flash: its column is what the two answer together.",
        "",
        f"flash {versions['flash']}; " + ", ".join(f"{peer} {versions[peer]}" for peer in peers) + ".",
        "",
        f"Of {len(results)} requests, {len(rows)} have another answer from at least one server.",
        "",
        "| rule | " + " | ".join(peers) + " | |",
        "| --- |" + " --- |" * (len(peers) + 1),
    ]
    for letter, text in RULES.items():
        numbers = " | ".join(str(counts[peer][letter]) for peer in peers)
        lines.append(f"| **{letter}** | {numbers} | {text} |")
    lines += [
        "",
        "`=` is flash's answer. The reason is the one of flash's answer in the corpus.",
        "",
        "| request | flash | " + " | ".join(peers) + " | reason |",
        "| --- | --- |" + " --- |" * (len(peers) + 1),
        *rows,
    ]
    return "\n".join(lines) + "\n", wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flash", default=HERE.parents[1] / "target/release/flash", type=Path)
    parser.add_argument("--out", default=HERE / "differences.md", type=Path)
    options = parser.parse_args()
    with servers(options.flash.resolve()) as ports:
        results = measure(ports)
        versions = {server: version(server, options.flash.resolve()) for server in ports}
    text, wrong = page(results, [server for server in ports if server != "flash"], versions)
    options.out.write_text(text)
    for line in wrong:
        print(f"compare.py: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
