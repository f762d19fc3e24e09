# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes to a database that another process has locked: SQLite sleeps and tries again."""

import sqlite3
import sys
import time

connection = sqlite3.connect(sys.argv[3], timeout=0.2, isolation_level=None)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        connection.execute("insert into notes values ('one more')")
    except sqlite3.OperationalError as error:
        assert "locked" in str(error), error
