# SPDX-License-Identifier: Apache-2.0
"""A raw RESP2 and RESP3 client over one socket.

It shows replies as they are: errors stay apart from values, simple strings from bulk strings,
and the bytes of the last reply can be compared with another server's. It reads with a deadline
and never reconnects.
"""

import collections
import contextlib
import re
import socket
import struct
import time

import pytest

from harness.limits import HANG_SECONDS, LONG_TTL_MS, Late, Wait, patience, wait_until

CLOCK_MS = 2  # two readings of clocks in whole milliseconds
Grant = collections.namedtuple("Grant", "token ttl_ms")


class Closed(ConnectionError):
    """The server closed the connection."""


class NoReply(Late, TimeoutError):
    """None came in the time that it may take."""


class ReplyError(Exception):
    """An error reply. `code` is its first word, `text` all of it."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text
        self.code = text.split(" ", 1)[0]

    def __eq__(self, other):
        return isinstance(other, ReplyError) and other.text == self.text

    __hash__ = Exception.__hash__


class Simple(str):
    """A simple string, as in +OK."""


class Push(list):
    """A RESP3 push."""


def to_bytes(arg):
    return arg if isinstance(arg, bytes) else str(arg).encode()


def encode(*args):
    parts = [b"*%d\r\n" % len(args)]
    for arg in map(to_bytes, args):
        parts.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
    return b"".join(parts)


def tcp(address, timeout=HANG_SECONDS):
    """Connects to (host, port) or to the path of a unix socket."""
    if isinstance(address, tuple):
        sock = socket.create_connection(address, timeout=patience(timeout))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(patience(timeout))
    sock.connect(str(address))
    return sock


class Reader:
    """Parses replies from a socket; `raw` holds the bytes of the last one."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()
        self.at = 0
        self.raw = b""
        self.wait = None
        self.resp3 = False  # did somebody ask for it?

    def _fill(self):
        self.sock.settimeout(max(self.wait.left, 0.001))
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionResetError as lost:
            raise Closed("reset by the server") from lost
        except TimeoutError:
            raise NoReply("no reply", self.wait.begun, self.wait.allowed) from None
        if not data:
            raise Closed(f"closed by the server after {bytes(self.buffer)!r}")
        self.buffer += data

    def _line(self):
        while True:
            end = self.buffer.find(b"\r\n", self.at)
            if end >= 0:
                line = bytes(self.buffer[self.at:end])
                self.at = end + 2
                return line
            self._fill()

    def _bulk(self, size):
        while len(self.buffer) < self.at + size + 2:
            self._fill()
        data = bytes(self.buffer[self.at:self.at + size])
        assert self.buffer[self.at + size:self.at + size + 2] == b"\r\n", "bulk not terminated"
        self.at += size + 2
        return data

    def _value(self):
        line = self._line()
        kind, rest = line[:1], line[1:]
        assert self.resp3 or kind in b"+-:$*", f"no type of RESP2: {line!r}"
        if kind == b"+":
            return Simple(rest.decode("utf-8", "surrogateescape"))
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "surrogateescape"))
        if kind in b":(":
            return int(rest)
        if kind == b"_":
            return None
        if kind == b"#":
            return {b"t": True, b"f": False}[rest]
        if kind == b",":
            return float(rest)
        return self._sized(kind, int(rest))

    def _sized(self, kind, size):
        if size < 0:
            return None
        if kind == b"$":
            return self._bulk(size)
        if kind == b"=":
            return self._bulk(size)[4:]
        if kind == b"%":
            return {_hashable(self._value()): self._value() for _ in range(size)}
        items = [self._value() for _ in range(size)]
        if kind == b"~" and not any(isinstance(item, dict) for item in items):
            return set(map(_hashable, items))
        if kind == b"~":
            return items
        if kind == b">":
            return Push(items)
        assert kind == b"*", f"unknown type {kind!r}"
        return items

    def read(self, timeout=HANG_SECONDS):
        """One reply, errors as values. Raises TimeoutError and Closed."""
        self.wait = Wait(timeout)
        self.at = 0
        value = self._value()
        self.raw = bytes(self.buffer[:self.at])
        del self.buffer[:self.at]
        return value


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value


def mapped(reply):
    """RESP3's map, or RESP2's list of keys and values, as a dict."""
    return dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply


class Client:
    """One connection. Calling it sends one command and returns its reply, or raises it."""

    def __init__(self, address, proto=2, name=None, timeout=HANG_SECONDS, tls=None):
        """`tls`: an ssl.SSLContext."""
        self.timeout = timeout
        self.sock = tcp(address, timeout)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname=address[0])
        self.reader = Reader(self.sock)
        if proto != 2:
            self("HELLO", proto)
        if name:
            self("CLIENT", "SETNAME", name)

    def send(self, *args):
        self.reader.resp3 |= args[:2] == ("HELLO", 3)
        self.send_bytes(encode(*args))

    def send_bytes(self, data):
        self.sock.settimeout(patience(self.timeout))
        self.sock.sendall(data)

    def send_all(self, commands):
        self.send_bytes(b"".join(encode(*command) for command in commands))

    def dribble(self, data, pause=0.0005):
        """Sends the bytes one by one."""
        for i in range(len(data)):
            self.send_bytes(data[i:i + 1])
            time.sleep(pause)  # so that they go one by one

    def read(self, timeout=None):
        """The next reply, errors as values."""
        return self.reader.read(timeout or self.timeout)

    def ask(self, *args, timeout=None):
        """The command's reply, errors as values."""
        self.send(*args)
        return self.read(timeout)

    def __call__(self, *args, timeout=None):
        reply = self.ask(*args, timeout=timeout)
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def refused(self, code, *args, text=None, timeout=None):
        """The command must be refused with this code (and, where given, this pattern)."""
        with refused(code, text):
            self(*args, timeout=timeout)

    def pipeline(self, commands, timeout=None):
        """Sends the commands at once and returns their replies, errors as values."""
        self.send_all(commands)
        return [self.read(timeout) for _ in commands]

    def acquire(self, resource, ttl_ms=LONG_TTL_MS, *options, timeout=None):
        """A Grant, or None where another holds it. Where the machine is so slow that the lease ran
        out on its way, a longer one is asked for."""
        for _ in range(5):
            reply = self.ask("ACQUIRE", resource, ttl_ms, *options, timeout=timeout)
            if not isinstance(reply, ReplyError):
                break
            if "ran out while" not in reply.text:
                raise reply
            ttl_ms = min(3 * int(ttl_ms), LONG_TTL_MS)
        else:
            raise AssertionError(f"{resource!r}: the lease always runs out on its way")
        if reply is None:
            return None
        assert isinstance(reply, list) and len(reply) == 2, reply
        grant = Grant(*reply)
        assert isinstance(grant.token, int) and 0 < grant.token < 1 << 53, grant
        assert 0 < grant.ttl_ms <= int(ttl_ms), grant
        return grant

    def token(self, resource, ttl_ms=LONG_TTL_MS, *options, timeout=None):
        """The token of a grant that must succeed; of a longer one, as above, where it took its
        whole TTL to be told."""
        for _ in range(5):
            begun = time.monotonic()
            grant = self.acquire(resource, ttl_ms, *options, timeout=timeout)
            in_time = (time.monotonic() - begun) * 1000 < int(ttl_ms) - CLOCK_MS
            if grant is not None or in_time or "WAIT" in options:
                break
            ttl_ms = min(3 * int(ttl_ms), LONG_TTL_MS)
        assert grant is not None, f"{resource!r} is held by another"
        return grant.token

    def renew(self, resource, token, ttl_ms):
        """The milliseconds left, which a slow machine or another clock takes off."""
        left = self("RENEW", resource, token, ttl_ms)
        assert 0 < left <= ttl_ms
        return left

    def fenced(self, token, *command):
        return self("FENCED", token, *command)

    def cycle(self, resource):
        """Leases it, writes to it and releases it; the token."""
        token = self.token(resource)
        assert self.fenced(token, "SET", resource, "v") == "OK"
        assert self("RELEASE", resource, token) == 0
        return token

    def multi(self, *commands):
        """Begins a transaction and queues the commands."""
        assert self("MULTI") == "OK"
        for command in commands:
            assert self(*command) == "QUEUED"

    def rows(self, *args):
        """The rows that SQL answers."""
        return mapped(self("SQL", *args))[b"rows"]

    def lease(self, resource):
        """LEASE as a dict with text keys, or None."""
        reply = self("LEASE", resource)
        if reply is None:
            return None
        lease = {key.decode(): value for key, value in mapped(reply).items()}
        if isinstance(lease.get("state"), bytes):
            lease["state"] = lease["state"].decode()
        return lease

    def info(self, *sections):
        """The fields of INFO, as text."""
        lines = self("INFO", *sections).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def counter(self, name):
        return int(self.info()[name])

    def await_waiters(self, resource, count=1):
        wait_until(lambda: self.lease(resource)["waiters"] == count, f"{count} wait in line")

    def await_expiry(self, resource):
        wait_until(lambda: self.lease(resource)["state"] == "free", "the lease expired")

    def is_closed(self, timeout=HANG_SECONDS):
        """Waits for the server to close; False where it sends something or keeps the line."""
        try:
            self.read(timeout)
        except Closed:
            return True
        except TimeoutError:
            pass
        return False

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes with a TCP reset, as a machine that crashed and came back."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


@contextlib.contextmanager
def refused(code, text=None):
    """The block must end with an error reply of this code (and, where given, this pattern)."""
    with pytest.raises(ReplyError) as caught:
        yield caught
    assert caught.value.code == code, f"expected {code}, got: {caught.value.text}"
    if text:
        assert re.search(text, caught.value.text), caught.value.text
