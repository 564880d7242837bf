# SPDX-License-Identifier: Apache-2.0
"""Leases on ZooKeeper: the line across daemons, sessions that end, what is left behind, logins, and
servers that are gone, silent, or empty again."""

import itertools
import pathlib
import re
import socket

import pytest

from harness.deployment import granted_again, token_when_up
from harness.false_zookeeper import (AUTH, CREATES, DELETE, EXPIRED, LIST, SESSION, SET,
                                     FalseZooKeeper)
from harness.leases import (AT_ONCE_SECONDS, PROMPT_SECONDS, SILENT_SECONDS, assert_holder_writes,
                            assert_leasedown, assert_rising, await_up, hand_over)
from harness.limits import Stopwatch, patience, wait_until, within
from harness.load import Load
from harness.ports import free_port
from harness.resp import Push, ReplyError
from harness.services import needed
from harness.zookeeper import ZooKeeper

LONG_SESSION_MS = 60000
RESTARTS = 6

pytestmark = pytest.mark.xdist_group("test_zookeeper")  # one server
numbers = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def programs():
    needed("zookeeper")


@pytest.fixture(scope="module")
def server(module_rig):
    """One server, for all tests that leave it up."""
    return ZooKeeper(module_rig)


def reached(daemon):
    """Once it has its session: a loaded machine may take longer for that than a call waits."""
    await_up(daemon.client())
    return daemon


class Place:
    """A folder in ZooKeeper for one test, and daemons that share it and a store."""

    def __init__(self, rig, server):
        self.rig = rig
        self.server = server
        self.chroot = f"/test{next(numbers)}"

    def daemon(self, login="", **options):
        return reached(self.unreached(login, **options))

    def unreached(self, login="", **options):
        return self.rig.daemon(lease=self.server.uri_with(login, self.chroot, **options))

    def nodes(self, key):
        return [path for path in self.server.tree()
                if path.startswith(f"{self.chroot}/stockade/{key}/")]

    def watches(self):
        """Return how many sessions watch each path that is not their own."""
        counts, owners, head = {}, {}, None
        for line in self.server.server.ask("dump").splitlines():
            if line.startswith("\t"):
                owners[line.strip()] = head
            head = head if line.startswith("\t") else line.rstrip(":")
        for line in self.server.server.ask("wchp").splitlines():
            if line.startswith("/"):
                head = line
            elif head.startswith(f"{self.chroot}/") and line.strip() not in ("", owners.get(head)):
                counts[head] = counts.get(head, 0) + 1
        return counts


@pytest.fixture
def place(rig, server):
    return Place(rig, server)


# The line.


def test_the_lease_is_a_node_that_goes_with_its_release(place):
    client = place.daemon().client()
    token = client.token("a b/c")
    assert re.fullmatch(r"/test\d+/stockade/a%20b%2Fc/[0-9a-f]{16}-\d{10}",
                        place.nodes("a%20b%2Fc")[0])
    client("RELEASE", "a b/c", token)
    assert place.nodes("a%20b%2Fc") == []


def test_daemons_stand_in_line_each_watching_the_one_in_front(place):
    """No herd: a release wakes one daemon, and it is the next one."""
    daemons = [place.daemon(session_ms=LONG_SESSION_MS) for _ in range(4)]
    clients = [daemon.client() for daemon in daemons]
    tokens = [clients[0].token("r")]
    for i, client in enumerate(clients[1:]):
        client.send("ACQUIRE", "r", 60000, "WAIT", 60000)
        wait_until(lambda: len(place.nodes("r")) == i + 2, "it has a place in line")
    wait_until(lambda: len(place.watches()) == 3, "each watches")
    assert set(place.watches().values()) == {1}
    last = max(place.nodes("r"), key=lambda path: path[-10:])
    assert last not in place.watches(), "nobody stands behind the last one"
    for holder, following in itertools.pairwise(clients):
        tokens.append(hand_over(holder, following, "r", tokens[-1], patience(PROMPT_SECONDS)))
    assert_rising(tokens)
    assert clients[-1].fenced(tokens[-1], "SET", "r", "x") == "OK"
    for token in tokens[:-1]:
        clients[0].refused("STALE", "FENCED", token, "SET", "r", "late")


def test_who_does_not_wait_takes_no_place_in_line(place):
    a, b = (place.daemon().client() for _ in range(2))
    token = a.token("r")
    assert b.acquire("r") is None
    assert len(place.nodes("r")) == 1
    assert a("RELEASE", "r", token) == 0
    assert a.token("r") > token, "free at once for who comes first"


def test_a_place_in_line_that_nobody_asks_for_is_left(place):
    a, b, c = (place.daemon().client() for _ in range(3))
    token = a.token("r")
    assert b.acquire("r", 60000, "WAIT", 200) is None
    wait_until(lambda: len(place.nodes("r")) == 2, "it lined up")
    c.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    wait_until(lambda: len(place.nodes("r")) == 3, "behind it")
    hand_over(a, c, "r", token, patience(2))
    assert len(place.nodes("r")) == 1


def test_resources_that_nobody_uses_do_not_pile_up(place):
    client = place.daemon().client()
    client.token("first")
    before = place.server.nodes()
    for i in range(200):
        client("RELEASE", f"r{i}", client.token(f"r{i}"))
    wait_until(lambda: place.server.nodes() <= before, "the containers are gone")
    assert client.token("r0") > 0


# Time and sessions.


@pytest.mark.parametrize("session_ms, ttl_ms", [(LONG_SESSION_MS, 1500), (1000, 600000)],
                         ids=["ttl", "session"])
def test_a_daemon_that_died_gives_its_leases_back_with_its_session_or_their_ttl(place, session_ms,
                                                                               ttl_ms):
    dead = place.daemon(session_ms=session_ms)
    client = place.daemon().client()
    token = dead.client().token("r", ttl_ms)
    dead.kill()
    with Stopwatch() as watch:
        fresh = client.token("r", 60000, "WAIT", 20000)
    assert fresh > token and watch.seconds < patience(4)


def test_a_session_that_expires_loses_its_leases_and_its_holders_are_told(place):
    asleep, awake = place.daemon(session_ms=1000), place.daemon()
    holder, kept = asleep.client(proto=3), asleep.client()
    tokens = {key: holder.token(key, 600000) for key in ("taken", "free")}
    asleep.freeze()
    client = awake.client()
    fresh = client.token("taken", 60000, "WAIT", 20000)
    wait_until(lambda: place.nodes("free") == [], "the session is over")
    asleep.thaw()
    told = [holder.read(15), holder.read(15)]
    assert all(isinstance(push, Push) and push[0] == b"stockade:lost" for push in told), told
    assert {push[1]: push[2] for push in told} == {k.encode(): t for k, t in tokens.items()}
    await_up(kept)
    kept.refused("STALE", "FENCED", tokens["taken"], "SET", "taken", "late")
    assert client.fenced(fresh, "SET", "taken", "x") == "OK"
    kept.renew("free", tokens["free"], 60000)
    assert client.acquire("free") is None
    assert kept.token("new") > 0


def test_a_holder_is_told_of_a_revocation_at_another_daemon(place):
    here, there = place.daemon(), place.daemon().client()
    holder = here.client(proto=3)
    holder("RELEASE", "r", holder.token("r"))
    token = holder.token("r", 60000)  # not 1, which may stand for "yes", too
    holder.renew("r", token, 60000)
    assert there("REVOKE", "r") == token
    told = holder.read()
    assert isinstance(told, Push) and told == [b"stockade:lost", b"r", token, b"revoked"]
    assert there.token("r") > token


def test_a_release_at_another_daemon_is_told_as_one(place):
    here, there = place.daemon(), place.daemon().client()
    holder, listener = here.client(), here.client(proto=3)
    listener("SUBSCRIBE", "stockade:events:r")
    token = holder.token("r")
    assert b"granted" in listener.read()[2]
    assert there("RELEASE", "r", token) == 0
    assert b"released" in listener.read()[2]


# Logins.


@pytest.mark.parametrize("login", ["ann:secret@", ":secret@"])
def test_a_wrong_login_is_leasedown_and_the_right_one_works(place, login):
    right = place.daemon(login).client()
    right("RELEASE", "r", right.token("r"))
    for wrong in ("ann:hunter2guess@", "bob:secret@", ""):
        daemon = place.unreached(wrong)
        client = daemon.client()
        assert_leasedown(client, "r", AT_ONCE_SECONDS)
        assert "no permission" in client.info("lease")["lease_service_detail"]
        daemon.stop()
        assert "hunter2guess" not in daemon.stderr()
    assert right.token("r") > 0


# Servers that are not there.


@pytest.mark.parametrize("where, why", [("nobody", "no server accepts"), ("silent", ""),
                                        ("no-such-host.invalid", "name")])
def test_where_no_server_answers_it_is_leasedown_at_once(rig, where, why):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = {"nobody": free_port(), "silent": silent.getsockname()[1]}.get(where)
        address = f"127.0.0.1:{port}" if port else where
        client = rig.daemon(lease=f"zookeeper://{address}?session_ms=2000").client()
        for _ in range(3):
            assert_leasedown(client, "r", AT_ONCE_SECONDS)
        wait_until(lambda: why in client.info("lease")["lease_service_detail"], "it says why")
        assert client("PING") == "PONG"


def test_a_server_that_stands_still_is_leasedown_in_bounded_time(rig):
    service = ZooKeeper(rig)
    client = reached(rig.daemon(lease=service.uri_with(session_ms=LONG_SESSION_MS))).client()
    token = client.token("held")
    with service.server.frozen():
        assert_leasedown(client, "r", SILENT_SECONDS)
        assert client.info("lease")["lease_service_up"] == "0"
        assert_holder_writes(client, token)
    assert token_when_up(client, "r") > 0
    client.renew("held", token, 60000)


# Servers that are slow or wrong.


@pytest.fixture
def false_server():
    server = FalseZooKeeper()
    yield server
    server.close()


@pytest.mark.parametrize("names", ["{}x", "x", "/stockade/r/0000000000000000-0000000001"])
def test_a_node_of_another_name_than_was_asked_for_is_leasedown(rig, false_server, names):
    false_server.names = names
    client = reached(rig.daemon(lease=false_server.uri)).client()
    assert_leasedown(client, "r", AT_ONCE_SECONDS, "another znode")
    false_server.names = "{}"
    false_server.nodes.clear()
    assert client.token("r") > 0


HEADER = pathlib.Path("/usr/include/zookeeper/zookeeper.h")
ERRORS = {name: int(code) for name, code in
          re.findall(r"^\s+(Z\w+) = (-\d+),", HEADER.read_text(encoding="utf-8"), re.M)}


def test_each_error_of_each_request_is_told_and_leaves_nothing_behind(rig, false_server):
    """Whatever the code: who asks is told at once, and all is as before when it is over."""
    client = reached(rig.daemon(lease=false_server.uri)).client()
    assert len(ERRORS) > 25
    for name, code in ERRORS.items():
        for kinds in (LIST, CREATES, (SET,), (DELETE,)):
            key = f"{name}/{kinds[0]}"
            token = client.token(key)
            false_server.errors = dict.fromkeys(kinds, code)
            with within(patience(AT_ONCE_SECONDS)):
                new = client.ask("ACQUIRE", key + "/new", 60000)
                renewed = client.ask("RENEW", key, token, 60000)
                assert client("RELEASE", key, token) == 0, "the store knows it"
            for reply in (new, renewed):
                if isinstance(reply, ReplyError):
                    assert re.fullmatch(r"LEASEDOWN \w.*", reply.text), (key, reply.text)
            assert (kinds in (LIST, CREATES)) == isinstance(new, ReplyError), (key, new)
            assert kinds != (SET,) or isinstance(renewed, ReplyError), (key, renewed)
            false_server.errors = {}
            assert token_when_up(client, key) > token


def test_a_folder_that_could_not_be_made_is_tried_again_over_the_same_connection(rig, false_server):
    """Somebody may have allowed it meanwhile."""
    false_server.errors = dict.fromkeys(LIST, ERRORS["ZNONODE"])
    client = rig.daemon(lease=false_server.uri).client()
    wait_until(lambda: false_server.created["/stockade"] >= 3, "it tries again")
    false_server.errors = {}
    await_up(client)
    assert client.token("r") > 0
    assert len(false_server.connections) == 1


def test_answers_may_come_byte_by_byte(rig, false_server):
    false_server.pieces = 1
    client = reached(rig.daemon(lease=false_server.uri)).client()
    token = client.token("r")
    client.renew("r", token, 60000)
    assert client("RELEASE", "r", token) == 0
    assert client.token("r") > token


def test_an_answer_that_ends_too_early_is_leasedown(rig, false_server):
    """Wherever it ends: before its header is whole, and behind that."""
    client = reached(rig.daemon(lease=false_server.uri)).client()
    for length in (0, 4, 15, 16, 17, 20, 24, 60):
        false_server.ends_at = length
        assert_leasedown(client, f"r{length}", SILENT_SECONDS)
        false_server.ends_at = None
        assert token_when_up(client, f"r{length}") > 0


def test_a_login_that_is_refused_is_leasedown_until_it_is_taken(rig, false_server):
    false_server.errors = {AUTH: ERRORS["ZAUTHFAILED"]}
    client = rig.daemon(lease=false_server.uri_with("ann:secret@")).client()
    wait_until(lambda: "authentication failed" in client.info("lease")["lease_service_detail"],
               "it says why")
    assert_leasedown(client, "r", AT_ONCE_SECONDS)
    false_server.errors = {}
    await_up(client)
    assert client.token("r") > 0
    assert set(false_server.logins) == {"ann:secret"}


def test_a_session_that_servers_have_forgotten_is_followed_by_another(rig, false_server):
    client = reached(rig.daemon(lease=false_server.uri)).client()
    token = client.token("r")
    false_server.session = EXPIRED
    false_server.cut()
    wait_until(lambda: "the session has expired" in client.info("lease")["lease_service_detail"],
               "it says so")
    assert_leasedown(client, "r2", AT_ONCE_SECONDS)
    false_server.nodes.clear()
    false_server.session = SESSION
    await_up(client)
    assert token_when_up(client, "r") > token


def test_servers_that_are_slow_to_take_a_session_back_are_given_time(rig, false_server):
    """And each of its connections logs in."""
    client = reached(rig.daemon(lease=false_server.uri_with("ann:secret@"))).client()
    assert client.token("r") > 0
    known = len(false_server.connections)
    false_server.session_delay = 1.8
    false_server.cut()
    false_server.await_connection(known + 1)
    await_up(client)
    assert len(false_server.connections) <= known + 3
    assert client.token("r2") > 0 and set(false_server.logins) == {"ann:secret"}


@pytest.fixture
def far(rig, server):
    """A relay, and a client of a daemon behind it."""
    relay = rig.relay(server.server.address)
    uri = f"zookeeper://127.0.0.1:{relay.address[1]}/test{next(numbers)}?session_ms=30000"
    return relay, reached(rig.daemon(lease=uri)).client()


def test_a_release_while_it_is_away_is_delivered_when_it_is_back(far):
    relay, client = far
    token = client.token("r")
    relay.refuse()
    relay.cut()
    wait_until(lambda: client.info("lease")["lease_service_up"] == "0", "it is away")
    assert client("RELEASE", "r", token) == 0
    client.refused("STALE", "FENCED", token, "SET", "r", "late")
    relay.accept()
    assert token_when_up(client, "r", 60000, "WAIT", 5000) > token


def unless_down(client):
    try:
        return client.lease("r")
    except ReplyError as error:
        assert error.code == "LEASEDOWN", error.text
        return None


def test_a_lost_connection_costs_no_lease(far):
    relay, client = far
    token = client.token("r")
    for _ in range(3):
        relay.cut()
        token_when_up(client, "other", 60000, "OWNER", "me")
        # The grant may have come by the old connection, whose end is noticed only now.
        lease = wait_until(lambda: unless_down(client), "the service is asked")
        assert (lease["state"], lease["token"]) == ("held", token)


@pytest.mark.slow
def test_restarts_let_no_stale_write_through_and_take_three_seconds(rig):
    service = ZooKeeper(rig)
    daemon = rig.daemon(lease=service.uri)
    client = daemon.client()
    with Load(daemon, clients=4) as load:
        for i in range(RESTARTS):
            token_when_up(client, f"before{i}")
            if i % 3 == 2:
                service.lose_all()
            else:
                service.down()
                assert_leasedown(client, "r", AT_ONCE_SECONDS)
                service.up()
            granted_again(client, f"after{i}")
    load.audit()
