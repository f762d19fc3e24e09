#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Asks a server that takes its time, with nothing but the shell.
echo ready
end=$((${EPOCHREALTIME/./} + ${1/./}00000))
while ((${EPOCHREALTIME/./} < end)); do
	exec 3<>"/dev/tcp/127.0.0.1/$3"
	printf 'GET / HTTP/1.0\r\n\r\n' >&3
	while read -r line; do
		:
	done <&3
	exec 3>&-
done
