# SPDX-License-Identifier: MIT OR Apache-2.0
"""Real programs that do the same each time, as shell scripts.

Each run has a directory of its own below TMPDIR, which remains until the machine is removed: ext4 takes ten times as
long to create files soon after as many were deleted, because it passes over their inodes."""

import glob
import os
import shutil

SQLITE = r"""
cd "$(mktemp -d)"
{
    echo 'CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);'
    i=0
    while [ $i -lt 60 ]; do
        echo "INSERT INTO t(b) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<200)
              SELECT hex(n*n) FROM c;"
        i=$((i + 1))
    done
    echo 'SELECT count(*), max(b) FROM t; CREATE INDEX i ON t(b); DELETE FROM t WHERE a % 3 = 0; VACUUM;'
} | sqlite3 s.db
"""

GIT = r"""
cd "$(mktemp -d)"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init -q . && git config user.email a@b && git config user.name a
i=0
while [ $i -lt 200 ]; do echo "line $i" > "f$i"; i=$((i + 1)); done
git add . && git commit -q -m one
i=0
while [ $i -lt 200 ]; do echo "more $i" >> "f$i"; i=$((i + 2)); done
git status -s && git commit -q -a -m two && git log --stat && git gc -q
"""

TAR = r"""
cd "$(mktemp -d)" && tar cf d.tar -C /usr/share doc/libc6 doc/git doc/gcc-12-base perl5 && mkdir d
tar xf d.tar -C d && find d -type f | wc -l
"""

PYTHON = r"""
i=0
while [ $i -lt 8 ]; do /usr/bin/python3 -c 'import json, email.message, http.client, argparse'; i=$((i + 1)); done
"""

COMPILE = r"""
cd "$(mktemp -d)" && i=0
while [ $i -lt 120 ]; do
    echo "int f$i(int a, int *b) { int s = 0; for (int i = 0; i < a; i++) s += b[i] * (i ^ $i); return s; }" >> c.c
    i=$((i + 1))
done
echo 'int main(void) { int b[9] = {1}; return f1(9, b) & 0; }' >> c.c
gcc -O2 -o c.out c.c && ./c.out
"""

GZIP = r"""
cd "$(mktemp -d)" && tar cf z.tar -C /usr/share perl5 && gzip -9 -c z.tar > z.gz && gzip -dc z.gz | sha256sum
"""

# Pipes between processes that run at the same time.
SORT = r"""
find /usr/share/doc /usr/include -xdev | awk -F/ '{ print NF, $NF }' | LC_ALL=C sort | uniq -c | tail -1
"""

REDIS = r"""
cd "$(mktemp -d)"
redis-server --port 0 --unixsocket "$PWD/r.sock" --save '' --appendonly no --daemonize no --logfile r.log &
server=$!
trap 'kill $server' EXIT
n=0
while [ ! -S r.sock ] && [ $n -lt 400 ]; do sleep 0.01; n=$((n + 1)); done
redis-benchmark -s r.sock -q -n 8000 -c 10 -t set,get,lpush
redis-cli -s r.sock shutdown nosave
trap - EXIT
wait $server
"""

# What a web server has, and what ApacheBench asks of it at $port once it is there. It is started between the two.
SITE = r"""
cd "$(mktemp -d)"
mkdir html
head -c 4000 /usr/bin/env > html/small
head -c 300000 /usr/bin/git > html/large
port=$((20000 + $$ % 10000))
"""
REQUESTS = r"""
server=$!
trap 'kill $server' EXIT
n=0
while ! ab -q -n 1 "http://127.0.0.1:$port/small" > ab.log 2>&1 && [ $n -lt 400 ]; do sleep 0.01; n=$((n + 1)); done
ab -q -k -n 8000 -c 8 "http://127.0.0.1:$port/small"
ab -q -n 1500 -c 8 "http://127.0.0.1:$port/small"
ab -q -k -n 800 -c 8 "http://127.0.0.1:$port/large"
trap - EXIT
kill $server
wait $server
"""

NGINX = (
    SITE
    + r"""
cat > nginx.conf <<END
daemon off; pid nginx.pid; user root; worker_processes 1; error_log error.log;
events { worker_connections 64; }
http {
    access_log access.log; sendfile on; keepalive_requests 100000; root html;
    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
    server { listen 127.0.0.1:$port; }
}
END
nginx -p "$PWD" -e error.log -c nginx.conf &
"""
    + REQUESTS
)

FLASH = (
    SITE
    + r"""
flash serve html --listen "127.0.0.1:$port" > flash.log 2>&1 &
"""
    + REQUESTS
)

# A cluster of its own, with a table of pgbench, whose transactions are written to the disk one by one. Root may not run it.
POSTGRES = r"""
cd "$(mktemp -d)"
chown 65534 .
chmod 700 .
bin=$(echo /usr/lib/postgresql/*/bin)
as="setpriv --reuid=65534 --regid=65534 --clear-groups"
$as "$bin/initdb" -D data -U a -A trust --locale=C --wal-segsize=1 > initdb.log
$as "$bin/postgres" -D data -k "$PWD" -c listen_addresses= 2> postgres.log &
server=$!
trap 'kill -INT $server; tail -5 postgres.log >&2' EXIT
n=0
while ! "$bin/pg_isready" -q -h "$PWD" && [ $n -lt 400 ]; do sleep 0.01; n=$((n + 1)); done
$as "$bin/pgbench" -h "$PWD" -U a -i -q postgres
$as "$bin/pgbench" -h "$PWD" -U a -n -c 4 -t 250 postgres
trap - EXIT
kill -INT $server
wait $server
"""

NEEDED = {
    "sqlite": ("sqlite3", SQLITE),
    "git": ("git", GIT),
    "tar": ("tar", TAR),
    "python": ("/usr/bin/python3", PYTHON),
    "compile": ("gcc", COMPILE),
    "gzip": ("gzip", GZIP),
    "sort": ("awk", SORT),
    "redis": ("redis-server", REDIS),
    "nginx": ("nginx", NGINX),
    "flash": ("ab", FLASH),
    "postgres": ("postgres", POSTGRES),
}


def installed(program):
    """Its path; Debian has PostgreSQL's server and nginx outside of what users search."""
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", *sorted(glob.glob("/usr/lib/postgresql/*/bin"))]
    return shutil.which(program, path=os.pathsep.join(places))


def programs(names):
    """By name: the words that run it. Those whose program is missing are named apart."""
    found, missing = {}, []
    for name, (needed, script) in NEEDED.items():
        if names and name not in names:
            continue
        if installed(needed):
            found[name] = ["sh", "-e", "-c", script]
        else:
            missing.append((name, f"{needed} is not installed"))
    return found, missing
