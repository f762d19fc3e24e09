#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""From `debox top` to five culprits, by keystrokes, in a terminal of 80 by 24 characters (tmux); and the same from the
page of a recording, in a browser.

As root, on a machine that does nothing else; some four minutes:

    sudo python3 debox/tests/operator/trial.py --debox target/release/debox --latlab target/release/latlab

Each culprit has a budget of two minutes, from the first screen on. The keys are those of somebody who has read the
screen's last line and the page of `?` only. Every screen on the way is written to the directory of `-o`.

Exit status: 0 if each was found in time, 1 if not, 2 if the machine could not be set up.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from browser import Browser
from machine import Machine

BUDGET_S = 120
# A person reads a screen before the next key.
READS_S = 2.0

# Culprit, question, and the way: keys as tmux names them; `until`: what has to be on the screen before the next key;
# `row`: a row that is selected with the arrow keys; `finds`: what the last screen says.
CULPRITS = [
    (
        "cron",
        "Which job holds the lock that the next one waits for?",
        [
            {"until": r"flock"},
            {"keys": ["k"], "until": r"by class"},
            {"row": r"^\s*lock\b"},
            {"keys": ["Enter"], "until": r"in class lock"},
            {"row": r"\bflock\b.*flock/\d+"},
            {"keys": ["g"], "until": r"thread \d+ \S+ of process"},
        ],
        r"thread (?P<pid>\d+) .* of process .*(flock|sleep)",
    ),
    (
        "backup",
        "Which process keeps the disk busy?",
        [
            {"keys": ["k"], "until": r"by class"},
            {"row": r"^\s*disk\b"},
            {"keys": ["Enter"], "until": r"in class disk"},
        ],
        r"(?m)^\s*(?P<pid>\d+) tar\b.*(page read|directory read|metadata read|readahead)",
    ),
    (
        "nginx",
        "Why does nginx answer late?",
        [
            {"keys": ["k"], "until": r"by class"},
            {"row": r"^\s*blocked event"},
            {"keys": ["Enter"], "until": r"in class blocked event loop"},
            {"row": r"\bnginx\b"},
            {"keys": ["Enter"], "until": r"by thread"},
            {"keys": ["Enter"], "until": r"Its last calls"},
        ],
        r"thread \d+ nginx.*(?s:.*)page read in \w+ for file \S+(?s:.*)tar/\d+",
    ),
    (
        "node",
        "What blocks the loop of the Node service?",
        [
            {"keys": ["k"], "until": r"by class"},
            {"row": r"^\s*blocked event"},
            {"keys": ["Enter"], "until": r"in class blocked event loop"},
            {"row": r"\bnode\b"},
            {"keys": ["Enter"], "until": r"by thread"},
            {"keys": ["Enter"], "until": r"Its last calls", "then": r"\d (ms|s) asleep"},
            # The program that it runs takes 300 ms: other calls wait for requests.
            {"row": r"3[0-2]\d ms asleep\s+epoll_\w+ .*"},
        ],
        r"spawnSync|SpawnSync|SyncProcess|execSync",
    ),
    (
        "postgres",
        "What do the processes of PostgreSQL wait for?",
        [
            {"keys": ["/"], "until": r"filter:"},
            {"type": "comm == postgres", "keys": ["Enter"], "until": r"where comm == postgres"},
            {"keys": ["l"], "until": r"by label"},
        ],
        r"(fsync writeback|journal commit|block flush|journal space|another process|futex).*",
    ),
]

# The same from the page of a recording: keys, and what can be seen then.
ON_THE_PAGE = [
    ("cron", ["/", "flock"], r"flock\b.*flock.*flock \(\d+\)"),
    ("backup", ["/", "page read"], r"of tar [^\n]*page read"),
    ("nginx", [], r"The event loop of nginx was blocked[^$]*?(page read|readahead)"),
    ("node", [], r"The event loop of node was blocked[^$]*?another loop inside it"),
    ("postgres", ["/", "postgres"], r"postgres[^$]*?(fsync writeback|journal commit|block flush|futex)"),
]


class Terminal:
    """debox top in a terminal of its own."""

    opened = 0

    def __init__(self, debox, work, arguments=()):
        Terminal.opened += 1
        # A server that ends may still have its socket.
        self.name = f"debox-operator-{os.getpid()}-{Terminal.opened}"
        self.pressed = []
        command = " ".join([str(debox), "top", *arguments, "2>", str(work / "top.err")])
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", "-c", str(work), command)

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-L", self.name, "-f", "/dev/null", *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"tmux {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "top")

    def press(self, *keys):
        for key in keys:
            self.pressed.append(key)
            self.tmux("send-keys", "-t", "top", key)
            time.sleep(0.15)

    def type(self, text):
        self.pressed.append(text)
        self.tmux("send-keys", "-t", "top", "-l", text)
        time.sleep(0.15)

    def wait_for(self, pattern, until):
        while True:
            shown = self.screen()
            if re.search(pattern, shown):
                return shown
            if time.monotonic() > until:
                raise LookupError(f"not on the screen: {pattern}\n{shown}")
            time.sleep(0.2)

    def select(self, pattern, until):
        """Goes to the first row that fits, row by row."""
        while True:
            lines, selected = self.lines()
            fits = [at for at, line in enumerate(lines) if at > 2 and re.search(pattern, line)]
            if selected is not None and selected in fits:
                return "\n".join(lines)
            if time.monotonic() > until:
                raise LookupError(f"no such row: {pattern}\n" + "\n".join(lines))
            if fits and selected is not None:
                self.press("Down" if fits[0] > selected else "Up")
            else:
                time.sleep(0.3)

    def lines(self):
        """The screen's lines, and which of them is selected: it is reversed and bold, heads are reversed only."""
        shown = self.tmux("capture-pane", "-p", "-e", "-t", "top").splitlines()
        lines, selected, style = [], None, set()
        for at, line in enumerate(shown):
            text = ""
            # Text and changes of style in turn. A style lasts until it is changed, also in the next line.
            for part in re.split(r"(\x1b\[[0-9;]*m)", line):
                if part.startswith("\x1b["):
                    style = changed(style, [int(code or 0) for code in part[2:-1].split(";")])
                    continue
                text += part
                if part.strip() and {1, 7} <= style:
                    selected = at
            lines.append(text)
        return lines, selected

    def end(self):
        try:
            self.tmux("kill-server")
        except RuntimeError:
            pass


def changed(style, codes):
    """A style after the codes of one escape sequence; colours are left out."""
    style = set(style)
    codes = iter(codes)
    for code in codes:
        if code in (38, 48):
            for _ in range(1 if next(codes, 0) == 5 else 3):
                next(codes, 0)
        elif code == 0:
            style.clear()
        elif code in (22, 27):
            style.discard({22: 1, 27: 7}[code])
        elif code in (1, 7):
            style.add(code)
    return style


def find(terminal, way, finds, screens):
    """Walks one way. Returns the last screen and the seconds that it took."""
    began = time.monotonic()
    until = began + BUDGET_S
    shown = ""
    for step in way:
        if "type" in step:
            terminal.type(step["type"])
        terminal.press(*step.get("keys", []))
        if "row" in step:
            shown = terminal.select(step["row"], until)
        for pattern in (step.get("until"), step.get("then")):
            if pattern:
                shown = terminal.wait_for(pattern, until)
        screens.append((list(terminal.pressed), shown))
        time.sleep(READS_S)
    shown = terminal.wait_for(finds, until)
    screens.append((list(terminal.pressed), shown))
    return shown, time.monotonic() - began


def words(keys):
    """`Down Down Down` is `Down x3`."""
    told = []
    for key in keys:
        if told and told[-1][0] == key:
            told[-1][1] += 1
        else:
            told.append([key, 1])
    return " ".join(key if times == 1 else f"{key}x{times}" for key, times in told)


def by_keys(arguments, machine, out):
    failed = []
    for name, question, way, finds in CULPRITS:
        if arguments.only and name not in arguments.only:
            continue
        screens = []
        terminal = Terminal(arguments.debox, out)
        try:
            terminal.wait_for(r"threads? of \d+ process", time.monotonic() + 30)
            shown, seconds = find(terminal, way, finds, screens)
            print(f"{name}: found in {seconds:.0f} s by {words(terminal.pressed)}")
        except LookupError as missed:
            failed.append(name)
            print(f"{name}: NOT FOUND by {words(terminal.pressed)}\n{missed}")
        finally:
            with open(out / f"top-{name}.txt", "w") as file:
                file.write(f"{question}\n\n")
                for keys, screen in screens:
                    file.write(f"--- {words(keys)}\n{screen}\n")
            terminal.end()
    return failed


def by_page(arguments, out):
    """Records the whole machine, and finds the culprits on the page."""
    recording, page = out / "all.parquet", out / "all.html"
    recording.unlink(missing_ok=True)
    subprocess.run([arguments.debox, "record", "--all", "--for", "15s", "-o", recording], check=True, capture_output=True)
    subprocess.run([arguments.debox, "report", recording, "--html", page], check=True, capture_output=True)
    failed = []
    browser = Browser(page.as_uri())
    try:
        print(f"page: complete after {browser.wait_until_done():.1f} s, {page.stat().st_size >> 10} kB")
        browser.screenshot(out / "page.png")
        for name, keys, finds in ON_THE_PAGE:
            if arguments.only and name not in arguments.only:
                continue
            began = time.monotonic()
            browser.press("Escape")
            browser.press("Escape")
            for key in keys:
                (browser.press if len(key) == 1 else browser.type)(key)
            shown = browser.text()
            browser.screenshot(out / f"page-{name}.png")
            (out / f"page-{name}.txt").write_text(shown)
            if re.search(finds, shown):
                print(f"{name}: on the page, by {words(keys) or 'looking'}; {time.monotonic() - began:.1f} s of keys")
            else:
                failed.append(f"{name} (page)")
                print(f"{name}: NOT FOUND on the page by {words(keys) or 'looking'}")
        for complaint in browser.complaints:
            failed.append("console")
            print(f"page: the console says: {complaint}")
    finally:
        browser.end()
    return failed


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--debox", type=pathlib.Path, required=True)
    arguments.add_argument("--latlab", type=pathlib.Path, required=True)
    arguments.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("operator"))
    arguments.add_argument("--only", action="append", help="one of the culprits")
    arguments.add_argument("--no-page", action="store_true", help="only debox top")
    arguments.add_argument("--no-keys", action="store_true", help="only the page")
    arguments = arguments.parse_args()
    arguments.debox = arguments.debox.resolve()
    arguments.latlab = arguments.latlab.resolve()
    out = arguments.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        sys.exit("trial: root, please: it loads probes and mounts a disk")
    with tempfile.TemporaryDirectory(prefix="debox-operator-") as work:
        try:
            machine = Machine(pathlib.Path(work) / "machine", arguments.latlab).__enter__()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"trial: the machine could not be set up: {error}", file=sys.stderr)
            sys.exit(2)
        try:
            time.sleep(3)
            failed = [] if arguments.no_keys else by_keys(arguments, machine, out)
            if not arguments.no_page:
                failed += by_page(arguments, out)
        finally:
            machine.__exit__()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
