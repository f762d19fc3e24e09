#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Wants a file's lock for each step, with flock(1), as jobs of cron do.
echo ready
end=$((${EPOCHREALTIME/./} + ${1/./}00000))
while ((${EPOCHREALTIME/./} < end)); do
	flock "$3" true
done
