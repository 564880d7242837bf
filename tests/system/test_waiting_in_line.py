# SPDX-License-Identifier: Apache-2.0
"""P8 Live, with many: the line keeps its order, only its head asks the lease service, nobody is
forgotten, and memory that was used once is used again."""

import re
import resource
import textwrap
import time

import pytest

from harness.leases import line_up, serve
from harness.limits import Stopwatch, sanitized, wait_until
from harness.package import FOLDER
from harness.process import Process

MB, KB = 1 << 20, 1 << 10


def script_calls(redis):
    """Return how many scripts Redis has run: each question for a lease is one."""
    said = redis.client()("INFO", "commandstats").decode()
    return sum(int(calls) for calls in re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", said))


def test_only_the_head_of_the_line_asks_the_lease_service(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    holder = daemon.client()
    token = holder.token("r")
    line = line_up(daemon, "r", 200)
    before, begun = script_calls(redis), time.monotonic()
    wait_until(lambda: script_calls(redis) >= before + 2, "the head looks once a second")
    looks, seconds = script_calls(redis) - before, time.monotonic() - begun
    assert looks <= 2 * seconds + 2, "one look a second, not one for each of the 200"
    before, begun = script_calls(redis), time.monotonic()
    for waiter in line:
        holder("RELEASE", "r", token)
        token, holder = waiter.read()[0], waiter
    calls, seconds = script_calls(redis) - before, time.monotonic() - begun
    assert calls <= 200 * 3 + 2 * seconds, "a few for each turn, not one for each that waits"


def test_1000_waiters_are_served_in_the_exact_order_of_their_arrival(daemon, holder, token, key):
    line = line_up(daemon, key, 1000)
    for number, waiter in enumerate(line):
        assert holder("RELEASE", key, token) == 0
        grant = waiter.read()
        assert grant[0] == token + 1, f"number {number} got {grant}"
        token, holder = grant[0], waiter
    assert holder.lease(key)["waiters"] == 0


# So many callers of one process, each of which holds the lease until the process ends.
STANDS = {
    "threads": """
        import sys, threading, stockade
        shop = stockade.connect(sys.argv[1])
        def hold():
            with shop.lease(sys.argv[2], ttl=float(sys.argv[4]), wait=600):
                print("held", flush=True)
                threading.Event().wait()
        for _ in range(int(sys.argv[3])):
            threading.Thread(target=hold).start()""",
    "asyncio": """
        import asyncio, sys, stockade.aio
        async def main():
            shop = stockade.aio.connect(sys.argv[1])
            async def hold():
                async with shop.lease(sys.argv[2], ttl=float(sys.argv[4]), wait=600):
                    print("held", flush=True)
                    await asyncio.Event().wait()
            await asyncio.gather(*(hold() for _ in range(int(sys.argv[3]))))
        asyncio.run(main())""",
}


@pytest.mark.slow
@pytest.mark.interpreted
@pytest.mark.parametrize("package", STANDS)
def test_a_process_that_is_stopped_with_five_waiting_threads_costs_others_one_ttl(
        rig, local, key, package):
    """Beside a process of the same program: told apart by the names that packages give."""
    client, ttl, tills = local.client(), 2.0, []
    token = client.token(key)
    for count, waiting in ((5, 5), (1, 6)):
        tills.append(Process("till", ["/usr/bin/python3", "-c", textwrap.dedent(STANDS[package]),
                                      local.uri, key, count, ttl], rig.stderr_path("till"),
                             env={"PYTHONPATH": str(FOLDER)}))
        rig.processes.append(tills[-1])
        client.await_waiters(key, waiting)
    client("RELEASE", key, token)
    assert tills[0].first_line() == "held"
    tills[0].freeze()
    with Stopwatch() as watch:
        assert tills[1].first_line() == "held"
    for till in tills:
        till.kill()
    assert watch.seconds < 2 * ttl  # and not five of them


def crowd(daemon, key, count):
    """Return so many clients that wait, in any order."""
    clients = []
    for _ in range(count):
        client = daemon.client()
        client.send("ACQUIRE", key, 600000, "WAIT", 600000)
        clients.append(client)
    watch = daemon.client()
    wait_until(lambda: watch.lease(key)["waiters"] == count, "all wait")
    watch.close()
    return clients


def test_waiters_that_arrive_together_are_served_one_at_a_time_and_none_is_forgotten(daemon, key):
    waiting = [daemon.client() for _ in range(40)]
    for client in waiting:
        client.send("ACQUIRE", key, 60000, "WAIT", 30000)
    tokens = serve(waiting, key)
    assert tokens == sorted(set(tokens)) and len(tokens) == 40


@pytest.mark.slow
@pytest.mark.alone
def test_10000_waiters_on_one_resource_are_all_served_and_their_memory_is_used_again(rig, lease):
    count = 10000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + 200:
        pytest.skip("needs more open files than are allowed here")
    daemon = rig.daemon("--max-connections", count + 100, "--history", "100", lease=lease)
    resting, waiting = [], []
    for _ in range(3):
        holder = daemon.client()
        resting.append(daemon.rss_bytes())
        token = holder.token("r", 600000)
        clients = crowd(daemon, "r", count)
        waiting.append(daemon.rss_bytes())
        holder("RELEASE", "r", token)
        tokens = serve(clients, "r")
        assert tokens == list(range(token + 1, token + 1 + count))
        daemon.close_clients()
        watch = daemon.client()
        wait_until(lambda: len(watch("CLIENT", "LIST").splitlines()) == 1, "all are gone")
        watch.close()
    resting.append(daemon.rss_bytes())
    print("resting", [n // KB for n in resting], "waiting", [n // KB for n in waiting], "KB")
    if not sanitized():
        assert waiting[0] - resting[0] < count * 12 * KB, (resting, waiting)
        assert waiting[2] < waiting[0] * 1.1, (resting, waiting)
        assert resting[3] < resting[1] * 1.1, (resting, waiting)


@pytest.mark.slow
@pytest.mark.alone
def test_100000_held_leases_forget_no_waiter_and_their_memory_is_used_again(rig, lease):
    """Released one by one in the first round, left to run out in the second."""
    count, step = 100000, 2000
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    resting, holding = [], []
    for ttl_ms, released in ((600000, True), (15000, False), (600000, True)):
        resting.append(daemon.rss_bytes())
        tokens = {}
        for start in range(0, count, step):
            names = [f"r:{n}" for n in range(start, start + step)]
            grants = client.pipeline([("ACQUIRE", name, ttl_ms) for name in names])
            tokens.update((name, grant[0]) for name, grant in zip(names, grants))
        waited_for = [f"r:{n}" for n in range(0, count, 1000)]
        waiters = {name: daemon.client() for name in waited_for}
        for name, waiter in waiters.items():
            waiter.send("ACQUIRE", name, 600000, "WAIT", 600000)
        holding.append(daemon.rss_bytes())
        names = list(tokens)
        for start in range(0, count if released else 0, step):
            part = names[start:start + step]
            assert set(client.pipeline([("RELEASE", name, tokens[name]) for name in part])) == {0}
        for name, waiter in waiters.items():
            token = waiter.read()[0]
            assert token == tokens[name] + 1
            assert waiter("RELEASE", name, token) == 0
            waiter.close()
        if not released:
            wait_until(lambda: client.lease(names[-1])["state"] == "free", "all ran out")
    resting.append(daemon.rss_bytes())
    print("resting", [n // KB for n in resting], "holding", [n // KB for n in holding], "KB")
    if not sanitized():
        assert holding[0] - resting[0] < count * 1 * KB, (resting, holding)
        assert holding[2] < holding[0] * 1.2, (resting, holding)
        assert resting[3] < resting[1] * 1.1, (resting, holding)
