# SPDX-License-Identifier: MIT OR Apache-2.0
"""A user of the Python package: scripts/packages-test runs it where the wheel is installed, and no Rust."""
import os
import shutil
import time

import debox

assert not shutil.which("cargo")
debox.enable()
reader, writer = os.pipe()
os.write(writer, b"abc")
last = debox.last()
assert (last.name, last.ret, last.args[0]) == ("write", 3, writer), last
assert last.cpu_ns + last.blocked_ns + last.runqueue_ns + last.preempted_ns + last.outside_ns == last.wall_ns

with debox.scope("request") as request:
    time.sleep(0.02)
assert request.wall_ns >= 20_000_000 and request.calls >= 1, request
debox.disable()
print(request)
