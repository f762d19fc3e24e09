# SPDX-License-Identifier: MIT OR Apache-2.0
"""What stands beside a program of the corpus and is not measured: slow peers, and who has what it wants.

Called as `beside.py ROLE DIRECTORY`; prints `ready PLACE`, and plays its role until it is killed.
"""

import fcntl
import os
import socket
import sqlite3
import sys
import threading
import time

NAME_SERVER = "127.0.0.153"
directory = sys.argv[2]


def ready(place):
    print("ready", place, flush=True)


def in_directory(name):
    return os.path.join(directory, name)


def answers_slowly(connection):
    with connection:
        connection.recv(4096)
        time.sleep(0.08)
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n")


def slow_server():
    ear = socket.create_server(("127.0.0.1", 0))
    ready(ear.getsockname()[1])
    while True:
        threading.Thread(target=answers_slowly, args=(ear.accept()[0],), daemon=True).start()


def silent_name_server():
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind((NAME_SERVER, 53))
    with open(in_directory("resolv.conf"), "w") as file:
        file.write(f"nameserver {NAME_SERVER}\noptions timeout:1 attempts:1\n")
    ready(in_directory("resolv.conf"))
    while True:
        ear.recv(4096)


def locks(lock, unlock):
    with open(in_directory("locked"), "w") as file:
        lock(file)
        ready(file.name)
        while True:
            time.sleep(0.06)
            unlock(file)
            time.sleep(0.003)
            lock(file)


def locks_file():
    locks(lambda file: fcntl.flock(file, fcntl.LOCK_EX), lambda file: fcntl.flock(file, fcntl.LOCK_UN))


def locks_record():
    locks(lambda file: fcntl.lockf(file, fcntl.LOCK_EX), lambda file: fcntl.lockf(file, fcntl.LOCK_UN))


def locks_database():
    connection = sqlite3.connect(in_directory("notes.db"), isolation_level=None)
    connection.execute("create table notes (text)")
    connection.execute("begin exclusive")
    ready(in_directory("notes.db"))
    time.sleep(3600)


def slow_reader():
    os.mkfifo(in_directory("fifo"))
    ready(in_directory("fifo"))
    with open(in_directory("fifo"), "rb", buffering=0) as fifo:
        while fifo.read(4096):
            time.sleep(0.02)


def slow_writer():
    os.mkfifo(in_directory("fifo"))
    ready(in_directory("fifo"))
    with open(in_directory("fifo"), "wb", buffering=0) as fifo:
        while True:
            fifo.write(b"a line\n")
            time.sleep(0.04)


def slow_receiver():
    ear = socket.socket()
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    ear.bind(("127.0.0.1", 0))
    ear.listen()
    ready(ear.getsockname()[1])
    connection, _ = ear.accept()
    while connection.recv(16384):
        time.sleep(0.05)


def slow_log():
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind(in_directory("log"))
    ready(in_directory("log"))
    while log.recv(4096):
        time.sleep(0.03)


def hogs():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with open("/proc/self/comm", "w") as comm:
        comm.write("hog")
    for _ in range(2):
        if os.fork() == 0:
            break
    else:
        ready("")
    while True:
        pass


ROLES = (
    slow_server,
    silent_name_server,
    locks_file,
    locks_record,
    locks_database,
    slow_reader,
    slow_writer,
    slow_receiver,
    slow_log,
    hogs,
)
try:
    {role.__name__: role for role in ROLES}[sys.argv[1]]()
except (BrokenPipeError, ConnectionResetError):
    pass  # the program has ended
