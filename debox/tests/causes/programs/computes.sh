#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Adds numbers in the shell itself.
echo ready
end=$((${EPOCHREALTIME/./} + ${1/./}00000))
total=0
while ((${EPOCHREALTIME/./} < end)); do
	for ((i = 0; i < 2000; i++)); do
		((total += i * i % 7))
	done
done
