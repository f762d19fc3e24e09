// SPDX-License-Identifier: MIT OR Apache-2.0
// The report, section by section: the answer, what it was made from, and details on demand.

Object.assign(shortTitles, {
  "missing": "Missing or uncertain", "over-time": "Over time", "flame": "Off-CPU flame graph", "calls": "Calls", "waits": "Waits", "loops": "Event loops",
  "in-flight": "Calls in flight", "slowest": "Slowest calls", "on-cpu": "On-CPU flame graph", "spins": "Spinning", "groups": "By process or unit", "cpu-waits": "Who had the CPU",
  "matrix": "Waits by call", "latency": "Latencies", "user-level": "Program against kernel", "trends": "Growth",
});
listenToSelection();
start([heading, answer, findings, against, overTime, ...(onCpuFirst ? [onCpu, flame] : [flame]), calls, waits, loops, inFlight, slowest, ...(onCpuFirst ? [] : [onCpu]), spins, cpuWaits, matrix, latencies, userLevel, trends, groups, threads]);
