# SPDX-License-Identifier: MIT OR Apache-2.0
"""A page in headless Chromium, driven by keys over the DevTools protocol through a pipe."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = {"Enter": ("Enter", "Enter", 13, "\r"), "Escape": ("Escape", "Escape", 27, "")}


def chromium():
    """The browser's program, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One page. `complaints`: errors and warnings in its console."""

    def __init__(self, url, width=1280, height=900):
        program = chromium()
        if not program:
            raise RuntimeError("no Chromium: scripts/setup browser")
        self.complaints = []
        self.number = 0
        self.session = None
        self.received = b""
        self.profile = tempfile.TemporaryDirectory(prefix="debox-browser-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.come, from_write = os.pipe()

        def places():
            # The protocol's descriptors are 3 and 4. The new ones may be among these.
            one, other = os.dup(to_read), os.dup(from_write)
            high = (os.dup2(one, 100), os.dup2(other, 101))
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
             "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank"],
            # What it leaves when it is killed goes with the profile.
            env={**os.environ, "TMPDIR": self.profile.name},
            preexec_fn=places, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        target = self.ask("Target.createTarget", url="about:blank", newWindow=True, width=width, height=height)["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log"]:
            self.ask(f"{domain}.enable")
        self.began = time.monotonic()
        self.ask("Page.navigate", url=url)

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.note(got)

    def receive(self):
        while b"\0" not in self.received:
            more = os.read(self.come, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.received += more
        one, self.received = self.received.split(b"\0", 1)
        return json.loads(one)

    def note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"].get("text", "exception"))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(str(parameters["args"])[:300])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"]["text"])

    def evaluate(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_until_done(self, seconds=60):
        """Seconds until the page has drawn itself."""
        until = time.monotonic() + seconds
        while self.evaluate("document.documentElement.dataset.done") != "yes":
            if time.monotonic() > until:
                raise LookupError(f"the page is not complete after {seconds} s")
            time.sleep(0.02)
        return time.monotonic() - self.began

    def press(self, key):
        name, code, number, text = NAMES.get(key, (key, "", ord(key[0]), key))
        event = {"key": name, "code": code, "windowsVirtualKeyCode": number}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        for letter in text:
            self.press(letter)

    def text(self, selector="main"):
        """What can be seen of it: what is folded away is not in it."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText") or ""

    def screenshot(self, path, whole=False):
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(taken["data"]))

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.come)
        self.profile.cleanup()
