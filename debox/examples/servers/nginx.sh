#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# An untouched nginx that serves files which are not in memory, under debox: it is started, 8 clients ask
# for a file after the other, and it ends.
#
#   debox/examples/servers/nginx.sh record -o nginx.parquet
#   debox/examples/servers/nginx.sh guard
#   AIO=threads debox/examples/servers/nginx.sh guard
#
# The arguments are those of debox, without the command. debox/docs/example-blocking.md is the page to it.
set -eu

: "${DEBOX:=debox}" "${AIO:=off}" "${FILES:=1000}" "${PORT:=7780}"

[ $# -gt 0 ] || set -- record -o nginx.parquet
here=$(dirname "$0")
# Not in /tmp, which may be in memory: there no file ever has to be fetched from a disk.
directory=$(mktemp -d -p "${DIRECTORY:-/var/tmp}")
chmod 755 "$directory" # nginx's workers are another user
server=''
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$directory"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

cat >"$directory/nginx.conf" <<END
daemon off;
worker_processes 1;
pid $directory/pid;
events {}
http {
	access_log off;
	server {
		listen 127.0.0.1:$PORT;
		root $directory/files;
		sendfile on;
		aio $AIO;
	}
}
END
mkdir "$directory/files"
file=0
while [ "$file" -lt "$FILES" ]; do
	file=$((file + 1))
	head -c 100000 /dev/urandom >"$directory/files/$file"
done
sync
# Each file leaves memory, and nothing else does (that is what dd does with nocache and no blocks).
for file in "$directory"/files/*; do
	dd of="$file" oflag=nocache conv=notrunc count=0 status=none
done

"$DEBOX" "$@" -- nginx -c "$directory/nginx.conf" -e "$directory/error.log" &
server=$!
until [ -s "$directory/pid" ]; do
	kill -0 "$server" 2>/dev/null || { wait "$server" && exit 1; }
	sleep 0.1
done
python3 "$here/fetch.py" "$PORT" "$FILES"
kill -QUIT "$(cat "$directory/pid")"
status=0
wait "$server" || status=$?
server=''
exit "$status"
