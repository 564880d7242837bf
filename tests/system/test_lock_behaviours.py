# SPDX-License-Identifier: Apache-2.0
"""What people who know redis-py's Lock and Redisson's RLock count on, asked of a lease.

`Lock` is how such a client would be written: an owner's name, a TTL, and the token of the grant.
"""

import itertools
import json
import select

import pytest

from harness.limits import Stopwatch, patience, wait_until
from harness.resp import refused

PROMPT_SECONDS = 0.8  # below the look of each second
owners = itertools.count(1)


class Lock:
    def __init__(self, daemon, name, ttl_ms=60000, owner=None):
        self.client = daemon.client()
        self.name, self.ttl_ms = name, ttl_ms
        self.owner = owner or f"owner:{next(owners)}"
        self.token = None

    def acquire(self, wait_ms=0, ttl_ms=None):
        grant = self.client.acquire(self.name, ttl_ms or self.ttl_ms, "OWNER", self.owner,
                                    "WAIT", wait_ms)
        self.token = grant.token if grant else self.token
        return grant is not None

    def release(self):
        return self.client("RELEASE", self.name, self.token)

    def extend(self, ttl_ms):
        return self.client.renew(self.name, self.token, ttl_ms)

    def force(self):
        return self.client("REVOKE", self.name)

    def state(self):
        return self.client.lease(self.name) or {"state": "free", "holds": 0, "owner": b""}

    def is_locked(self):
        return self.state()["state"] == "held"

    def is_mine(self):
        state = self.state()
        return state["state"] == "held" and state["owner"] == self.owner.encode()

    def await_expiry(self):
        wait_until(lambda: not self.is_locked(), "the lease ran out")


@pytest.fixture
def lock(daemon, key):
    return Lock(daemon, key)


@pytest.fixture
def other(daemon, key):
    return Lock(daemon, key)


# Taking and giving back, as redis-py's Lock does


def test_a_lock_is_taken_once_and_can_be_taken_again_after_its_release(lock, other):
    assert lock.acquire() and not other.acquire()
    assert lock.release() == 0
    assert other.acquire() and not lock.acquire()


def test_try_answers_at_once_where_the_lock_is_held(lock, other):
    assert lock.acquire()
    with Stopwatch() as watch:
        assert not other.acquire(wait_ms=0)
    assert watch.seconds < patience(PROMPT_SECONDS)


def test_a_blocking_timeout_ends_the_wait_without_the_lock(lock, other):
    assert lock.acquire()
    with Stopwatch() as watch:
        assert not other.acquire(wait_ms=300)
    assert 0.29 < watch.seconds < 0.3 + patience(PROMPT_SECONDS)
    assert lock.is_mine() and lock.state()["waiters"] == 0


def test_locks_of_different_names_do_not_meet(daemon, key):
    one, two = Lock(daemon, key + "/1"), Lock(daemon, key + "/2")
    assert one.acquire() and two.acquire()


def test_a_lock_that_was_never_taken_cannot_be_released(lock):
    lock.token = 1
    with refused("UNKNOWN"):
        lock.release()
    assert not lock.is_locked()


def test_releasing_twice_changes_nothing_for_the_next_holder(lock, other):
    assert lock.acquire() and lock.release() == 0
    assert lock.release() == 0, "a repeat is the same answer"
    assert other.acquire()
    with refused("STALE"):
        lock.release()
    assert other.is_mine()


def test_only_the_holder_can_release(lock, other):
    assert lock.acquire()
    for token in (lock.token + 1, 1 << 50):
        other.token = token
        with refused("UNKNOWN"):
            other.release()
    assert lock.is_mine()


def test_a_lock_that_ran_out_and_was_taken_cannot_be_released_by_its_first_holder(lock, other):
    assert lock.acquire(ttl_ms=200)
    lock.await_expiry()
    assert other.acquire()
    with refused("STALE"):
        lock.release()
    assert other.is_mine()


def test_a_lock_that_ran_out_is_free_for_others_and_its_holder_may_come_again(lock, other):
    assert lock.acquire(ttl_ms=200)
    lock.await_expiry()
    first = lock.token
    assert lock.acquire() and lock.is_mine() and lock.token >= first
    assert lock.release() == 0 and other.acquire()


# Extending


def test_extending_restarts_the_time_and_keeps_the_token(lock):
    assert lock.acquire(ttl_ms=20000)
    token = lock.token
    assert lock.extend(60000)
    assert lock.state()["ttl_ms"] > 50000 and lock.state()["token"] == token


def test_extending_to_less_is_possible(lock, other):
    assert lock.acquire() and lock.extend(200)
    assert other.acquire(wait_ms=5000)


def test_extending_a_lock_that_another_has_by_now_fails(lock, other):
    assert lock.acquire(ttl_ms=200)
    lock.await_expiry()
    assert other.acquire()
    with refused("STALE"):
        lock.extend(60000)
    assert other.is_mine() and other.state()["ttl_ms"] <= 60000


def test_extending_a_lock_that_was_released_fails(lock):
    assert lock.acquire() and lock.release() == 0
    with refused("STALE"):
        lock.extend(60000)
    assert not lock.is_locked()


def test_extending_a_lock_that_was_never_taken_fails(lock):
    lock.token = 1
    with refused("UNKNOWN"):
        lock.extend(60000)


# Asking


def test_is_locked_and_held_by_tell_who_has_it_and_for_how_long(lock, other):
    assert not lock.is_locked()
    assert lock.acquire()
    assert lock.is_mine() and other.is_locked() and not other.is_mine()
    assert 55000 < other.state()["ttl_ms"] <= 60000
    lock.release()
    assert not other.is_locked() and other.state()["ttl_ms"] == 0


def test_a_lock_that_ran_out_is_not_locked(lock):
    assert lock.acquire(ttl_ms=200)
    lock.await_expiry()
    assert not lock.is_mine()


# Entering again, as Redisson's RLock does


def test_its_owner_enters_again_counted_and_gives_back_as_often(lock, other):
    assert lock.acquire() and lock.acquire() and lock.acquire()
    assert lock.state()["holds"] == 3 and not other.acquire()
    assert [lock.release() for _ in range(2)] == [2, 1]
    assert lock.is_mine() and not other.acquire()
    assert lock.release() == 0 and other.acquire()


def test_entering_again_keeps_the_token_so_the_outer_frame_can_still_write(lock):
    assert lock.acquire()
    outer = lock.token
    assert lock.acquire() and lock.token == outer
    lock.release()
    assert lock.client.fenced(outer, "SET", lock.name, "outer") == "OK"


def test_the_same_owner_on_another_connection_is_the_same_owner(daemon, lock, key):
    assert lock.acquire()
    same = Lock(daemon, key, owner=lock.owner)
    assert same.acquire() and same.token == lock.token and lock.state()["holds"] == 2


def test_entering_again_restarts_the_time(lock):
    assert lock.acquire(ttl_ms=20000) and lock.acquire(ttl_ms=60000)
    assert lock.state()["ttl_ms"] > 50000


def test_trylock_with_a_wait_gets_the_lock_when_it_is_given_back(lock, other):
    assert lock.acquire()
    other.client.send("ACQUIRE", other.name, 60000, "OWNER", other.owner, "WAIT", 20000)
    wait_until(lambda: lock.state()["waiters"] == 1, "it waits")
    with Stopwatch() as watch:
        lock.release()
        assert other.client.read()[0] > lock.token
    assert watch.seconds < patience(PROMPT_SECONDS) and other.is_mine()


def test_trylock_with_a_wait_gets_the_lock_when_its_holder_died(lock, other):
    assert lock.acquire(ttl_ms=400)
    lock.client.close()
    with Stopwatch() as watch:
        assert other.acquire(wait_ms=20000)
    assert watch.seconds < 0.4 + patience(PROMPT_SECONDS)


def test_a_fair_lock_goes_to_those_who_wait_in_the_order_they_came(daemon, key, lock):
    assert lock.acquire()
    line = [Lock(daemon, key) for _ in range(5)]
    for number, waiter in enumerate(line, 1):
        waiter.client.send("ACQUIRE", key, 60000, "OWNER", waiter.owner, "WAIT", 20000)
        wait_until(lambda n=number: lock.state()["waiters"] == n, "it waits")
    for waiter in line:
        lock.release()
        waiter.token = waiter.client.read()[0]
        assert waiter.is_mine()
        lock = waiter


# Forcing


def test_force_unlock_frees_whoever_holds_it_however_often(lock, other):
    assert lock.acquire() and lock.acquire()
    assert other.force() == lock.token
    assert not lock.is_locked() and other.acquire()


def test_after_a_force_unlock_the_old_token_writes_nothing(lock, other):
    assert lock.acquire()
    other.force()
    with refused("STALE"):
        lock.client.fenced(lock.token, "SET", lock.name, "late")
    with refused("STALE"):
        lock.release()
    assert lock.client("GET", lock.name) is None


def test_force_unlock_of_a_lock_that_nobody_ever_held_does_nothing(lock):
    assert lock.force() is None


# Tokens, as Redisson's RFencedLock hands them out


def test_tokens_are_1_2_3_and_so_on(lock, other):
    for token in range(1, 21):
        turn = lock if token % 2 else other
        assert turn.acquire() and turn.token == token and turn.release() == 0


def test_a_holder_never_reads_its_successors_token_as_its_own(lock, other):
    assert lock.acquire(ttl_ms=200)
    lock.await_expiry()
    assert other.acquire() and other.token == lock.token + 1
    assert other.state()["token"] == other.token and not lock.is_mine()


def test_a_token_survives_the_connection_it_came_over(daemon, lock, key):
    assert lock.acquire()
    lock.client.close()
    again = daemon.client()
    assert again.fenced(lock.token, "SET", key, "x") == "OK"
    assert again("RELEASE", key, lock.token) == 0


# Several at once, as Redisson's MultiLock


def test_a_multilock_takes_all_or_none(daemon, key):
    names = [f"{key}/{n}" for n in range(4)]
    blocker, taker = Lock(daemon, names[2]), daemon.client()
    assert blocker.acquire()
    assert taker("ACQUIREALL", 60000, 4, *names) is None
    assert [Lock(daemon, name).is_locked() for name in names] == [False, False, True, False]
    blocker.release()
    tokens = taker("ACQUIREALL", 60000, 4, *names)
    for name, token in zip(names, tokens):
        assert taker.fenced(token, "SET", name, "x") == "OK"
        assert taker("RELEASE", name, token) == 0


def test_a_multilock_waits_for_what_it_lacks(daemon, key):
    names = [f"{key}/{n}" for n in range(3)]
    blocker, taker = Lock(daemon, names[1]), daemon.client()
    assert blocker.acquire()
    taker.send("ACQUIREALL", 60000, 3, *names, "WAIT", 20000)
    wait_until(lambda: blocker.state()["waiters"] == 1, "it waits")
    blocker.release()
    assert len(taker.read()) == 3


def test_two_multilocks_that_cross_never_wait_for_each_other_for_ever(daemon, key):
    names = [f"{key}/{n}" for n in range(3)]
    one, two = daemon.client(), daemon.client()
    for _ in range(20):
        one.send("ACQUIREALL", 60000, 3, *names, "WAIT", 20000)
        two.send("ACQUIREALL", 60000, 3, *reversed(names), "WAIT", 20000)
        waiting = {one.sock: (one, names), two.sock: (two, names[::-1])}
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], patience(10))
            assert len(ready) == 1, "one at a time, and not none"
            client, order = waiting.pop(ready[0])
            replies = client.read()
            for name, token in zip(order, replies):
                assert client("RELEASE", name, token) == 0


# Tied to a connection


def test_an_ephemeral_lock_goes_with_its_connection(lock, other):
    token = lock.client.token(lock.name, 60000, "EPHEMERAL")
    other.client.send("ACQUIRE", other.name, 60000, "WAIT", 20000)
    wait_until(lambda: lock.state()["waiters"] == 1, "it waits")
    with Stopwatch() as watch:
        lock.client.reset()
        assert other.client.read()[0] > token
    assert watch.seconds < patience(PROMPT_SECONDS)
    with refused("STALE"):
        other.client.fenced(token, "SET", other.name, "late")


def test_a_lock_without_that_word_stays_when_its_connection_goes(lock, other):
    assert lock.acquire()
    lock.client.close()
    assert not other.acquire(wait_ms=100) and other.is_locked()


def test_a_repeat_on_a_new_connection_moves_an_ephemeral_lock_there(daemon, key):
    old, new = daemon.client(name="old"), daemon.client()
    words = ("OWNER", "me", "ID", "once", "EPHEMERAL")
    token = old.token(key, 60000, *words)
    assert new.token(key, 60000, *words) == token
    assert new.lease(key)["holds"] == 1, "the same request, counted once"
    old.reset()
    wait_until(lambda: b"name=old" not in new("CLIENT", "LIST"), "the daemon noticed")
    assert new.lease(key)["state"] == "held"
    assert new.fenced(token, "SET", key, "x") == "OK"


# Repeats


def test_a_repeated_acquire_and_release_count_once(lock):
    client, name = lock.client, lock.name
    tokens = {client.token(name, 60000, "OWNER", "me", "ID", "a") for _ in range(3)}
    token, = tokens
    assert client.lease(name)["holds"] == 1
    client.token(name, 60000, "OWNER", "me", "ID", "b")
    assert client.lease(name)["holds"] == 2
    assert [client("RELEASE", name, token, "ID", "r1") for _ in range(3)] == [1, 1, 1]
    assert client.lease(name)["holds"] == 1
    assert [client("RELEASE", name, token, "ID", "r2") for _ in range(3)] == [0, 0, 0]
    assert client.lease(name)["state"] == "free"


# Being told


def subscribed(daemon, *words):
    client = daemon.client()
    client(*words)
    return client


def told(listener, name, number):
    """The next events of a resource: (event, token, owner)."""
    heard = []
    while len(heard) < number:
        event = json.loads(listener.read()[-1])
        if event["resource"] == name:
            heard.append((event["event"], event["token"], event.get("owner")))
    return heard


@pytest.mark.parametrize("words", [("SUBSCRIBE", "stockade:events"),
                                   ("PSUBSCRIBE", "stockade:events:*")], ids=lambda w: w[0])
def test_who_listens_hears_of_each_grant_and_each_end(daemon, key, lock, other, words):
    listener = subscribed(daemon, *words)
    assert lock.acquire() and lock.release() == 0
    assert other.acquire(ttl_ms=200)
    other.await_expiry()
    assert lock.acquire() and other.force()
    with refused("STALE"):
        lock.client.fenced(lock.token, "SET", key, "late")
    heard = told(listener, key, 7)
    assert [(event, token) for event, token, _ in heard] == [
        ("granted", 1), ("released", 1), ("granted", 2), ("expired", 2), ("granted", 3),
        ("revoked", 3), ("refused", 3)]
    assert [owner for _, _, owner in heard[:5:2]] == [lock.owner, other.owner, lock.owner]


def test_a_holder_is_told_on_its_own_connection_that_its_lease_was_revoked(daemon, key):
    holder = daemon.client(proto=3)
    token = holder.token(key)
    daemon.client()("REVOKE", key)
    assert holder.read() == [b"stockade:lost", key.encode(), token, b"revoked"]
