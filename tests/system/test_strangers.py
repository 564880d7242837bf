# SPDX-License-Identifier: Apache-2.0
"""Connections that have to log in and do not: whatever they send, and however many they are, all
together hold at most 64 MB, and nobody who has logged in is disturbed."""

import contextlib
import resource
import selectors
import socket
import ssl

import pytest

from harness.limits import Wait, sanitized, wait_until
from harness.users import ROOT, login, with_users

MB = 1 << 20
BOUND = 64 * MB
HALF_REQUESTS, NEVER_READING, FLOOD = 2600, 40, 20 * MB
VALUE = b"v" * 10000

pytestmark = [pytest.mark.skipif(sanitized(), reason="a sanitizer keeps what was freed"),
              pytest.mark.alone]


@pytest.fixture(autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Crowd:
    """Connections that send as much as they can, and read nothing."""

    def __init__(self, address):
        self.where, self.sockets = address, []
        self.selector = selectors.DefaultSelector()
        self.sent = self.closed = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sock in self.sockets:
            sock.close()
        self.selector.close()

    def connect(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
        sock.connect(self.where)
        sock.setblocking(False)
        self.sockets.append(sock)
        return sock

    def add(self, text):
        sock = self.connect()
        self.selector.register(sock, selectors.EVENT_WRITE, text)

    def send(self):
        """Send what goes; return whether anything did."""
        ready = self.selector.select(0.3)
        for key, _ in ready:
            try:
                self.sent += key.fileobj.send(key.data)
            except BlockingIOError:
                pass
            except OSError:
                self.closed += 1
                self.selector.unregister(key.fileobj)
        return bool(ready)


FLOODS = [b"q\r\n" * 5000, b"GET\r\n" * 3000]
HALVES = [b"*2\r\n$4\r\nAUTH\r\n$16000\r\n" + b"x" * 15000, b"HELLO 3 AUTH a " + b"y" * 15000]


def quiet(daemon):
    """A client that has logged in, once the daemon has done what it does first."""
    client = login(daemon, "root", timeout=30)
    client("ACQUIRE", "k", 60000)
    assert client("FENCED", 1, "SET", "k", VALUE) == "OK"
    for _ in range(20):
        client("GET", "k")
    return client


def test_strangers_hold_a_bounded_amount_of_memory_whatever_they_send(rig):
    daemon = with_users(rig, ROOT, args=("--max-reply-memory", "128"))
    client = quiet(daemon)
    before = daemon.rss_bytes()
    with Crowd(daemon.address) as crowd:
        for number in range(HALF_REQUESTS):
            crowd.connect().send(HALVES[number % len(HALVES)])
        for number in range(NEVER_READING):
            crowd.add(FLOODS[number % len(FLOODS)])
        limit = Wait()
        while crowd.send() and crowd.sent < FLOOD and limit.left:
            pass
        assert client("GET", "k") == VALUE, "who has logged in is served"
        assert crowd.sent > NEVER_READING * 10000
        assert daemon.peak_rss_bytes() - before < BOUND
        assert client.counter("strangers_closed") > 0
        assert daemon.metric("reply_bytes") == 0
        assert login(daemon, "root")("GET", "k") == VALUE
    wait_until(lambda: daemon.metric("stranger_bytes") == 0, "they have gone")


def test_one_stranger_holds_next_to_nothing(rig):
    daemon = with_users(rig, ROOT)
    client = quiet(daemon)
    before = daemon.rss_bytes()
    with Crowd(daemon.address) as crowd:
        crowd.add(FLOODS[0])
        while crowd.send() and crowd.sent < 4 * MB:
            pass
        assert client("GET", "k") == VALUE
        assert daemon.metric("stranger_bytes") < 256 << 10
    assert daemon.peak_rss_bytes() - before < 4 * MB


def hello(certs):
    outgoing = ssl.MemoryBIO()
    tls = certs.client().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.slow  # 1,600 handshakes
def test_strangers_by_tls_are_bounded_too(rig, certs):
    cert = certs.server()
    path = rig.folder / "users.acl"
    path.write_text(ROOT + "\n")
    path.chmod(0o600)
    daemon = rig.daemon("--tls-cert", cert.cert, "--tls-key", cert.key, "--acl-file", path,
                        listen=["tls:127.0.0.1:0", "127.0.0.1:0"])
    context, held = certs.client(), []
    before = daemon.rss_bytes()
    with Crowd(daemon.address) as crowd:
        for _ in range(1600):
            sock = crowd.connect()
            sock.setblocking(True)
            with contextlib.suppress(OSError):
                held.append(context.wrap_socket(sock, server_hostname="127.0.0.1"))
                held[-1].send(b"q\r\n" * 5000)
        for _ in range(300):  # in the middle of their handshakes
            with contextlib.suppress(OSError):
                crowd.connect().send(hello(certs))
        assert daemon.peak_rss_bytes() - before < BOUND
        assert daemon.metric("strangers_closed_total") > 0
