# SPDX-License-Identifier: MIT OR Apache-2.0
"""Five questions about each of six recordings, as a user asks them who knows the program and not DeBox. They were written
before anybody looked at the pages; comments below say which answers were changed afterwards, and why. `recordings.py` makes
the recordings and the truth, `reader.py` reads the pages.

If a page cannot answer a question, mend the page, not the question.
"""

import re
from typing import NamedTuple


class Way(NamedTuple):
    """Where a reader looks. `place`: a selector of the page. `actions`: what the reader does first, at most two of
    ("open", section), ("search", text), ("click", selector) and ("key", key).

    `row` and `column`: only the cells of this column, in rows that match, are read. `answer`: the answer in these words,
    if they differ from those of the question. `weak`: the words here are not those of the question."""

    place: str = "#answer"
    actions: tuple = ()
    row: str = None
    column: str = None
    answer: str = None
    weak: bool = False


class Question(NamedTuple):
    """`answer`: a regular expression; `{name}` in it is a text of the truth. With `truth`, its group `value` is a number
    or a time (in milliseconds) that differs from the truth of this name by no more than `part` of it and `least`."""

    text: str
    answer: str
    ways: list
    truth: str = None
    part: float = 0.0
    least: float = 0.0


SAYS = "#answer .says"
CARDS = "#answer .cards"
# A time and a number of the page.
TIME = r"(?P<value>[\d.,]+ (?:ns|us|ms|s))\b"
NUMBER = r"(?P<value>\d[\d,]*)"
TO_DISK = r"fsync writeback|journal commit|block flush|block I/O|journal space"
IN_POSTGRES = r"ProcSleep|LockAcquire\w*|XactLockTableWait|WaitLatch\w*|WaitEventSetWait"
# The first of the names of C files.
FIRST_FILE = r"(?s)\A(?:(?!\w\.c\b).)*\b{slow_file}\b"


def opened(section, **reads):
    return Way(f"#{section}", (("open", section),), **reads)


def searched(section, text):
    return Way(f"#{section}", (("search", text),))


UNFOLDED_STACK = Way(CARDS, (("click", "#answer .card details summary"),))

QUESTIONS = {
    # SET commands of redis-benchmark, with `appendfsync always`.
    "redis": [
        Question(
            "Why does a SET take so long: is it the disk, the network or the CPU?",
            TO_DISK,
            [Way(SAYS), Way(CARDS)],
        ),
        Question(
            "Which call of redis is slow?",
            r"\bin (fdatasync|fsync)",
            [Way(SAYS), Way(CARDS)],
        ),
        Question(
            "How many times did redis sync its log?",
            NUMBER,
            [Way("#calls", row=r"^(fdatasync|fsync)\b", column="calls")],
            truth="syncs",
            part=0.02,
            least=3,
        ),
        Question(
            "How long did the longest sync take?",
            TIME,
            [Way("#calls", row=r"^(fdatasync|fsync)\b", column="longest")],
            truth="longest_sync_ms",
            part=0.1,
            least=1.5,
        ),
        Question(
            "Which file does redis wait for?",
            r"appendonly\S*\.aof",
            [Way(CARDS), Way("#waits"), searched("waits", "aof")],
        ),
    ],
    # One worker that reads cold files from a slow disk.
    "nginx": [
        Question(
            "Why does nginx answer late?",
            r"The event loop of nginx was blocked|page read|readahead",
            [Way(SAYS), Way(CARDS)],
        ),
        Question(
            "How long did the disk hold up the worker, in all?",
            TIME,
            [
                Way(CARDS, answer=r"event loop of nginx was blocked\s+" + TIME),
                opened("loops", row="nginx", column="waited for other things"),
            ],
            truth="disk_ms",
            part=0.1,
            least=30,
        ),
        Question(
            "Which files does it wait for?",
            r"\b{file}\b",
            [Way("#answer"), Way("#waits"), searched("waits", ".bin")],
        ),
        Question(
            "In which function of nginx does it wait?",
            r"\bngx_\w+",
            [Way(CARDS), Way("#waits")],
        ),
        Question(
            "How much CPU time did nginx use?",
            TIME,
            [Way("#answer", answer="CPU time is " + TIME), opened("groups", row=r"^nginx: worker", column="CPU")],
            truth="cpu_ms",
            part=0.15,
            least=20,
        ),
    ],
    # Sessions that all update one row, which another transaction has for two seconds at a time.
    "postgres": [
        Question(
            "Why are the transactions slow: the disk, the CPU, or each other?",
            # Changed: `lock` as a part of a word also matched "block flush".
            r"another process|other processes|\b[Ll]ock\b",
            [Way(SAYS), Way("#answer")],
        ),
        Question(
            "Which process makes them wait?",
            r"\b{blocker}\b",
            [Way(CARDS), Way("#waits", row="postgres", column="held by"), searched("waits", "{blocker}")],
        ),
        Question(
            "How long did the longest wait for the row take?",
            "longest " + TIME,
            [Way(CARDS), Way("#waits", row="postgres", column="longest", answer=TIME)],
            truth="longest_wait_ms",
            # Changed from 0.05: deadlock_timeout ends the first 100 ms of a wait of two seconds, which is a wait of its own.
            part=0.06,
            least=30,
        ),
        Question("Where in PostgreSQL do they wait?", IN_POSTGRES, [Way(CARDS), Way("#waits")]),
        Question("Which sessions had to wait?", r"\b{waiter}\b", [Way(CARDS), Way("#waits")]),
    ],
    # make -j2 of six C files, one of which is four times as large as the others.
    "build": [
        Question(
            "Does the build wait, or does it compute?",
            r"[Cc]omputing in the program",
            [Way(SAYS), Way("#answer ul.causes")],
        ),
        Question(
            "Which program uses the CPU?",
            r"\bcc1\b",
            [Way("#answer"), Way("#findings"), Way("#groups"), opened("threads", row=r"^cc1")],
        ),
        Question(
            "How much CPU time did the whole build use?",
            TIME,
            [
                Way("#answer", answer="CPU time is " + TIME),
                Way("#answer ul.causes", answer=r"[Cc]omputing in the program\s*" + TIME, weak=True),
            ],
            truth="cpu_ms",
            part=0.1,
            least=50,
        ),
        Question(
            "How many processes did it start?",
            NUMBER,
            [Way("#groups", answer=NUMBER + " processes"), Way("#title", answer=NUMBER + " more processes")],
            truth="processes",
            least=1,
        ),
        Question(
            "Which source file takes longest to compile?",
            # Changed: the name had to be anywhere; now it has to be the first that the section names.
            FIRST_FILE,
            [Way("#findings"), Way("#groups"), opened("groups")],
        ),
    ],
    # A service that sometimes runs a program and waits for it.
    "node": [
        Question(
            "Why does the service stall at times?",
            r"The event loop of node was blocked",
            [Way(SAYS), Way(CARDS)],
        ),
        Question(
            "How long was the longest stall?",
            "longest turn took " + TIME,
            [Way(CARDS)],
            truth="longest_stall_ms",
            part=0.05,
            least=10,
        ),
        Question(
            "How many times did it stall?",
            # Changed: the page had the number of inner waits, of which a stall has several. It counts long turns since.
            NUMBER + " turns took 10 ms or more",
            [Way(CARDS), opened("loops", row="node", column="turns of 10 ms or more", answer=NUMBER)],
            truth="stalls",
            least=1,
        ),
        Question(
            "Which function of Node blocks the loop?",
            r"[Ss]pawn\w*|SyncProcess\w*",
            [Way(CARDS), UNFOLDED_STACK, opened("loops")],
        ),
        Question("Which program does it wait for?", r"\b{program}\b", [Way(CARDS), opened("groups")]),
    ],
    # Two threads that take two mutexes in opposite order.
    "deadlock": [
        Question("Does it hang, and why?", r"[Dd]eadlock", [Way(SAYS)]),
        Question(
            "Which threads hang?",
            r"(?s){transfer}.*{archive}|{archive}.*{transfer}",
            [Way(SAYS), Way(CARDS)],
        ),
        Question(
            "Which lock does the thread `transfer` wait for?",
            r"transfer \(\d+\) waits for mutex \S*journal",
            [Way(CARDS)],
        ),
        Question("Who has that lock?", r"transfer \(\d+\) waits[^$]*?Held by\s+{archive}", [Way(CARDS)]),
        Question(
            "At which line of the program does `transfer` wait?",
            r"{line}\b",
            [Way(CARDS), UNFOLDED_STACK, opened("in-flight")],
        ),
    ],
}


def number(text):
    """A number, or a time in milliseconds."""
    value = float(re.match(r"[\d.,]*\d", text).group().replace(",", ""))
    for unit, ms in [(" ns", 1e-6), (" us", 1e-3), (" ms", 1), (" s", 1e3)]:
        if text.endswith(unit):
            return value * ms
    return value
