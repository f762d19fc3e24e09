# SPDX-License-Identifier: MIT OR Apache-2.0
"""What comes to a process through its channel: whatever it is, it is read or refused."""

import random
import socket
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "application" / "python"))

from flash_application import Request, channel  # noqa: E402

VARIABLES = b"REQUEST_METHOD=GET\0PATH_INFO=/a\0EMPTY=\0"
FIELDS = b"Date: now\r\n"


def message(flags=5, length=5, content=b"abc", variables=VARIABLES, fields=FIELDS, version=1, kind=2):
    head = struct.pack("<BBHIQQII", version, kind, flags, len(variables), 7, length, 1000, len(fields))
    return head + variables + fields + content


def test_a_request_comes_apart():
    order = channel.Order(message())
    assert order.variables == {"REQUEST_METHOD": "GET", "PATH_INFO": "/a", "EMPTY": ""}
    assert (order.fields, order.content, order.length, order.number, order.patience) == (FIELDS, b"abc", 5, 7, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        message()[:31],
        message(version=2),
        message(kind=3),
        message(content=b"abcdef"),
        message(variables=b"A=b"),
        message(variables=b"A\0"),
        message()[:60],
    ],
)
def test_what_is_no_request_is_refused(wrong):
    with pytest.raises(channel.Malformed):
        channel.Order(wrong)


def test_whatever_comes_is_read_or_refused():
    chance = random.Random(2005)
    right = message()
    read = 0
    for _ in range(20000):
        changed = bytearray(right)
        for _ in range(chance.randrange(4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        if chance.randrange(8) == 0:
            del changed[chance.randrange(len(changed)) :]
        try:
            order = channel.Order(bytes(changed))
        except channel.Malformed:
            continue
        read += 1
        assert len(order.content) <= order.length
    assert read > 1000


class Ends:
    """A request without a server: both ends of its socket and of its channel."""

    def __init__(self, **of_message):
        self.client, its = socket.socketpair()
        self.server, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.request = Request(channel.Order(message(**of_message)), its, channel.Channel(own))

    def done(self):
        self.request.finish()
        _, kind, status, flags, number, content, unread = struct.unpack("<BBHIQQQ", self.server.recv(100))
        assert (kind, number) == (4, 7)
        return status, flags, content, unread


def test_content_is_read_to_its_end_and_no_further():
    ends = Ends(length=6)
    ends.client.sendall(b"defGET /next")
    assert ends.request.read(2) + ends.request.read() + ends.request.read() == b"abcdef"
    ends.request.answer(200, [], b"ok")
    assert ends.done() == (200, 1, 2, 0)
    assert ends.client.recv(100).startswith(b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 2\r\n\r\nok")


def test_what_is_left_of_the_content_is_discarded_or_the_connection_ends():
    ends = Ends(length=6)
    ends.client.sendall(b"def")
    ends.request.answer(200, [], b"")
    assert ends.done() == (200, 1, 0, 0)
    ends = Ends(length=1 << 30)
    ends.request.answer(200, [], b"")
    status, flags, _, unread = ends.done()
    assert (status, flags, unread) == (200, 0, (1 << 30) - 3)
    assert b"\r\nConnection: close\r\n" in ends.client.recv(1000)


@pytest.mark.parametrize(
    "fields", [[("A", "b\r\nC: d")], [("A b", "c")], [("", "c")], [("A\r\n", "c")], [("Ä", "c")], [("A", "b\0")]]
)
def test_a_field_cannot_make_others(fields):
    ends = Ends()
    with pytest.raises(ValueError):
        ends.request.begin(200, fields)
    ends.request.answer(500, [], b"")
    assert ends.done()[0] == 500


def test_an_answer_that_is_too_short_or_too_long_is_cut():
    ends = Ends(length=3)
    ends.request.begin(200, [("Content-Length", "5")])
    ends.request.write(b"abc")
    assert ends.done()[:3] == (200, 2, 3)
    ends = Ends(length=3)
    ends.request.begin(200, [("Content-Length", "2")])
    with pytest.raises(ValueError):
        ends.request.write(b"abc")
    assert ends.done()[:3] == (200, 2, 0)
