#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Looks every 0.2 s whether a file is there, which never comes.
echo ready
end=$((${EPOCHREALTIME/./} + ${1/./}00000))
until [ -e "$2/the-file" ] || ((${EPOCHREALTIME/./} > end)); do
	sleep 0.2
done
