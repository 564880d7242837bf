# SPDX-License-Identifier: Apache-2.0
"""What tests of leases do again and again: grants in turn, lines of waiters, two daemons that share
a lease service, and what holds while that service is down."""

import selectors

from harness.deployment import token_when_up
from harness.limits import HANG_SECONDS, LONG_TTL_MS, Stopwatch, patience, wait_until, within
from harness.sockets import cut_connections

AT_MOST_SECONDS = 0.4  # for all but one of some wake-ups: well under a poll
PROMPT_SECONDS = 0.8  # for a wake-up: usually far less; a poll would take up to a second
AT_ONCE_SECONDS = 1.0  # until LEASEDOWN, where the daemon knows that the service is away
SILENT_SECONDS = 3.0  # where it has to find out


def lock_key(resource):
    return f"stockade:{{{resource}}}:lock"


def token_key(resource):
    return f"stockade:{{{resource}}}:token"


def cycles(client, resource, count=1):
    """Acquires and releases so many times; the tokens."""
    tokens = []
    for _ in range(count):
        tokens.append(token_when_up(client, resource))
        client("RELEASE", resource, tokens[-1])
    return tokens


def assert_rising(tokens):
    assert all(a < b for a, b in zip(tokens, tokens[1:])), tokens


def line_up(daemon, key, count, ttl_ms=LONG_TTL_MS, wait_ms=LONG_TTL_MS):
    """So many clients, which wait in this order."""
    watch = daemon.client()
    line = []
    for number in range(count):
        line.append(daemon.client())
        line[-1].send("ACQUIRE", key, ttl_ms, "WAIT", wait_ms)
        watch.await_waiters(key, number + 1)
    return line


def serve(clients, key):
    """Each releases as soon as it was served; the tokens in the order of service."""
    tokens = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.sock, selectors.EVENT_READ, client)
        while len(tokens) < len(clients):
            ready = selector.select(patience(HANG_SECONDS))
            assert len(ready) == 1, f"one at a time: {len(ready)} after {len(tokens)}"
            client = ready[0][0].data
            selector.unregister(client.sock)
            tokens.append(client.read()[0])
            assert client("RELEASE", key, tokens[-1]) == 0
    return tokens


def hand_over(holder, waiter, key, token, seconds):
    """Releases; the token of the waiter, which must be woken in time."""
    with Stopwatch() as watch:
        assert holder("RELEASE", key, token) == 0
        fresh = waiter.read()[0]
    assert fresh > token and watch.seconds < seconds
    return fresh


def assert_hand_overs_are_prompt(here, there, key, count=5):
    """From each daemon to the other, all but one: a machine may stand still for a moment. (To let
    pass more would hide what heals by itself after two seconds.)"""
    for giver, taker in ((here, there), (there, here)):
        holder, waiter, took = giver.client(), taker.client(), []
        for number in range(count):
            token = token_when_up(holder, f"{key}/{number}", 60000, "WAIT", 5000)
            wait_for(taker, waiter, f"{key}/{number}")
            with Stopwatch() as watch:
                assert holder("RELEASE", f"{key}/{number}", token) == 0
                token = waiter.read()[0]
            waiter("RELEASE", f"{key}/{number}", token)
            took.append(watch.seconds)
        assert sorted(took)[-2] < patience(AT_MOST_SECONDS)


def assert_whole_after_a_cut(here, there, key):
    """Two daemons that share a lease service lose each connection that they have made; once they
    have others, news go from one to the other as before."""
    assert_hand_overs_are_prompt(here, there, key)
    clients = [daemon.client() for daemon in (here, there)]
    watched = [client.counter("lease_service_watched") for client in clients]
    for daemon in (here, there):
        cut_connections(daemon)
    for client in clients:
        await_up(client)
    wait_until(lambda: [client.counter("lease_service_watched") for client in clients] == watched,
               "news arrive again", 10)
    assert_hand_overs_are_prompt(here, there, key)


def await_up(client):
    wait_until(lambda: client.info("lease")["lease_service_up"] == "1", "the service is up")


def assert_leasedown(client, key, bound, reason=None, *options):
    with within(patience(bound)):
        client.refused("LEASEDOWN", "ACQUIRE", key, 60000, *options, text=reason)


def assert_holder_writes(client, token, key="held"):
    with within(patience(AT_ONCE_SECONDS)):
        assert client.fenced(token, "SET", key, "written") == "OK"
        assert client("GET", key) == b"written"


def await_news(daemon):
    client = daemon.client()
    wait_until(lambda: client.counter("lease_service_watched") == 1, "news arrive")
    return client


def pair(rig, *uris):
    """Two daemons on one file that hear of each other, and a client of each."""
    daemons = [rig.daemon(lease=uri) for uri in uris]
    return daemons, [await_news(daemon) for daemon in daemons]


def wait_for(daemon, client, key, ttl_ms=LONG_TTL_MS):
    """The client stands in line from now on."""
    client.send("ACQUIRE", key, ttl_ms, "WAIT", LONG_TTL_MS)
    daemon.client().await_waiters(key, 1)
