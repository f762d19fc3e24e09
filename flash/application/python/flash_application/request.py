# SPDX-License-Identifier: MIT OR Apache-2.0
"""One request, and its answer."""

import http
import select
import socket
import time

from . import channel as protocol

_PIECE = 256 << 10
# What of a request's content is read and discarded before the connection is given up.
_DISCARDED = 64 << 10
# The server hears of an answer that takes long once in this time.
_PROGRESS_S = 1.0
_BARE = (204, 304)


class ClientGone(OSError):
    """The client has closed its connection, or takes or sends nothing any more."""


class Request:
    """A request of a client. `variables` are those of CGI (RFC 3875): REQUEST_METHOD, PATH_INFO, QUERY_STRING, ..."""

    def __init__(self, order, client, channel):
        self.variables = order.variables
        self._order = order
        self._client = client
        self._channel = channel
        self._patience = order.patience
        self._content = order.content
        self._unread = order.length - len(order.content)
        self._expects = bool(order.flags & protocol.EXPECTS) and self._unread > 0
        self._status = 0
        self._sent = 0
        self._left = None
        self._pending = b""
        self._is_chunked = False
        self._is_bare = False
        self._keeps = bool(order.flags & protocol.KEEPS)
        self._is_cut = False
        self._said_at = time.monotonic()
        # Waiting is limited by `select`.
        client.setblocking(False)

    @property
    def has_begun(self):
        """Its answer has a head already."""
        return self._status != 0

    def progress(self):
        """Says to the server that the request is still being worked on. Call it before a minute without output is over."""
        self._said_at = time.monotonic()
        self._channel.say(protocol.PROGRESS, self._status, 0, self._order.number, self._sent)

    def read(self, size=-1):
        """At most `size` bytes of the content, all of them without a size. Empty: there are no more."""
        parts = []
        while size:
            part = self.read_some(_PIECE if size < 0 else size)
            if not part:
                break
            parts.append(part)
            if size > 0:
                size -= len(part)
        return b"".join(parts)

    def read_some(self, most):
        """What is there of the content, at least one byte of it. Empty: there are no more."""
        if self._content:
            part, self._content = self._content[:most], self._content[most:]
            return part
        if not self._unread or self._is_cut:
            return b""
        if self._expects:
            self._expects = False
            if not self.has_begun:
                self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            try:
                part = self._client.recv(min(most, self._unread, _PIECE))
                break
            except BlockingIOError:
                self._wait(select.POLLIN)
            except InterruptedError:
                continue
            except OSError as error:
                self._is_cut = True
                raise ClientGone(str(error)) from error
        if not part:
            self._is_cut = True
            raise ClientGone("the client sends no more of its content")
        self._unread -= len(part)
        self._tell()
        return part

    def begin(self, status, fields=()):
        """Sends the head of the answer. `status`: a number, or one with its reason. Without a Content-Length among the
        fields, the answer may have any length."""
        if self.has_begun:
            raise RuntimeError("the answer has begun already")
        number, lines, length = self._head(status, fields)
        self._frame(number, lines, length)

    def _head(self, status, fields):
        text = str(status)
        number = int(text[:3])
        if not 200 <= number <= 599:
            raise ValueError(f"{text} is no status of an answer")
        reason = text[3:].strip() or _reason(number)
        lines = [f"HTTP/1.1 {number} {_plain(reason)}\r\n".encode("latin-1"), self._order.fields]
        length = None
        for name, value in fields:
            lower = name.lower()
            if lower in ("connection", "keep-alive", "transfer-encoding", "date", "server", "upgrade", "trailer"):
                # They are the server's, or of the connection.
                continue
            if lower == "content-length":
                length = int(value)
                if number in _BARE:
                    continue
            lines.append(f"{_token(name)}: {_plain(value)}\r\n".encode("latin-1"))
        return number, lines, length

    def _frame(self, number, lines, length):
        """How the client sees the end of the answer."""
        is_11 = self._order.flags & protocol.IS_11
        self._is_bare = bool(self._order.flags & protocol.IS_HEAD) or number in _BARE
        if number not in _BARE and length is None:
            if is_11:
                self._is_chunked = True
                lines.append(b"Transfer-Encoding: chunked\r\n")
            else:
                self._keeps = False
        if self._unread > _DISCARDED or self._expects:
            # It is not known whether the rest will come.
            self._keeps = False
        if not self._keeps:
            lines.append(b"Connection: close\r\n")
        elif not is_11:
            lines.append(b"Connection: keep-alive\r\n")
        self._left = None if self._is_bare else length
        self._status = number
        lines.append(b"\r\n")
        self._pending = b"".join(lines)

    def write(self, data):
        """Sends a part of the content, when the client takes it."""
        if not self.has_begun:
            raise RuntimeError("the answer has not begun")
        data = bytes(data)
        if self._is_bare or not data:
            return
        if self._left is not None:
            if len(data) > self._left:
                self._is_cut = True
                raise ValueError("more content than Content-Length says")
            self._left -= len(data)
        head, self._pending = self._pending, b""
        if self._is_chunked:
            self._send(b"%s%x\r\n%s\r\n" % (head, len(data), data))
        else:
            self._send(head + data if head else data)
        self._sent += len(data)

    def flush(self):
        """Sends the head, if no content has been sent yet."""
        head, self._pending = self._pending, b""
        if head:
            self._send(head)

    def answer(self, status, fields=(), content=b""):
        """A whole answer."""
        self.begin(status, [*fields, ("Content-Length", str(len(content)))])
        self.write(content)

    def _send(self, data):
        view = memoryview(data)
        while view:
            if self._is_cut:
                raise ClientGone("the connection has been given up")
            try:
                view = view[self._client.send(view, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)
            except InterruptedError:
                continue
            except OSError as error:
                self._is_cut = True
                raise ClientGone(str(error)) from error
            self._tell()

    def _wait(self, event):
        poll = select.poll()
        poll.register(self._client, event)
        until = time.monotonic() + self._patience
        while not poll.poll(_PROGRESS_S * 1000):
            if time.monotonic() >= until:
                self._is_cut = True
                raise ClientGone("the client takes or sends nothing any more")
            # It is the client that is slow, not this process.
            self.progress()

    def _tell(self):
        if time.monotonic() - self._said_at > _PROGRESS_S:
            self.progress()

    def finish(self):
        """Ends the answer, and gives the connection back. `serve` does it."""
        try:
            if not self.has_begun:
                raise RuntimeError("there is no answer")
            self.flush()
            if self._is_chunked and not self._is_bare:
                self._send(b"0\r\n\r\n")
            if self._left:
                self._is_cut = True
            while self._keeps and self._unread and not self._is_cut:
                self.read_some(_PIECE)
        except ClientGone:
            pass
        self._give_back()

    def cut(self):
        """Gives the connection back without the end of an answer. The server resets it, so the client notices."""
        self._is_cut = True
        self._give_back()

    def _give_back(self):
        # First of all: what the server does with the connection afterwards is none of this process's business.
        self._client.close()
        if self._is_cut:
            flags = protocol.CUT
        else:
            flags = protocol.KEPT if self._keeps else 0
        self._channel.say(
            protocol.DONE, self._status or 500, flags, self._order.number, self._sent, self._unread
        )


def _reason(number):
    try:
        return http.HTTPStatus(number).phrase
    except ValueError:
        return "Unknown"


def _plain(value):
    text = str(value)
    if any(character in text for character in "\r\n\0"):
        raise ValueError("a field has a line break")
    return text


def _token(name):
    if not name or not all(character.isalnum() or character in "!#$%&'*+-.^_`|~" for character in name) or not name.isascii():
        raise ValueError(f"{name!r} is no name of a field")
    return name
