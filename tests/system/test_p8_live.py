# SPDX-License-Identifier: Apache-2.0
"""P8 Live: waiters are served in order, the dead delay nobody for long, the gone leave no trace."""

import threading

import pytest
import redis

from harness.leases import PROMPT_SECONDS, hand_over, line_up
from harness.limits import HANG_SECONDS, Stopwatch, patience, wait_until, within
from harness.resp import refused

def test_50_waiters_are_served_in_the_exact_order_of_their_arrival(daemon, holder, token, key):
    line = line_up(daemon, key, 50)
    order = [token]
    for number, waiter in enumerate(line):
        assert holder("RELEASE", key, order[-1]) == 0
        order.append(waiter.read()[0])
        assert holder.lease(key)["waiters"] == 49 - number
    assert order == sorted(set(order))


def test_a_newcomer_does_not_overtake_the_line(daemon, holder, token, key):
    newcomer = daemon.client()
    first, second = line_up(daemon, key, 2)
    assert newcomer.acquire(key) is None
    holder("RELEASE", key, token)
    assert newcomer.acquire(key) is None
    token = first.read()[0]
    first("RELEASE", key, token)
    assert newcomer.acquire(key) is None
    assert second.read()[0] > token


@pytest.mark.parametrize("how", ["release", "revoke"])
def test_a_waiter_is_woken_promptly_by(daemon, holder, token, key, how):
    waiter, = line_up(daemon, key, 1)
    with within(patience(PROMPT_SECONDS)):
        holder("RELEASE", key, token) if how == "release" else holder("REVOKE", key)
        assert waiter.read()[0] > token


def test_a_waiter_is_woken_promptly_by_expiry_for_a_dead_holder_delays_at_most_its_ttl(daemon, key):
    holder, waiter = daemon.client(), daemon.client()
    with Stopwatch() as watch:
        token = holder.token(key, 600)
        waiter.send("ACQUIRE", key, 60000, "WAIT", 30000)
        holder.close()
        assert waiter.read()[0] > token
    assert 0.55 < watch.seconds < 0.6 + patience(PROMPT_SECONDS)


def test_a_dead_holder_delays_others_by_at_most_its_ttl_though_its_daemon_died_too(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    with within(3.0 + patience(PROMPT_SECONDS)):
        token = daemon.client().token("r", 3000)  # time enough for the next one to start
        daemon.kill()
        client = rig.daemon(lease=redis.uri).client()
        assert client.token("r", 60000, "WAIT", 10000) > token


def test_wait_ends_with_null_when_its_time_ran_out(daemon, key):
    holder, waiter = daemon.client(), daemon.client()
    holder.token(key)
    with Stopwatch() as watch:
        assert waiter.acquire(key, 60000, "WAIT", 300) is None
    assert 0.29 < watch.seconds < 0.3 + patience(PROMPT_SECONDS)
    assert holder.lease(key)["waiters"] == 0
    with within(patience(PROMPT_SECONDS)):
        assert waiter.acquire(key, 60000, "WAIT", 0) is None


def test_a_waiting_command_holds_back_only_its_own_connection(daemon, holder, token, key):
    waiter, other = daemon.client(), daemon.client()
    waiter.send_all([("ACQUIRE", key, 60000, "WAIT", 30000), ("PING",)])
    other.await_waiters(key, 1)
    assert other("PING") == "PONG"
    holder("RELEASE", key, token)
    assert waiter.read()[0] > token
    assert waiter.read() == "PONG"


@pytest.mark.parametrize("how", ["close", "reset", "CLIENT KILL"])
def test_a_waiter_whose_client_vanished_leaves_the_line(daemon, holder, token, key, how):
    first, gone, last = line_up(daemon, key, 3)
    if how == "CLIENT KILL":
        assert holder("CLIENT", "KILL", "{}:{}".format(*gone.sock.getsockname())) == "OK"
        assert gone.is_closed()
    else:
        gone.close() if how == "close" else gone.reset()
    holder.await_waiters(key, 2)
    holder("RELEASE", key, token)
    hand_over(first, last, key, first.read()[0], patience(PROMPT_SECONDS))


def ask_for(daemon, key):
    """Return a client whose ACQUIRE cannot be answered yet."""
    client = daemon.client(name="vanishing")
    client.send("ACQUIRE", key, 60000)
    return client


def test_a_grant_nobody_can_receive_is_given_back_and_retired_with_redis(rig, redis, relay):
    daemon = rig.daemon(lease=relay.redis_uri)
    watch, peek = daemon.client(), redis.client()
    before = watch.token("r")
    watch("RELEASE", "r", before)
    relay.hold("down")
    client = ask_for(daemon, "r")
    wait_until(lambda: int(peek("GET", "stockade:{r}:token")) > before, "Redis has granted")
    lost = int(peek("GET", "stockade:{r}:token"))
    client.reset()
    wait_until(lambda: b"vanishing" not in watch("CLIENT", "LIST"), "the daemon noticed")
    relay.let("down")
    with Stopwatch() as watched:
        fresh = watch.token("r", 60000, "WAIT", 10000)
    assert fresh > lost and watched.seconds < patience(3)
    watch.refused("STALE", "FENCED", lost, "SET", "r", "x")


def test_a_grant_nobody_can_receive_is_given_back_and_retired_while_its_commit_runs(rig, lease):
    daemon = rig.faulty_daemon(lease=lease)
    watch = daemon.client()
    first = watch.token("r")
    watch("RELEASE", "r", first)
    rig.faults.order("sync stall")
    client = ask_for(daemon, "r")
    rig.faults.await_hit()
    client.reset()
    watch.send("PING")
    try:
        answered = watch.reader.read(0.05) == "PONG"
    except TimeoutError:  # the event loop itself waits for the disk
        answered = False
    rig.faults.clear()
    assert answered or watch.read() == "PONG"
    with Stopwatch() as watched:
        fresh = watch.token("r", 60000, "WAIT", 10000)
    assert fresh > first + 1 and watched.seconds < patience(3)
    watch.refused("STALE", "FENCED", fresh - 1, "SET", "r", "x")


def test_a_release_behind_the_wait_that_it_would_end_is_a_deadlock(daemon, key):
    """What a client sends that shares one connection among its callers."""
    client, other = daemon.client(), daemon.client()
    token = client.token(key)
    with within(patience(PROMPT_SECONDS)):
        replies = client.pipeline([("ACQUIRE", key, 60000, "WAIT", 20000), ("GET", key),
                                   ("RELEASE", key, token)])
    assert str(replies[0]).startswith("DEADLOCK ") and "QUEUE" in str(replies[0])
    assert replies[1:] == [None, 0]
    assert other.token(key) > token
    assert client.acquire(key, 60000, "WAIT", 50) is None, "held by another: a plain wait"


def test_a_pool_that_lends_the_holders_connection_to_another_caller_waits(daemon, key):
    """As threads share a redis.Redis: the connection over which a lease was granted is the next
    one to be used."""
    with redis.Redis(*daemon.address) as pool:
        stock, sold = [30], []

        def sell():
            for _ in range(5):
                token, _ = pool.execute_command("ACQUIRE", key, 30000, "WAIT", 60000)
                stock[0] -= 1
                sold.append(pool.execute_command("FENCED", token, "SET", key, stock[0]))
                pool.execute_command("RELEASE", key, token)
        threads = [threading.Thread(target=sell) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience(HANG_SECONDS))
        assert len(sold) == 30 and pool.get(key) == b"0"


def test_a_waiter_that_missed_its_wake_up_looks_again_within_a_second(rig, redis):
    """The lock goes away behind the daemon's back."""
    daemon = rig.daemon(lease=redis.uri)
    token = daemon.client().token("r")
    waiter, = line_up(daemon, "r", 1)
    with within(1.0 + patience(PROMPT_SECONDS)):
        redis.client()("DEL", "stockade:{r}:lock")
        assert waiter.read()[0] > token


def test_one_waiter_too_many_is_busy_and_the_line_goes_on(rig, lease):
    daemon = rig.daemon("--max-waiters", "3", lease=lease)
    holder, surplus = daemon.client(), daemon.client()
    token = holder.token("r")
    line = line_up(daemon, "r", 3)
    with refused("BUSY"):
        surplus.acquire("r", 60000, "WAIT", 1000)
    holder("RELEASE", "r", token)
    for waiter in line:
        token = waiter.read()[0]
        assert waiter("RELEASE", "r", token) == 0
    assert surplus.token("r") > token
