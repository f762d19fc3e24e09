#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Starts a program for each word, as careless scripts do.
echo ready
end=$((${EPOCHREALTIME/./} + ${1/./}00000))
while ((${EPOCHREALTIME/./} < end)); do
	/bin/echo word | /bin/cat >/dev/null
done
