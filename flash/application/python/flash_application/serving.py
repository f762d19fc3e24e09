# SPDX-License-Identifier: MIT OR Apache-2.0
"""Takes requests from the server, one after another."""

import os
import select
import signal
import socket
import stat
import sys
import time
import traceback

from .channel import HELLO, Channel, Malformed
from .request import ClientGone, Request

# Where flash has put the channel of a process that it has started.
_CHANNEL = "FLASH_APPLICATION"


def serve(handler, listen=None, processes=1):
    """Calls `handler` with each Request until the server ends this process.

    `listen`: path of a Unix socket, for an application that flash does not start itself (`to` in its configuration);
    then `processes` processes serve it. A handler that raises an exception has answered with 500, or its connection is
    cut if the answer has begun."""
    end = _End()
    if listen is not None:
        return _serve_here(handler, _listen(listen), processes, end)
    number = os.environ.pop(_CHANNEL, None)
    if number is None and os.environ.get("LISTEN_FDS") == "1":
        number = 3
    if number is None:
        sys.exit("flash starts this program (`application` in its configuration), or it needs `listen`")
    own = socket.socket(fileno=int(number))
    if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return _serve_here(handler, own, processes, end)
    return _serve_channel(handler, Channel(own), end)


class _End:
    """SIGTERM and SIGINT end the process, after its request."""

    def __init__(self):
        self.has_come = False
        self._reads, writes = socket.socketpair()
        writes.setblocking(False)
        try:
            for one in (signal.SIGTERM, signal.SIGINT):
                signal.signal(one, self._comes)
            signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
        except ValueError:
            # Only the main thread gets signals.
            pass
        self._writes = writes

    def _comes(self, *_):
        self.has_come = True

    def waits_for(self, other):
        """False: the process ends."""
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        poll.register(other, select.POLLIN)
        while not self.has_come:
            ready = {number for number, _ in poll.poll()}
            if other.fileno() in ready:
                return True
            if self._reads.fileno() in ready:
                self._reads.recv(64)
        return False


def _serve_channel(handler, channel, end):
    channel.say(HELLO)
    while end.waits_for(channel):
        try:
            received = channel.receive()
        except Malformed as error:
            sys.exit(f"what the server says is not understood: {error}")
        if received is None:
            return
        order, client = received
        request = Request(order, client, channel)
        try:
            _handle(handler, request)
        except (BrokenPipeError, ConnectionError):
            # The server has given this process up.
            return


def _handle(handler, request):
    try:
        handler(request)
    except ClientGone:
        request.cut()
        return
    except Exception:
        traceback.print_exc()
        if request.has_begun:
            request.cut()
            return
        request.answer(500, [("Content-Type", "text/plain")], b"500 Internal Server Error\n")
    request.finish()


def _listen(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                try:
                    probe.connect(path)
                except ConnectionRefusedError:
                    os.unlink(path)
    except FileNotFoundError:
        pass
    before = os.umask(0o117)
    try:
        made.bind(path)
    finally:
        os.umask(before)
    made.listen(256)
    return made


def _serve_here(handler, listener, processes, end):
    """Each process serves one connection of the server at a time."""
    children = set()
    while True:
        while len(children) < processes and not end.has_come:
            child = os.fork()
            if not child:
                end = _End()
                while end.waits_for(listener):
                    accepted, _ = listener.accept()
                    _serve_channel(handler, Channel(accepted), end)
                    accepted.close()
                os._exit(0)
            children.add(child)
        if end.has_come:
            for child in children:
                os.kill(child, signal.SIGTERM)
        if not children:
            return
        try:
            child, status = os.wait()
        except InterruptedError:
            continue
        children.discard(child)
        if status and not end.has_come:
            time.sleep(0.1)
