# SPDX-License-Identifier: Apache-2.0
"""The relay of the tests: where it stands still, nothing gets through any more."""

import contextlib
import socket

import pytest

from harness.limits import patience
from harness.relay import Relay

pytestmark = pytest.mark.interpreted


@pytest.fixture
def ends():
    """A relay, and the two ends of a connection through it."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        relay = Relay(listener.getsockname())
        stack.callback(relay.close)
        client = stack.enter_context(socket.create_connection(relay.address))
        server = stack.enter_context(listener.accept()[0])
        for end in client, server:
            end.settimeout(patience(60))
        yield relay, client, server


def all_of(sock):
    """What comes until the connection ends, in whatever way."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(100):
            got += piece
    return got


@pytest.mark.parametrize("times", range(20))
def test_once_stall_has_returned_nothing_more_is_read(ends, times):
    relay, client, server = ends
    client.sendall(b"before")
    assert server.recv(6, socket.MSG_WAITALL) == b"before"  # its thread waits for more
    relay.stall("up")
    client.sendall(b"x" * (times + 1))
    client.shutdown(socket.SHUT_WR)
    relay.let("down")  # the other direction passes as ever
    server.sendall(b"answer")
    assert client.recv(6, socket.MSG_WAITALL) == b"answer"
    relay.cut()
    assert all_of(server) == b""


def test_a_stall_lets_as_many_bytes_through_as_it_is_told(ends):
    relay, client, server = ends
    relay.stall("up", after=5)
    client.sendall(b"123")
    assert server.recv(3, socket.MSG_WAITALL) == b"123"
    client.sendall(b"45678")
    assert server.recv(2, socket.MSG_WAITALL) == b"45"
    relay.let("up")
    client.shutdown(socket.SHUT_WR)
    assert all_of(server) == b"678"
