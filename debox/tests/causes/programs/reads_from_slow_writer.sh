#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Reads lines of a FIFO, whose writer is slow.
echo ready
end=$((${EPOCHREALTIME/./} + ${1/./}00000))
while ((${EPOCHREALTIME/./} < end)) && read -r line; do
	:
done <"$3"
