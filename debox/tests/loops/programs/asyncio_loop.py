# SPDX-License-Identifier: MIT OR Apache-2.0
"""An asyncio loop that answers its own requests, and does one more thing: asyncio_loop.py WHAT SECONDS DIRECTORY."""

import asyncio
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time

WHAT, SECONDS, DIRECTORY = sys.argv[1], float(sys.argv[2]), sys.argv[3]
PAUSE = 0.01
HELD = 0.004


async def answer(reader, writer):
    while line := await reader.readline():
        writer.write(line)
    writer.close()


async def ask(port, until):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        writer.write(b"what\n")
        await reader.readline()
        await asyncio.sleep(PAUSE)
    writer.close()


def save():
    file = os.open(os.path.join(DIRECTORY, "saved"), os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x" * 4096)
    os.fsync(file)
    os.close(file)


def compute(numbers=300_000):
    sum(number * number for number in range(numbers))


def join():
    """A thread that has just begun and ends soon."""
    thread = threading.Thread(target=compute, args=[100_000])
    thread.start()
    thread.join()


class Held:
    """A lock that another thread takes again and again."""

    def __init__(self):
        self.lock = threading.Lock()
        threading.Thread(target=self.hold, daemon=True).start()

    def hold(self):
        while True:
            with self.lock:
                time.sleep(HELD)
            time.sleep(HELD / 4)

    def take(self):
        with self.lock:
            pass


class LockedFile:
    """The same with a lock of a file, and another process."""

    def __init__(self):
        self.file = open(os.path.join(DIRECTORY, "lock"), "w")
        program = (
            "import fcntl, sys, time\n"
            "file = open(sys.argv[1])\n"
            "while True:\n"
            "    fcntl.flock(file, fcntl.LOCK_EX); print(flush=True)\n"
            f"    time.sleep({HELD}); fcntl.flock(file, fcntl.LOCK_UN)\n"
            f"    time.sleep({HELD} / 4)\n"
        )
        words = [sys.executable, "-c", program, self.file.name]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def take(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        fcntl.flock(self.file, fcntl.LOCK_UN)


class SlowPeer:
    """A thread that answers late, and is asked in the loop."""

    def __init__(self):
        self.own, peer = socket.socketpair()
        threading.Thread(target=self.answer, args=[peer], daemon=True).start()

    @staticmethod
    def answer(peer):
        while word := peer.recv(8):
            time.sleep(HELD)
            peer.send(word)

    def ask(self):
        self.own.send(b"what")
        self.own.recv(8)


async def resolve():
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def talk_to_itself():
    queue, done = asyncio.Queue(), asyncio.Lock()
    for number in range(20):
        await queue.put(number)
    async with done:
        await asyncio.gather(*(queue.get() for _ in range(20)))


async def repeat(until, what):
    while time.monotonic() < until:
        await what()
        await asyncio.sleep(PAUSE)


def in_the_loop(function):
    async def does():
        function()

    return does


def in_a_thread(function):
    async def does():
        await asyncio.to_thread(function)

    return does


def computing():
    """Threads that compute all the time, each with its turns at the interpreter."""
    for _ in range(2):
        threading.Thread(target=lambda: [compute() for _ in iter(int, 1)], daemon=True).start()
    return lambda: asyncio.sleep(0)


def held_file():
    it = LockedFile()
    return it, in_the_loop(it.take)


def start():
    sleeping = in_a_thread(lambda: time.sleep(0.005))
    hashing = in_a_thread(lambda: hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 5_000))
    simple = {
        "talks": lambda: talk_to_itself,
        "sleeps-in-a-thread": lambda: sleeping,
        "saves-in-a-thread": lambda: in_a_thread(save),
        "hashes-in-a-thread": lambda: hashing,
        "resolves-names": lambda: resolve,
        "sleeps": lambda: in_the_loop(lambda: time.sleep(0.002)),
        "saves": lambda: in_the_loop(save),
        "waits-for-processes": lambda: in_the_loop(lambda: subprocess.run(["sleep", "0.003"])),
        "takes-a-lock": lambda: in_the_loop(Held().take),
        "asks-a-slow-peer": lambda: in_the_loop(SlowPeer().ask),
        "joins-a-thread": lambda: in_the_loop(join),
        "computes-in-threads": computing,
    }
    return simple[WHAT]()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    until = time.monotonic() + SECONDS
    does = held_file() if WHAT == "locks-a-file" else (None, start())
    try:
        await asyncio.gather(ask(port, until), repeat(until, does[1]))
    finally:
        if does[0]:
            does[0].process.kill()
            await asyncio.to_thread(does[0].process.wait)
    server.close()


asyncio.run(main())
