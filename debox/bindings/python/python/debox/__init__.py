# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the time of a system call, and of a request, went.

    import debox

    debox.enable()                      # root, or a broker: see README.md

    os.write(fd, data)
    last = debox.last()                 # the record of that call, read in place
    if last.blocked_ns > 1_000_000:
        print(last.name, debox.explain(last)[0].label)

    with debox.scope("request") as s:   # sums up what this thread does in here
        handle(request)
    log.info("GET /index.html 200 %s", s)   # wall=4.10ms cpu=1.30ms blocked=2.75ms ...

Every time is in nanoseconds.
"""

from ._debox import (
    HISTORY_MAX,
    NESTED,
    PARTIAL,
    RESTARTED,
    USER_TAP,
    AlreadyEnabledError,
    ArgumentError,
    CpuOwner,
    Error,
    Explanation,
    InterruptedError,
    Last,
    NoSuchThreadError,
    NotEnabledError,
    NotMonitoredError,
    PrivilegeError,
    Record,
    Scope,
    Sleep,
    StaleError,
    SystemRefusedError,
    UnsupportedError,
    WrongThreadError,
    disable,
    enable,
    explain,
    history,
    is_enabled,
    last,
    pause,
    resume,
    scope,
)

__all__ = [
    "HISTORY_MAX",
    "NESTED",
    "PARTIAL",
    "RESTARTED",
    "USER_TAP",
    "AlreadyEnabledError",
    "ArgumentError",
    "CpuOwner",
    "Error",
    "Explanation",
    "InterruptedError",
    "Last",
    "NoSuchThreadError",
    "NotEnabledError",
    "NotMonitoredError",
    "PrivilegeError",
    "Record",
    "Scope",
    "Sleep",
    "StaleError",
    "SystemRefusedError",
    "UnsupportedError",
    "WrongThreadError",
    "disable",
    "enable",
    "explain",
    "history",
    "is_enabled",
    "last",
    "pause",
    "resume",
    "scope",
]
