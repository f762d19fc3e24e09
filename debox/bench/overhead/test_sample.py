# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""python3 -m unittest discover debox/bench/overhead"""

import json
import tempfile
import unittest
from pathlib import Path

import sample


def report(calls: dict[str, int], untapped: dict[str, int] | None = None, lost: int = 0) -> dict:
    return {
        "syscalls": [{"name": name, "calls": count} for name, count in calls.items()],
        "untapped": [{"syscall": name, "count": n} for name, n in (untapped or {}).items()],
        "lost": {"records": lost, "sleeps": 0},
    }


class Results(unittest.TestCase):
    def test_lines_of_a_workload(self):
        text = "start 2000000000\ntime pipe, 1 CPU 12.5\nvalue pipe, 1 CPU sleeps 2\n"
        text += "made read 5\nmade read 6\nstart 9000000000\n"
        parsed, started = sample.parse(text)
        self.assertEqual(started, 2.0)
        self.assertEqual(parsed.times, {"pipe, 1 CPU": 12.5})
        self.assertEqual(parsed.values, {"pipe, 1 CPU sleeps": 2.0})
        self.assertEqual(parsed.made, {"read": 11})

    def test_a_workload_that_did_not_start(self):
        with self.assertRaises(sample.Unusable):
            sample.parse("")


class Reports(unittest.TestCase):
    def check(self, content: dict, made: dict[str, int]) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report"
            path.write_text(json.dumps(content))
            return sample.check_report(path, made)

    def test_all_calls_seen(self):
        self.assertIsNone(self.check(report({"getppid": 11}), {"getppid": 10}))

    def test_calls_missing(self):
        with self.assertRaisesRegex(sample.Unusable, "recorded 9 of 10 getppid"):
            self.check(report({"getppid": 9}), {"getppid": 10})

    def test_time_between_calls_is_no_call(self):
        with self.assertRaisesRegex(sample.Unusable, "no calls"):
            self.check(report({"(user)": 5}), {})

    def test_anything_lost(self):
        with self.assertRaisesRegex(sample.Unusable, "lost 3 records"):
            self.check(report({"getppid": 10}, lost=3), {"getppid": 10})

    def test_untapped_calls_are_told(self):
        note = self.check(report({"wait4": 4}, {"wait4": 6}), {"wait4": 10})
        self.assertIn("tapped 4 of 10 wait4", note)


if __name__ == "__main__":
    unittest.main()
