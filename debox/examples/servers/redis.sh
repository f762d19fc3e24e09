#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# An untouched redis-server that syncs its log, under debox: it is started, gets writes from 20 clients,
# and ends.
#
#   debox/examples/servers/redis.sh record -o redis.parquet
#   debox/examples/servers/redis.sh guard --max-blocked 1ms
#   APPENDFSYNC=everysec debox/examples/servers/redis.sh guard --max-blocked 1ms
#
# The arguments are those of debox, without the command. debox/docs/example-blocking.md is the page to it.
set -eu

: "${DEBOX:=debox}" "${APPENDFSYNC:=always}" "${WRITES:=20000}" "${PORT:=7777}"

[ $# -gt 0 ] || set -- record -o redis.parquet
directory=$(mktemp -d)
server=''
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$directory"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

"$DEBOX" "$@" -- redis-server --port "$PORT" --dir "$directory" --save '' --appendonly yes \
	--appendfsync "$APPENDFSYNC" >"$directory/log" &
server=$!
until redis-cli -p "$PORT" ping >/dev/null 2>&1; do
	kill -0 "$server" 2>/dev/null || { wait "$server" && exit 1; }
	sleep 0.1
done
# Tells of its progress on lines that are written over each other: the last one counts.
redis-benchmark -p "$PORT" -c 20 -n "$WRITES" -t set -q | tr '\r' '\n' | grep 'per second'
redis-cli -p "$PORT" shutdown nosave || true
status=0
wait "$server" || status=$?
server=''
exit "$status"
