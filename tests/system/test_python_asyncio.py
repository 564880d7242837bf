# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Python, for tasks: what differs from threads, which is cancellation
and a loop that stands still. (test_python_package.py has what does not.)"""

import asyncio
import functools
import time

import pytest

from harness.limits import HANG_SECONDS, Wait, patience, within
from harness.package import aio_connect, connect, stockade

pytestmark = pytest.mark.interpreted


def in_loop(test):
    """Runs an async test in a loop of its own."""
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))
    return run


async def wait_until(predicate, what, timeout=HANG_SECONDS):
    wait = Wait(timeout)
    while not (value := await predicate()):
        wait.check(what)
        await asyncio.sleep(0.003)
    return value


async def is_free(shop, resource):
    known = await shop.query(resource)
    return known is None or known["state"] == "free"


async def waiters(shop, resource, count):
    await wait_until(functools.partial(_waiters, shop, resource, count), f"{count} wait")


async def _waiters(shop, resource, count):
    return (await shop.query(resource))["waiters"] == count


async def free(shop, resource):
    await wait_until(lambda: is_free(shop, resource), f"{resource} is free")


@pytest.fixture
def behind(rig):
    """A daemon of the test's own, and a relay before it."""
    daemon = rig.daemon()
    return daemon, rig.relay(daemon.address)


@in_loop
async def test_what_a_lease_writes_is_there(local, key):
    async with await aio_connect(local) as shop:
        async with shop.lease(key) as lease:
            assert await lease.get() is None
            await lease.set(10)
            assert [await lease.take(3), await lease.take(), await lease.put(2)] == [7, 6, 8]
            with pytest.raises(stockade.SoldOut):
                await lease.take(100)
            assert await lease.get() == await shop.get(key) == "8"
            assert await lease.delete() is True
            assert await lease.hset(mapping={"a": 1, "b": "x"}) == 2
            assert await lease.hincrby("a", 2) == 3 and await lease.hget("a") == "3"
            assert await lease.hdel("a") == 1
            assert await lease.hgetall() == await shop.hgetall(key) == {"b": "x"}
            assert await lease.fenced("HSTRLEN", lease.resource, "b") == 1
            assert lease.token == (await shop.query(key))["token"]
        assert await is_free(shop, key)
        with pytest.raises(stockade.Stale):
            await lease.hset("a", 1)


@in_loop
async def test_transactions_baskets_sql_and_the_decorator(local, key):
    async with aio_connect(local) as shop:
        await shop.sql("CREATE TABLE IF NOT EXISTS python_aio(name)")
        async with shop.leases(key + "a", key + "b", wait=1) as (first, second):
            async with shop.transaction(first, second, id=key) as sale:
                sale.put(first, 3)
                sale.hset(second, "left", 2)
                sale.sql("INSERT INTO python_aio VALUES(?)", key)
            assert sale.results[:2] == [3, 1]
            with pytest.raises(KeyError):
                async with shop.transaction(first) as sale:
                    sale.take(first)
                    raise KeyError
        assert await is_free(shop, key + "a") and await is_free(shop, key + "b")
        assert len(await shop.sql("SELECT * FROM python_aio WHERE name = ?", key)) == 1

        @shop.leased(key + "{letter}", wait=1)
        async def take(letter, n, lease):
            return await lease.take(n)
        assert await take("a", n=2) == 1
        with pytest.raises(stockade.Misuse):
            shop.leased("{x}")(lambda x: x)


@in_loop
async def test_40_tasks_wait_in_line_for_one_lease(local, key):
    async with aio_connect(local) as shop:
        async with shop.lease(key) as lease:
            await lease.set(40)

        async def sell():
            async with shop.lease(key, wait=patience(20)) as lease:
                left = int(await lease.get())
                await asyncio.sleep(0.001)
                await lease.set(left - 1)
                return left
        assert sorted(await asyncio.gather(*(sell() for _ in range(40)))) == list(range(1, 41))
        assert await shop.get(key) == "0"


@in_loop
async def test_more_tasks_wait_than_there_are_connections_for_it(rig, key):
    daemon = rig.daemon()
    shop = aio_connect(daemon, waiting_max=2)
    done = []

    async def visit():
        async with shop.lease(key, wait=patience(20)) as lease:
            done.append(lease.token)
    async with shop.lease(key):
        tasks = [asyncio.create_task(visit()) for _ in range(6)]

        async def denied():
            return daemon.metric("leases_denied_total") >= 4
        await wait_until(denied, "four were told at once")
        async with shop.lease(key + "x", wait=patience(20)) as lease:
            assert lease.valid  # one that is free is had all the same
        with pytest.raises(stockade.Held):
            await shop.lease(key, wait=0.2).acquire()
        assert await _waiters(shop, key, 2)
    await asyncio.gather(*tasks)
    assert len(set(done)) == 6
    await shop.close()


@in_loop
async def test_a_task_that_would_wait_for_itself_is_told(local, key):
    async with aio_connect(local) as shop, shop.lease(key, wait=1):
        with pytest.raises(stockade.Deadlock):
            async with shop.lease(key, wait=60):
                pass


def test_one_client_serves_one_loop_after_another(local, key):
    shop = aio_connect(local)

    async def visit():
        async with shop.lease(key) as lease:
            return await lease.put(1)
    assert [asyncio.run(visit()) for _ in range(3)] == [1, 2, 3]


# A lease that is lost.

@in_loop
async def test_what_is_stale_under_a_lease_is_its_loss(local, key):
    async with aio_connect(local) as shop:
        async with shop.lease(key, ttl=60, on_lost=lambda lease: None) as lease:
            await shop.revoke(key)
            for refused in (lease.set, lease.put):
                with pytest.raises(stockade.Stale):
                    await refused(2)
                assert not lease.valid
            with within(patience(HANG_SECONDS)):
                await lease.lost.wait()


@in_loop
async def test_a_lost_lease_cancels_its_block_at_once(local, key):
    async with aio_connect(local) as shop:
        with within(patience(5)), pytest.raises(stockade.Lost, match=key) as caught:
            async with shop.lease(key, ttl=60) as lease:
                await asyncio.sleep(0.2)  # it hears of its loss from a tenth of a second on
                await shop.revoke(key)
                await asyncio.sleep(patience(10))
        assert isinstance(caught.value, stockade.Stale)
        assert lease.lost.is_set() and not lease.valid
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.01)  # nothing is left of the cancellation
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(60), 0.01)


@in_loop
async def test_with_a_callback_it_is_called_instead(local, key):
    async with aio_connect(local) as shop:
        told = asyncio.Event()

        async def tell(lease):
            assert lease.resource == key
            told.set()
        for on_lost in (tell, lambda lease: told.set()):
            told.clear()
            async with shop.lease(key, ttl=60, on_lost=on_lost) as lease:
                await shop.revoke(key)
                await asyncio.wait_for(told.wait(), patience(5))
                assert lease.lost.is_set()


@in_loop
async def test_a_block_that_ends_as_its_lease_is_lost_ends_well(local, key):
    async with aio_connect(local) as shop:
        async with shop.lease(key, ttl=60) as lease:
            await lease.set(1)
            lease._set_lost("revoked", retired=False)
            lease._take_loss()  # the cancellation is on its way, and not delivered
        await asyncio.sleep(0.01)
        assert asyncio.current_task().cancelling() == 0


@in_loop
async def test_a_write_ends_before_the_loss_cancels(behind, key):
    daemon, relay = behind

    async def kept():
        return relay.kept("down")

    async def write(lease, shop):
        if write_in == "command":
            return [await lease.put(1)]
        async with shop.transaction(lease) as change:
            change.put(lease, 1)
        return change.results
    async with aio_connect(relay) as shop:
        for write_in, count in (("command", 1), ("transaction", 2)):
            written = None
            with pytest.raises(stockade.Lost):
                async with shop.lease(key, ttl=60, wait=patience(5)) as lease:
                    relay.hold("down")
                    loop = asyncio.get_running_loop()

                    async def lose():
                        await wait_until(kept, "it is applied")
                        lease._set_lost("as it seems", retired=False)
                        lease._take_loss()
                        loop.call_later(0.05, relay.let, "down")
                    loss = asyncio.create_task(lose())
                    written = await write(lease, shop)
                    await asyncio.sleep(60)
            await loss
            assert written == [count]


@in_loop
async def test_the_programs_own_error_is_not_hidden(local, key):
    async with aio_connect(local) as shop:
        with pytest.raises(KeyError):
            async with shop.lease(key, ttl=60):
                try:
                    await shop.revoke(key)
                    await asyncio.sleep(60)
                finally:
                    raise KeyError
        with pytest.raises(KeyError):
            async with shop.lease(key + "b", ttl=60):
                raise KeyError
        assert await is_free(shop, key + "b")


@in_loop
async def test_somebody_elses_cancellation_stays_one(local, key):
    async with aio_connect(local) as shop:
        async def hold():
            async with shop.lease(key, ttl=60):
                await shop.revoke(key)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    asyncio.current_task().cancel()  # while the loss unwinds
                    raise
        task = asyncio.create_task(hold())
        with pytest.raises(asyncio.CancelledError):
            await task
        for lost in (True, False):
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0.2):
                    async with shop.lease(key, ttl=60, on_lost=print):
                        if lost:
                            await shop.revoke(key)
                        await asyncio.sleep(60)


@in_loop
async def test_one_of_a_basket_that_is_lost_cancels_the_block_and_frees_the_others(local, key):
    async with aio_connect(local) as shop:
        with pytest.raises(stockade.Lost, match=key + "b"):
            async with shop.leases(key + "a", key + "b", key + "c", ttl=60):
                await shop.revoke(key + "b")
                await asyncio.sleep(60)
        await free(shop, key + "a")
        await free(shop, key + "c")


@in_loop
async def test_a_loop_that_stands_still_loses_no_lease(local, key):
    ttl = patience(0.5)
    async with aio_connect(local) as shop:
        async with shop.lease(key, ttl=ttl) as lease:
            time.sleep(3 * ttl)  # pylint: disable=invalid-name
            assert lease.valid
            await lease.set(1)
        assert await shop.get(key) == "1" and not lease.lost.is_set()


@in_loop
async def test_a_loop_that_stood_still_while_its_lease_was_lost_knows_at_once(local, key):
    async with aio_connect(local) as shop:
        written = False
        with pytest.raises(stockade.Lost):
            async with shop.lease(key, ttl=60) as lease:
                with connect(local) as other:  # blocks the loop
                    other.revoke(key)
                    limit = Wait()
                    while lease.valid:
                        limit.check("the clock or the keeper says so, whatever the loop does")
                        time.sleep(0.01)  # the loop stands still, which is the point
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                written = True
        assert not written


# Tasks that are cancelled.

@in_loop
async def test_a_wait_that_is_cancelled_leaves_nothing_behind(local, key):
    async with aio_connect(local) as shop:
        async with shop.lease(key):
            for how in ("cancelled", "timed out"):
                if how == "cancelled":
                    task = asyncio.create_task(shop.lease(key, wait=60).acquire())
                    await waiters(shop, key, 1)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(shop.lease(key, wait=60).acquire(), 0.2)
                await waiters(shop, key, 0)
        await free(shop, key)


@in_loop
async def test_a_release_that_is_cancelled_is_made_up_for(behind, key):
    daemon, relay = behind
    async with aio_connect(daemon) as other, aio_connect(relay) as shop:
        async def hold():
            async with shop.lease(key, ttl=60):
                relay.hold("up", b"RELEASE")
        task = asyncio.create_task(hold())

        async def releases():
            return relay.kept("up")
        await wait_until(releases, "it is about to release")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        relay.cut()
        relay.let("up")
        await free(other, key)


def test_a_program_that_ends_while_it_holds_a_lease_releases_it(local, key):
    async def main():
        shop = aio_connect(local)

        async def hold():
            async with shop.lease(key, ttl=60):
                held.set()
                await asyncio.sleep(60)
        held = asyncio.Event()
        task = asyncio.create_task(hold())
        await held.wait()
        return task, shop  # asyncio.run cancels it
    _, shop = asyncio.run(main())
    asyncio.run(free(shop, key))


# Replies that do not come.

@in_loop
async def test_a_daemon_that_restarts_is_waited_for(rig, key):
    daemon = rig.daemon()
    shop = aio_connect(daemon, timeout=20)
    listen = ("{}:{}".format(*daemon.address),)
    async with shop.lease(key, ttl=60) as lease:
        await lease.set(1)
        waiting = asyncio.create_task(shop.lease(key, wait=patience(20)).acquire())
        await waiters(shop, key, 1)
        await asyncio.to_thread(daemon.stop)
        writing = asyncio.create_task(lease.set(2))
        await asyncio.to_thread(functools.partial(rig.daemon, listen=listen))
        await writing
        assert await shop.get(key) == "2"
    await (await waiting).release()
    await shop.close()


@in_loop
async def test_a_write_that_nobody_reads_ends_in_its_time(rig, key):
    """What fills the socket stays unsent, and is waited for by nobody."""
    daemon = rig.daemon()
    async with aio_connect(daemon, timeout=1) as shop:
        lease = await shop.lease(key, ttl=60).acquire()
        with daemon.frozen():
            writing = asyncio.create_task(lease.set("x" * (16 << 20)))
            await asyncio.wait({writing}, timeout=patience(HANG_SECONDS))
            assert isinstance(writing.done() and writing.exception(), stockade.Unsure)
        await lease.release()
