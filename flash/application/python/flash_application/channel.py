# SPDX-License-Identifier: MIT OR Apache-2.0
"""Messages between the server and a process (flash/docs/applications.md)."""

import socket
import struct

VERSION = 1
HELLO, REQUEST, PROGRESS, DONE = 1, 2, 3, 4
KEEPS, EXPECTS, IS_11, IS_HEAD = 1, 2, 4, 8
KEPT, CUT = 1, 2
MAX_REQUEST = 128 << 10

# Version, kind, flags; bytes of the variables; number; bytes of the content; patience in ms; bytes of the fields.
_HEAD = struct.Struct("<BBHIQQII")
# Version, kind, status; flags; number; bytes of content that were sent; bytes of the request that were not read.
_SAID = struct.Struct("<BBHIQQQ")


class Malformed(Exception):
    """What came is not a request of this version of the protocol."""


class Order:
    """A request as the server passes it on."""

    def __init__(self, message):
        if len(message) < _HEAD.size:
            raise Malformed("a request that is too short")
        version, kind, self.flags, variables, self.number, self.length, patience, fields = _HEAD.unpack_from(message)
        if (version, kind) != (VERSION, REQUEST):
            raise Malformed(f"version {version}, kind {kind}")
        begin = _HEAD.size + variables
        end = begin + fields
        if end > len(message) or len(message) - end > self.length:
            raise Malformed("lengths that contradict each other")
        parts = message[_HEAD.size : begin].split(b"\0")
        if parts.pop():
            raise Malformed("a variable without an end")
        self.variables = {}
        for part in parts:
            name, equals, value = part.partition(b"=")
            if not equals:
                raise Malformed("a variable without a value")
            # As WSGI wants it: the bytes, each as a character.
            self.variables[name.decode("latin-1")] = value.decode("latin-1")
        self.fields = message[begin:end]
        self.content = message[end:]
        self.patience = patience / 1000


class Channel:
    """The connection to the server. A process has one request at a time."""

    def __init__(self, connection):
        self._socket = connection
        self._socket.set_inheritable(False)

    def fileno(self):
        return self._socket.fileno()

    def say(self, kind, status=0, flags=0, number=0, content=0, unread=0):
        message = _SAID.pack(VERSION, kind, status, flags, number, content, unread)
        self._socket.send(message, socket.MSG_NOSIGNAL)

    def receive(self):
        """The next request and the client's socket; None if the server has closed the channel."""
        message, descriptors, flags, _ = socket.recv_fds(self._socket, MAX_REQUEST, 8, socket.MSG_CMSG_CLOEXEC)
        client = None
        for descriptor in descriptors:
            if client is None:
                client = socket.socket(fileno=descriptor)
            else:
                socket.close(descriptor)
        if not message:
            return None
        if client is None or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Malformed("a request without the client's socket, or one that is too long")
        return Order(message), client

    def close(self):
        self._socket.close()
