# SPDX-License-Identifier: Apache-2.0
"""What a daemon promises holds with every lease service: one suite, for each of them by name.

The services are real, and so is the daemon before them. Each service has one deployment, which its
tests share; a test that takes something down brings it up again.
"""

import contextlib
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.deployment import Deployment, RECOVERED_SECONDS, granted_again
from harness.leases import (PROMPT_SECONDS, assert_rising, assert_whole_after_a_cut, cycles,
                            line_up)
from harness.limits import HANG_SECONDS, Stopwatch, patience, wait_until, within
from harness.resp import Push, ReplyError, refused
from harness.services import BY_TLS, SERVICES, needed, skipped

SHORT_MS = 150  # a TTL that is to run out
REFUSED_SECONDS = 3.0  # the longest that a dead service may take to be one
WRITES_MIN = 50
MANY, PORTION = 10000, 500


PARAMS = {name: pytest.param(name, marks=[pytest.mark.xdist_group(name)] +
                             ([pytest.mark.slow] if name in BY_TLS else []))
          for name in SERVICES | BY_TLS}
# `local:` is up while the daemon is, and has no state but the store's.
SEPARATE_SERVICES = pytest.mark.parametrize(
    "shared", [PARAMS[name] for name in PARAMS if name != "local"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=list(PARAMS.values()))
def shared(request, tmp_path_factory):
    deployment = Deployment(tmp_path_factory.mktemp(request.param), request.param)
    yield deployment
    deployment.close()


@pytest.fixture
def at(shared):
    with shared.lent():
        yield shared


@pytest.fixture
def client(at):
    return at.client()


@pytest.fixture
def other(at):
    return at.client()


# Leases.


def test_a_free_lease_is_granted_and_denied_to_others(client, other, key):
    grant = client.acquire(key, 20000)
    assert 15000 < grant.ttl_ms <= 20000
    assert other.acquire(key, 20000) is None
    assert client.acquire(key, 20000) is None, "without OWNER each call is a new owner"
    lease = other.lease(key)
    assert (lease["state"], lease["token"]) == ("held", grant.token)
    assert 15000 < lease["ttl_ms"] <= 20000
    assert client.fenced(grant.token, "SET", key, "x") == "OK"


def test_info_names_the_service_and_says_that_it_is_up(at):
    info = at.client().info()
    assert info["lease_service"] == at.service.name
    assert info["lease_service_up"] == "1"


def test_tokens_rise_with_every_grant(at, key):
    assert_rising(cycles(at.client(), key, 20))


def test_another_daemon_is_denied_what_this_one_holds_and_woken_when_it_is_free(at, key):
    holder, there = at.client(), at.second_daemon()
    waiter = there.client()
    for _ in range(3):
        token = holder.token(key, 60000, "WAIT", 5000)
        assert waiter.acquire(key) is None
        waiter.send("ACQUIRE", key, 60000, "WAIT", 10000)
        there.client().await_waiters(key)
        with within(patience(PROMPT_SECONDS)):  # before it would have polled
            holder("RELEASE", key, token)
            fresh = waiter.read()[0]
        assert fresh > token
        waiter("RELEASE", key, fresh)
    there.stop()


def test_an_owner_may_go_from_one_daemon_to_another(at, key):
    here, there = at.client(), at.second_daemon()
    client = there.client()
    token = here.token(key, 60000, "OWNER", "me")
    client.renew(key, token, 60000)
    here.renew(key, token, 60000)
    assert client.acquire(key, 60000, "OWNER", "me").token == token
    assert here.acquire(key) is None
    assert [here("RELEASE", key, token) for _ in range(2)] == [1, 0]
    assert here.token(key, 60000, "WAIT", 5000) > token
    there.stop()


def test_permits_are_leases_of_their_own_and_there_are_no_more_than_n(at, key):
    client, there = at.client(), at.second_daemon()
    other = there.client()
    grants = [each("ACQUIRE", key, 60000, "PERMITS", 4) for each in (client, other) * 2]
    assert sorted(permit for _, _, permit in grants) == [1, 2, 3, 4]
    assert client("ACQUIRE", key, 60000, "PERMITS", 4) is None
    for token, ttl_ms, permit in grants:
        name = f"{key}#{permit}"
        assert 50000 < ttl_ms <= 60000 and client.fenced(token, "SET", name, "x") == "OK"
    line = [at.client() for _ in range(3)]
    for number, waiter in enumerate(line):
        waiter.send("ACQUIRE", key, 60000, "PERMITS", 4, "WAIT", 10000)
        wait_until(lambda: len(client("WAITERS", key)) == number + 1, "it waits")
    # Of what another daemon gives back some services tell only those who stand in their own line.
    for waiter, holder, (token, _, permit), seconds in zip(
            line, (client, client, other), (grants[0], grants[2], grants[1]),
            (PROMPT_SECONDS, PROMPT_SECONDS, 1 + PROMPT_SECONDS)):
        with within(patience(seconds)):
            assert holder("RELEASE", f"{key}#{permit}", token) == 0
            fresh = waiter.read()
        assert fresh[2] == permit and fresh[0] > token
    there.stop()


def test_a_permit_is_its_owners_and_its_ids(at, key):
    client, other = at.client(), at.client()
    mine = client("ACQUIRE", key, 60000, "PERMITS", 9, "OWNER", "me")
    once = client("ACQUIRE", key, 60000, "PERMITS", 9, "ID", "x")
    for _ in range(3):
        again = other("ACQUIRE", key, 60000, "PERMITS", 9, "OWNER", "me")
        repeat = other("ACQUIRE", key, 60000, "PERMITS", 9, "ID", "x")
        assert (again[0], again[2]) == (mine[0], mine[2])
        assert (repeat[0], repeat[2]) == (once[0], once[2])
    assert mine[2] != once[2]


def test_waiters_are_served_in_order(at, key):
    holder = at.client()
    tokens = [holder.token(key)]
    line = line_up(at.daemon, key, 5)
    for waiter in line:
        assert holder("RELEASE", key, tokens[-1]) == 0
        tokens.append(waiter.read()[0])
    assert_rising(tokens)


def test_a_wait_that_runs_out_is_null_and_leaves_the_line(client, token, other, key):
    with Stopwatch() as watch:
        assert other.acquire(key, 60000, "WAIT", 200) is None
    assert 0.15 < watch.seconds < patience(2)
    client.await_waiters(key, 0)
    assert client.fenced(token, "SET", key, "x") == "OK"


def test_the_same_owner_enters_again_with_the_same_token(client, other, key):
    token = client.token(key, 20000, "OWNER", "me")
    assert other.acquire(key, 60000, "OWNER", "me").token == token, "from any connection"
    lease = other.lease(key)
    assert (lease["holds"], lease["token"]) == (2, token)
    assert lease["ttl_ms"] > 50000, "the TTL has begun again"
    assert client.acquire(key, 60000, "OWNER", "me", "WAIT", 1000).token == token
    assert other.acquire(key, 60000, "OWNER", "you") is None
    assert [client("RELEASE", key, token) for _ in range(2)] == [2, 1]
    assert client.fenced(token, "SET", key, "x") == "OK", "it is held once more"
    assert other.acquire(key, 60000, "OWNER", "you") is None
    assert [client("RELEASE", key, token) for _ in range(2)] == [0, 0], "and a repeat"
    client.refused("STALE", "FENCED", token, "SET", key, "late")
    assert other.token(key, 60000, "OWNER", "me") > token


def test_only_its_owner_keeps_a_lease(client, other, key):
    """The owner check: nobody else enters, renews or releases."""
    old = client.token(key)
    client("RELEASE", key, old)
    token = client.token(key, 60000, "OWNER", "me")
    assert other.acquire(key, 60000, "OWNER", "you") is None
    for command in (("RENEW", key, old, 60000), ("RELEASE", key, old)):
        other.refused("STALE", *command)
    for command in (("FENCED", token + 1, "SET", key, "x"), ("RELEASE", key, token + 1),
                    ("RELEASE", key, 1 << 50)):
        other.refused("UNKNOWN", *command)
    lease = client.lease(key)
    assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, b"me")


def test_a_renewal_restarts_the_ttl_under_the_same_token(at, client, key):
    token = client.token(key, 2000)
    client.renew(key, token, 60000)
    lease = client.lease(key)
    assert lease["token"] == token and lease["ttl_ms"] > 50000
    client.renew(key, token, SHORT_MS)
    assert at.client().token(key, 60000, "WAIT", 5000) > token


def test_a_renewal_after_expiry_takes_back_what_nobody_took(at, client, key):
    token = client.token(key, SHORT_MS)
    client.await_expiry(key)
    client.renew(key, token, 60000)
    assert client.fenced(token, "SET", key, "x") == "OK"
    assert at.client().acquire(key) is None
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("held", token)


def test_a_renewal_after_expiry_of_what_another_took_is_stale(at, client, key):
    token = client.token(key, SHORT_MS)
    other = at.client().token(key, 60000, "WAIT", 5000)
    for command in (("RENEW", key, token, 60000), ("RELEASE", key, token)):
        client.refused("STALE", *command)
    lease = client.lease(key)
    assert lease["state"] == "held" and lease["token"] == other > token
    client("RELEASE", key, other)
    client.refused("STALE", "RENEW", key, token, 60000)
    assert client.lease(key)["state"] == "free"


def assert_dead(client, key, token):
    for command in (("FENCED", token, "SET", key, "late"), ("RENEW", key, token, 60000)):
        client.refused("STALE", *command)
    assert client("GET", key) is None


def test_a_released_lease_is_free_and_its_token_dead(client, token, other, key):
    assert client("RELEASE", key, token) == 0
    assert client("RELEASE", key, token) == 0, "repeating the last one"
    assert_dead(client, key, token)
    assert other.lease(key)["state"] == "free"
    fresh = other.token(key, 60000, "WAIT", 2000)
    assert fresh > token
    client.refused("STALE", "RELEASE", key, token)
    assert other.fenced(fresh, "SET", key, "x") == "OK"


def test_a_revoked_lease_is_free_and_its_token_dead(at, key):
    a, b = at.client(proto=3), at.client()
    assert b("REVOKE", key) is None, "nobody ever held it"
    token = a.token(key, 60000, "OWNER", "me")
    a.acquire(key, 60000, "OWNER", "me")
    assert b("REVOKE", key) == token, "all holds, by anyone"
    told = a.read()
    assert isinstance(told, Push) and told == [b"stockade:lost", key.encode(), token, b"revoked"]
    assert b.lease(key)["state"] == "free"
    assert_dead(a, key, token)
    a.refused("STALE", "RELEASE", key, token)
    assert a.token(key, 60000, "OWNER", "me", "WAIT", 2000) > token, "no old token lives again"


def test_an_expired_lease_passes_to_who_waits_and_its_holder_is_fenced(client, other, key):
    with Stopwatch() as watch:
        token = client.token(key, SHORT_MS)
        fresh = other.token(key, 60000, "WAIT", 10000)
    assert fresh > token
    assert SHORT_MS / 1000 * 0.9 < watch.seconds < patience(2)
    client.refused("STALE", "FENCED", token, "SET", key, "late")
    assert other.fenced(fresh, "SET", key, "x") == "OK"


def test_a_basket_of_leases_is_taken_whole_or_not_at_all(client, other, key):
    names = [f"{key}/{n}" for n in range(4)]
    taken = client.token(names[2])
    assert other("ACQUIREALL", 60000, len(names), *names) is None
    client("RELEASE", names[2], taken)
    tokens = other("ACQUIREALL", 60000, len(names), *names, "WAIT", 5000)
    assert tokens[2] > taken
    assert [client.acquire(name) for name in names] == [None] * 4
    for name, token in zip(names, tokens):
        assert other("RELEASE", name, token) == 0


def test_a_basket_that_gets_null_fences_nobody(client, other, key):
    names = [f"{key}/{n}" for n in range(3)]
    expired = client.token(names[0], SHORT_MS)
    client.await_expiry(names[0])
    taken = client.token(names[1])
    assert other("ACQUIREALL", 60000, len(names), *names) is None
    assert client.fenced(expired, "SET", names[0], "x") == "OK", "nobody has had it since"
    client.renew(names[0], expired, 60000)
    client("RELEASE", names[1], taken)
    client("RELEASE", names[0], expired)
    assert other("ACQUIREALL", 60000, len(names), *names, "WAIT", 5000)[0] > expired


# What the service forgets, and what it never knew.


def test_tokens_rise_above_a_floor_that_the_service_has_never_seen(at, client, key):
    """Another daemon on the store takes its leases elsewhere, and grants more of them."""
    first = cycles(client, key, 1)
    elsewhere = at.second_daemon(lease="local:")
    tokens = first + cycles(elsewhere.client(), key, 10)
    elsewhere.stop()
    tokens += cycles(client, key, 3)
    assert_rising(tokens)
    client.refused("STALE", "FENCED", tokens[5], "SET", key, "old")


@SEPARATE_SERVICES
def test_all_commands_say_the_same_of_a_lock_whose_grant_the_store_never_saw(at, key, tmp_path):
    """As where a daemon died in between. A daemon on another store takes it by the same service."""
    client, other = at.client(), at.client()
    token = client.token(key, SHORT_MS, "OWNER", "me")
    client.await_expiry(key)
    stranger = at.stranger(tmp_path / "strange.db")
    strange = stranger.client().token(key, 60000, "WAIT", 5000)

    lease = other.lease(key)
    assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, None)
    assert lease["holds"] == 0 and 0 < lease["ttl_ms"] <= 60000
    assert other("LEASE", key, "OWNER", "me") is None
    assert client.fenced(token, "SET", key, "x") == "OK", "no newer grant is known"
    client.refused("BUSY", "RENEW", key, token, 60000, text="whose grant is not recorded")
    assert other.acquire(key) is None and other.acquire(key, 60000, "OWNER", "me") is None
    assert other("ACQUIREALL", 60000, 2, key, key + "/free") is None
    assert other.lease(key + "/free") is None, "it was not even granted for a moment"

    stranger.client()("RELEASE", key, strange)
    stranger.stop()
    wait_until(lambda: isinstance(client.ask("RENEW", key, token, 60000), int), "it is taken back")
    lease = other.lease(key)
    assert (lease["state"], lease["token"], lease["owner"]) == ("held", token, b"me")
    assert client.fenced(token, "SET", key, "y") == "OK"


@SEPARATE_SERVICES
def test_the_loss_of_all_state_lowers_no_token_and_lets_no_stale_holder_through(at, key):
    """And who renews in time keeps the lease."""
    holder, other, kept = at.client(), at.client(), key + "/kept"
    before = cycles(other, key, 4)
    token, kept_token = holder.token(key), holder.token(kept)
    at.service.lose_all()
    assert holder.fenced(token, "SET", key, 10) == "OK", "nobody else has it"
    wait_until(lambda: renewed(holder, kept, kept_token), "the renewal", RECOVERED_SECONDS)
    fresh = granted_again(other, key)
    holder.refused("STALE", "FENCED", token, "SET", key, 9)
    assert other.fenced(fresh, "DECR", key) == 9
    other("RELEASE", key, fresh)
    assert_rising([*before, token, fresh, *cycles(other, key, 3)])
    assert other.acquire(kept) is None
    assert holder.fenced(kept_token, "SET", kept, "x") == "OK"


def renewed(client, key, token):
    """RENEW's reply, or None while the service is not there."""
    reply = client.ask("RENEW", key, token, 60000)
    if isinstance(reply, ReplyError):
        assert reply.code == "LEASEDOWN", reply.text
        return None
    assert 0 < reply <= 60000
    return reply


# Down and up.


@SEPARATE_SERVICES
def test_after_a_cut_releases_wake_others_at_once_again(at, key):
    there = at.second_daemon()
    assert_whole_after_a_cut(at.daemon, there, key)
    there.stop()


@contextlib.contextmanager
def writing(client, token, key):
    """Meanwhile a holder writes, without a pause and without a single error. Yields a function
    that returns when it has written a few times more."""
    ended, written = threading.Event(), 0

    def write():
        nonlocal written
        while not ended.is_set():
            assert client.ask("FENCED", token, "SET", key, written) == "OK"
            written += 1

    def some_more():
        goal = written + WRITES_MIN
        wait_until(lambda: written >= goal or writer.done(), "the holder writes")
        assert not writer.done(), writer.result()

    with ThreadPoolExecutor(1) as thread:
        writer = thread.submit(write)
        try:
            yield some_more
        finally:
            ended.set()
        writer.result(patience(HANG_SECONDS))
    assert written >= WRITES_MIN


@SEPARATE_SERVICES
def test_holders_write_without_a_single_error_while_the_service_is_down(at, key):
    """Who waits, or wants a new lease, is told. Releases count."""
    client, waiter = at.client(), at.client()
    token = client.token(key)
    waiter.send("ACQUIRE", key, 60000, "WAIT", 30000)
    client.await_waiters(key)
    released = client.token(key + "/released")
    with writing(at.client(), token, key) as some_more:
        some_more()
        at.service.down()
        try:
            reply = waiter.read(REFUSED_SECONDS + 2)
            assert isinstance(reply, ReplyError) and reply.code == "LEASEDOWN", reply
            for _ in range(2):
                with within(patience(REFUSED_SECONDS)), refused("LEASEDOWN", r"LEASEDOWN \w"):
                    client("ACQUIRE", key + "/new", 60000)
            some_more()
            assert client.info()["lease_service_up"] == "0"
            assert client("RELEASE", key + "/released", released) == 0
            client.refused("STALE", "FENCED", released, "SET", key + "/released", "late")
            some_more()
        finally:
            at.service.up()
        fresh = granted_again(client, key + "/new")
        some_more()
    assert client.fenced(fresh, "SET", key + "/new", "x") == "OK"
    assert client.info()["lease_service_up"] == "1"
    assert client.token(key + "/released", 60000, "WAIT", 10000) > released


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill -9"])
def test_the_daemon_restarts_and_tokens_rise(at, client, key, how):
    released = cycles(client, key, 3)
    token = client.token(key + "/held", 60000, "OWNER", "me")
    at.restart(how)
    client = at.client()
    granted_again(client, key + "/first")
    assert client.fenced(token, "SET", key + "/held", "goes on") == "OK", "nobody took it"
    if not at.service.sessions:
        assert client.acquire(key + "/held") is None
    client.renew(key + "/held", token, 60000)
    past_session_ms = at.service.session_ms * 5 // 4 if how == signal.SIGKILL else SHORT_MS
    grant = at.client().acquire(key + "/held", 60000, "WAIT", past_session_ms)
    assert grant is None, "the renewal is this daemon's, and outlives the session of the other"
    client.renew(key + "/held", token, SHORT_MS)
    fresh = at.client().token(key + "/held", 60000, "WAIT", 30000)
    assert fresh > token
    client.refused("STALE", "FENCED", token, "SET", key + "/held", "late")
    assert_rising(released + cycles(client, key, 3))


def leased(client, names):
    """A token for each name, in one pipeline. On a machine that is very busy a service may fail to
    answer in its time: who is told so asks again."""
    grants = client.pipeline([("ACQUIRE", name, 600000) for name in names])
    for n, grant in enumerate(grants):
        if isinstance(grant, ReplyError) and "no answer within" in grant.text:
            grants[n] = [granted_again(client, names[n], 600000, "WAIT", 5000)]
    refusals = [grant for grant in grants if not isinstance(grant, list)]
    assert not refusals, refusals[:3]
    return {name: grant[0] for name, grant in zip(names, grants)}


@pytest.mark.slow  # some services take ten seconds for it
def test_10000_resources_are_leased_written_and_given_back(client, key):
    names = [f"{key}/{n}" for n in range(MANY)]
    portions = [names[n:n + PORTION] for n in range(0, MANY, PORTION)]
    tokens = {}
    for some in portions:
        tokens.update(leased(client, some))
    for some in portions:
        replies = client.pipeline([("FENCED", tokens[name], "SET", name, name) for name in some])
        assert set(replies) == {"OK"}
        assert set(client.pipeline([("RELEASE", name, tokens[name]) for name in some],
                                   timeout=30)) == {0}
    assert client.token(names[0], 60000, "WAIT", 5000) > tokens[names[0]]


# The user's word.


def test_a_service_that_the_user_leaves_out_has_to_exist(monkeypatch):
    monkeypatch.setenv("STOCKADE_SKIP_SERVICES", "redis, zookeper")
    with pytest.raises(AssertionError, match="zookeper"):
        skipped()
    monkeypatch.setenv("STOCKADE_SKIP_SERVICES", "redis")
    assert skipped() == {"redis"}


def test_a_service_whose_programs_are_missing_fails_unless_it_is_left_out(monkeypatch, tmp_path):
    monkeypatch.delenv("STOCKADE_SKIP_SERVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="redis-server.*STOCKADE_SKIP_SERVICES=redis"):
        needed("redis")
    monkeypatch.setenv("STOCKADE_SKIP_SERVICES", "redis")
    with pytest.raises(pytest.skip.Exception, match="lease service redis: left out"):
        needed("redis")
