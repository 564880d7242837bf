# SPDX-License-Identifier: Apache-2.0
"""Waiting for a lease: how soon the next in line is woken, whether all are served in the order in
which they came, and how one key is shared between the clients of two daemons."""

import itertools
import selectors
import socket
import time

from bench import clients
from bench.peers import encode
from bench.server import BenchError

WAIT_MS = 600000
REPLY_S_MAX = 60


class Client:
    """Sends one command and takes its reply when it is there."""

    def __init__(self, server):
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=REPLY_S_MAX)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *words):
        self.sock.sendall(encode(*words))

    def take(self):
        """A whole reply: those asked for here are short."""
        try:
            reply = self.sock.recv(4096)
        except TimeoutError:
            raise BenchError(f"no reply within {REPLY_S_MAX} s") from None
        if not reply.endswith(b"\r\n") or reply[:1] == b"-":
            raise BenchError(f"the server said {reply!r}")
        return reply

    def call(self, *words):
        self.send(*words)
        return self.take()

    def wait_for_waiters(self, key, count):
        end = time.monotonic() + REPLY_S_MAX
        while not self.call("LEASE", key).endswith(b"waiters\r\n:%d\r\n" % count):
            if time.monotonic() > end:
                raise BenchError(f"not {count} in line for {key} within {REPLY_S_MAX} s")


def token_of(reply):
    """Of [token, ttl_ms]."""
    return int(reply.split(b"\r\n")[1][1:])


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def pass_on(holder, waiter, watch, key, token):
    """Pass the lease from one to the other. Return the milliseconds from RELEASE to the grant, and
    the new token."""
    waiter.send("ACQUIRE", key, WAIT_MS, "WAIT", WAIT_MS)
    watch.wait_for_waiters(key, 1)
    sent = time.perf_counter()
    holder.send("RELEASE", key, token)
    granted = None
    with selectors.DefaultSelector() as selector:
        selector.register(holder.sock, selectors.EVENT_READ)
        selector.register(waiter.sock, selectors.EVENT_READ)
        while selector.get_map():
            events = selector.select(REPLY_S_MAX)
            if not events:
                raise BenchError(f"no grant within {REPLY_S_MAX} s of a release")
            for ready, _ in events:
                selector.unregister(ready.fileobj)
                if ready.fileobj is waiter.sock:
                    granted = time.perf_counter()
                    token = token_of(waiter.take())
                else:
                    holder.take()
    return (granted - sent) * 1000, token


def wake_up(here, there, seconds):
    """Two clients pass one lease to and fro, between two daemons where these are two."""
    key = f"wake:{time.monotonic_ns()}"
    holder, waiter, took_ms = Client(here), Client(there), []
    for client in (waiter, holder):  # a daemon knows a lease from its own first grant on
        token = token_of(client.call("ACQUIRE", key, WAIT_MS, "WAIT", WAIT_MS))
        if client is waiter:
            client.call("RELEASE", key, token)
    watches = {holder: Client(here), waiter: Client(there)}
    end = time.monotonic() + seconds
    while time.monotonic() < end or not took_ms:
        took, token = pass_on(holder, waiter, watches[waiter], key, token)
        took_ms.append(took)
        holder, waiter = waiter, holder
    holder.call("RELEASE", key, token)
    return {"ops": len(took_ms), "rate": 1000 * len(took_ms) / sum(took_ms),
            "p50": quantile(took_ms, .5), "p99": quantile(took_ms, .99),
            "p999": quantile(took_ms, .999), "max": max(took_ms)}


def order(server, number):
    """So many wait in line; each gives the lease to the next. All in turn?"""
    key = f"order:{time.monotonic_ns()}"
    holder, watch, line = Client(server), Client(server), []
    token = token_of(holder.call("ACQUIRE", key, WAIT_MS))
    for count in range(1, number + 1):
        line.append(Client(server))
        line[-1].send("ACQUIRE", key, WAIT_MS, "WAIT", WAIT_MS)
        watch.wait_for_waiters(key, count)
    begun = time.perf_counter()
    for client, due in zip(line, itertools.count(token + 1)):
        holder.call("RELEASE", key, token)
        token, holder = token_of(client.take()), client
        if token != due:
            raise BenchError(f"served out of turn: token {token} where {due} was due")
    return {"ops": number, "rate": number / (time.perf_counter() - begun)}


def shared(servers, seconds, number=50):
    """The contended cycle through two daemons on one lease service, half of the clients each."""
    return clients.together([lambda server=server: clients.load(
        server, "lease-cycle", flags=["--hot"], clients=number // len(servers),
        time=f"{int(seconds * 1000)}ms") for server in servers])
