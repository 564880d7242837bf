# SPDX-License-Identifier: Apache-2.0
"""The library's connection to a daemon: replies that get lost, daemons that are silent or gone, and
who else is there."""

import collections
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import false_daemon
from harness.library import StkError, fails
from harness.limits import HANG_SECONDS, Stopwatch, patience, wait_until, within
from harness.ports import free_port

IN_TIME_SECONDS = 3  # of a call whose limit is some tenths of one


@pytest.fixture
def daemon(rig):
    return rig.daemon()


@pytest.fixture
def relay(rig, daemon):
    return rig.relay(daemon.address)


@pytest.fixture
def client(library, daemon):
    with library.open(daemon.uri, 30000) as client:
        yield client


@pytest.fixture
def relayed(library, relay):
    """A client whose replies can get lost."""
    with library.open(relay.uri) as client:
        yield client


# Lost replies.

def lose_the_reply(relay, call):
    """What it returns, or the code of its error."""
    with ThreadPoolExecutor(1) as thread:
        with relay.losing_reply():
            result = thread.submit(call)
        try:
            return result.result(patience(HANG_SECONDS))
        except StkError as error:
            return error.code


def test_a_write_whose_reply_was_lost_is_repeated_and_applied_once(relay, relayed):
    lease = relayed.acquire("n", ttl_ms=60000)
    assert lose_the_reply(relay, lambda: relayed.fenced(lease, "INCR", "n")) == 1
    assert lose_the_reply(relay, lambda: relayed.fenced(lease, "INCR", "n")) == 2
    assert relayed.get("n") == "2"
    assert lose_the_reply(
        relay, lambda: relayed.transaction((lease, "INCR", "n"), (None, "GET", "n"),
                                          (lease, "INCRBY", "n", 10))) == [3, b"3", 13]
    assert lose_the_reply(relay, lambda: relayed.get("n")) == "13"
    lease.release()


def test_an_acquire_and_a_release_whose_replies_were_lost_count_once(daemon, relay, relayed):
    lease = lose_the_reply(relay, lambda: relayed.acquire("r", owner="me", ttl_ms=60000))
    assert lease.token == 1 and relayed.query("r").holds == 1
    again = relayed.acquire("r", owner="me", ttl_ms=60000)
    assert relayed.query("r").holds == 2
    assert lose_the_reply(relay, again.release) is None
    assert relayed.query("r").holds == 1
    assert lose_the_reply(relay, lease.release) is None
    assert not relayed.query("r").held
    waited = lose_the_reply(relay, lambda: relayed.acquire("r", wait_ms=5000, ttl_ms=60000))
    assert waited.valid
    waited.release()
    basket = lose_the_reply(relay, lambda: relayed.acquire("b", "a", ttl_ms=60000))
    assert basket.token_of("a") == basket.token_of("b") == 1
    basket.release()
    assert daemon.client()("LEASES") == []


def test_what_cannot_be_repeated_is_not(relay, relayed):
    relayed.acquire("r", ttl_ms=60000).free()
    assert lose_the_reply(relay, lambda: relayed.revoke("r")) == "UNSURE"
    assert not relayed.query("r").held
    assert lose_the_reply(
        relay, lambda: relayed.command("SQL", "CREATE TABLE t (a)")) == "UNSURE"


def test_a_write_that_stays_without_an_answer_is_unsure_and_its_receipt_tells(library, relay):
    with library.open(relay.uri, timeout_ms=int(patience(500))) as client:
        lease = client.acquire("n", ttl_ms=60000)
        relay.hold("down")
        with Stopwatch() as watch:
            fails("UNSURE", client.fenced, lease, "INCR", "n")
        ident = client.last_id
        relay.let("down")
        assert patience(0.4) < watch.seconds < patience(IN_TIME_SECONDS)
        assert client.receipt("n", lease.token, ident) == "applied"
        relay.hold("up")
        fails("UNSURE", client.fenced, lease, "INCR", "n")
        ident = client.last_id
        relay.cut()  # it never arrives
        relay.let("up")
        assert client.receipt("n", lease.token, ident) == "not yet"
        assert client.get("n") == "1"
        token = lease.token
        lease.release()
        assert client.receipt("n", token, ident) == "not applied"


def test_it_connects_again_when_the_daemon_was_restarted(rig, library):
    port = free_port()
    daemon = rig.daemon(listen=(f"127.0.0.1:{port}",))
    with library.open(daemon.uri, timeout_ms=int(patience(10000))) as client:
        lease = client.acquire("n", ttl_ms=60000)
        client.fenced(lease, "INCR", "n")
        daemon.kill()
        with ThreadPoolExecutor(1) as thread:
            written = thread.submit(client.fenced, lease, "INCR", "n")
            daemon = rig.daemon(listen=(f"127.0.0.1:{port}",))
            assert written.result(patience(HANG_SECONDS)) == 2
        lease.release()


def test_a_call_ends_in_time_where_the_daemon_is_silent_or_gone(daemon, library):
    with library.open(daemon.uri, timeout_ms=int(patience(300))) as client:
        lease = client.acquire("r", ttl_ms=60000)
        daemon.freeze()
        for code, call in (("TIMEOUT", lambda: client.get("r")),
                           ("TIMEOUT", lambda: client.acquire("x")),
                           ("UNSURE", lambda: client.set(lease, "r", 1)),
                           ("TIMEOUT", lambda: library.open(daemon.uri, 200))):
            with within(patience(IN_TIME_SECONDS)):
                fails(code, call)
        daemon.thaw()
        daemon.kill()
        with within(patience(IN_TIME_SECONDS)):
            fails("UNREACHABLE", client.get, "r")
        fails("UNREACHABLE", library.open, daemon.uri)
        lease.free()


def test_it_authenticates(rig, library):
    (rig.folder / "password").write_text("s%cret@home\n")
    daemon = rig.daemon("--password-file", rig.folder / "password")
    host = "{}:{}".format(*daemon.address)
    for user in ("", "default"):
        with library.open(f"stockade://{user}:s%25cret%40home@{host}") as client:
            lease = client.acquire("r")
            client.set(lease, "r", 1)
            lease.release()
    fails("NOAUTH", library.open, f"stockade://{host}")
    fails("WRONGPASS", library.open, f"stockade://:wrong@{host}")


def serve_slow_logins(server, heard):
    """Answers the login after a while, grants and renews what it is asked."""
    answers = {"HELLO": "+OK", "PING": "+PONG", "ACQUIRE": "*2\r\n:7\r\n:60000", "RENEW": ":60000",
               "RELEASE": ":0"}

    def answer(words):
        if words[0] == "HELLO":
            time.sleep(0.15)  # a slow login is what this is about
        heard.append(words[:2])
        return answers[words[0]]
    false_daemon.serve(server, answer)


def test_a_busy_program_still_connects_to_renew_its_leases(library):
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        serve_slow_logins(server, heard)
        with library.open("stockade://:pw@127.0.0.1:{}".format(server.getsockname()[1])) as client:
            lease = client.acquire("r", ttl_ms=60000)
            held = collections.deque()

            def is_renewed():  # what is acquired meanwhile is always due first
                held.append(client.acquire("s", ttl_ms=60000))
                if len(held) > 20:
                    held.popleft().release()
                return ["RENEW", "r"] in heard
            wait_until(is_renewed, "it is renewed")
            assert lease.valid and lease.lost == []
            for each in (lease, *held):
                each.free()


def test_waiters_through_one_client_are_served_in_order(client):
    lease, order, threads = client.acquire("r", ttl_ms=60000), [], []

    def wait(number):
        mine = client.acquire("r", ttl_ms=60000, wait_ms=20000)
        order.append(number)
        mine.release()
    for number in range(8):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(lambda: client.query("r").waiters == number + 1, "it waits")
    assert client.acquire("r", ttl_ms=60000) is None
    lease.release()
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def test_the_command_line_and_the_library_see_the_same_leases(daemon, client, tool):
    lease = client.acquire("r", owner="the library", ttl_ms=60000)
    assert "the library" in tool.run("-u", daemon.uri, "lease", "r").stdout
    lease.release()
