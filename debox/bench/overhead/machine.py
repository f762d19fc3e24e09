# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""The machine of the measurements."""

import os
import platform
from pathlib import Path


def first_line(path: str, start: str = "") -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line for line in lines if line.startswith(start)), None)


def after_colon(line: str | None) -> str | None:
    return line.split(":", 1)[1].strip() if line and ":" in line else None


def describe() -> dict:
    flags = after_colon(first_line("/proc/cpuinfo", "flags")) or ""
    return {
        "kernel": platform.release(),
        "processor": after_colon(first_line("/proc/cpuinfo", "model name")) or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in flags.split(),
        "spectre_v2": first_line("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
    }


def cpu_seconds() -> dict[str, float]:
    """CPU time of the whole machine so far: used, and stolen by the hypervisor."""
    fields = [int(field) for field in (first_line("/proc/stat", "cpu ") or "").split()[1:]]
    if len(fields) < 8:
        return {"used": 0.0, "stolen": 0.0}
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    tick = os.sysconf("SC_CLK_TCK")
    return {"used": (user + nice + system + irq + softirq) / tick, "stolen": steal / tick}


def tracers() -> list[str]:
    """Running tools that slow down all system calls, including those of the bare run."""
    names = {"debox", "bpftrace", "perf", "strace"}
    found = []
    for process in Path("/proc").glob("[0-9]*/comm"):
        name = first_line(str(process))
        if name in names:
            found.append(name)
    return found
