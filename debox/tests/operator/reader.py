#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Six real recordings, and five questions about each, answered from the page of `debox report --html` as a new user reads
it: from what can be seen in a browser, after two actions at most.

As root, on a machine that does nothing else; some two minutes:

    sudo python3 debox/tests/operator/reader.py --debox target/release/debox --latlab target/release/latlab

An answer is `answered` if it is seen after one action at most, in the words of the question; `weak` if it takes two
actions or other words; `wrong` if the page says something else than the truth; else `missing`. Recordings, truths, pages
and screenshots (light, whole, dark, narrow, printed) are in the directory of `-o`.

Exit status: 0 if no answer is missing or wrong and no console had an error, 1 if not, 2 if a recording could not be made.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from browser import Browser
from questions import QUESTIONS, number
from recordings import Recordings

# The text of a place, or the cells of its tables; of both only what can be seen.
SEEN = "const seen = (what) => [...document.querySelectorAll(what)].filter((one) => one.checkVisibility());"
TEXT = f"(place) => {{ {SEEN} return seen(place).map((one) => one.innerText).join('\\n'); }}"
CELLS = f"(place) => {{ {SEEN} " + """ return seen(place + " table").map((one) => ({
    heads: [...one.tHead.rows[0].cells].map((cell) => cell.innerText.trim()),
    rows: [...one.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim())),
})); }"""
FOLD = "document.querySelectorAll('details').forEach((one) => { one.open = openAtFirst.has(one); })"
MOST_ACTIONS = 2


class Page:
    """A page as its reader has it: what can be seen, and a few actions."""

    def __init__(self, browser):
        self.browser = browser
        self.browser.evaluate("window.openAtFirst ??= new Set(document.querySelectorAll('details[open]'))")

    def begin_again(self):
        """Without search and selection, and with everything folded that was folded at first."""
        for _ in range(2):
            self.browser.press("Escape")
        self.browser.evaluate(FOLD)

    def call(self, function, argument):
        return self.browser.evaluate(f"({function})({json.dumps(argument)})")

    def act(self, kind, what):
        if kind == "search":
            self.browser.press("/")
            self.browser.type(what)
        elif kind == "key":
            self.browser.press(what)
        elif kind == "open":
            self.click(f'#contents a[href="#{what}"]')
        elif kind == "click":
            self.click(what)
        else:
            raise ValueError(f"no such action: {kind}")
        time.sleep(0.2)

    def click(self, selector):
        self.call("(what) => document.querySelector(what)?.click()", selector)

    def read(self, way):
        """The texts to look at."""
        if way.column is None and way.row is None:
            return [self.call(TEXT, way.place)]
        texts = []
        for table in self.call(CELLS, way.place):
            for row in table["rows"]:
                if way.row is not None and not re.search(way.row, row[0]):
                    continue
                if way.column is None:
                    texts.append(" ".join(row))
                elif way.column in table["heads"]:
                    texts.append(row[table["heads"].index(way.column)])
        return texts


def with_truth(pattern, truth):
    """`{name}` is one of the truth's texts."""
    for name, value in truth.items():
        texts = [str(one) for one in (value if isinstance(value, list) else [value])]
        pattern = pattern.replace("{" + name + "}", "(?:" + "|".join(map(re.escape, texts)) + ")")
    return pattern


def is_true(found, question, truth):
    if question.truth is None:
        return True
    expected = truth[question.truth]
    return abs(number(found.group("value")) - expected) <= max(question.part * expected, question.least)


def judge(page, question, truth):
    """Returns the judgement, and the words of the page."""
    wrong = None
    for strong in (True, False):
        for way in question.ways:
            if strong == (way.weak or len(way.actions) > 1):
                continue
            assert len(way.actions) <= MOST_ACTIONS
            page.begin_again()
            for kind, what in way.actions:
                page.act(kind, with_truth(what, truth) if kind != "search" else what.format(**truth))
            for text in page.read(way):
                for found in re.finditer(with_truth(way.answer or question.answer, truth), text or ""):
                    words = " ".join(found.group(0).split())
                    if is_true(found, question, truth):
                        return "answered" if strong else "weak", words
                    wrong = wrong or f"{words} instead of {truth[question.truth]:.6g}"
    return ("wrong", wrong) if wrong else ("missing", "")


def pictures(browser, name, out):
    for key in ("Escape", "Escape"):
        browser.press(key)
    browser.screenshot(out / f"{name}.png")
    browser.screenshot(out / f"{name}-whole.png", whole=True)
    browser.press("d")
    browser.screenshot(out / f"{name}-dark.png")
    browser.press("d")
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    time.sleep(0.5)
    wide = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    browser.screenshot(out / f"{name}-narrow.png")
    browser.ask("Emulation.clearDeviceMetricsOverride")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    browser.screenshot(out / f"{name}-print.png")
    browser.ask("Emulation.setEmulatedMedia", media="")
    return [f"{wide} pixels wider than a narrow screen"] if wide > 0 else []


def read_page(name, file, truth, out):
    """Prints the answers of one page. Returns the judgements."""
    browser = Browser(file.as_uri())
    try:
        took = browser.wait_until_done()
        print(f"\n{name}: complete after {took:.1f} s, {file.stat().st_size >> 10} kB")
        judgements = []
        bad = pictures(browser, name, out)
        for question in QUESTIONS[name]:
            judgement, words = judge(Page(browser), question, truth)
            judgements.append(judgement)
            print(f"  {judgement:8}  {question.text:64}  {words[:100]}")
        bad += [f"console: {one}" for one in browser.complaints]
        for one in bad:
            print(f"  bad       {one}")
        return judgements + ["bad"] * len(bad)
    finally:
        browser.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debox", type=pathlib.Path, required=True)
    parser.add_argument("--latlab", type=pathlib.Path, required=True)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("pages"))
    parser.add_argument("--only", action="append", choices=list(QUESTIONS))
    parser.add_argument("--again", action="store_true", help="read the recordings that are in the output directory")
    arguments = parser.parse_args()
    if os.geteuid() != 0 and not arguments.again:
        sys.exit("reader: root, please: it loads probes and mounts a disk")
    out = arguments.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    debox = arguments.debox.resolve()
    judgements = []
    with tempfile.TemporaryDirectory(prefix="debox-reader-") as work:
        recordings = Recordings(debox, arguments.latlab.resolve(), pathlib.Path(work), out)
        for name in arguments.only or QUESTIONS:
            if not arguments.again:
                try:
                    recordings.make(name)
                except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                    print(f"reader: {name} could not be recorded: {error}", file=sys.stderr)
                    sys.exit(2)
            page = out / f"{name}.html"
            subprocess.run([debox, "report", out / f"{name}.parquet", "--html", page], check=True, capture_output=True)
            judgements += read_page(name, page, json.loads((out / f"{name}.json").read_text()), out)
    counts = ", ".join(f"{judgements.count(one)} {one}" for one in ("answered", "weak", "wrong", "missing", "bad"))
    print(f"\n{counts}")
    sys.exit(1 if {"wrong", "missing", "bad"} & set(judgements) else 0)


if __name__ == "__main__":
    main()
