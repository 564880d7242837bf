# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Python at the edges of its language: blocks that are left elsewhere,
names that cannot be sent, threads that cannot be started, what gevent and eventlet take away."""

import contextlib
import itertools
import logging
import os
import re
import select
import socket
import sys
import tempfile
import threading

import pytest

from harness import users
from harness.limits import BUILD, patience, wait_until
from harness.package import aio_connect, connect, stockade
from stockade import testing

pytestmark = pytest.mark.interpreted
LONE = "\ud800"  # half a character: json.loads() makes it of "\ud800"


@pytest.fixture
def shop(local):
    with connect(local) as shop:
        yield shop


def elsewhere(function):
    """In a thread of its own, which has ended then."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(patience(20))
    assert not thread.is_alive()


# Blocks.

def taken_again(shop, key):
    with shop.lease(key, wait=patience(20)) as lease:
        return lease.put(1)


def basket(shop, key):
    block = shop.leases(key, wait=1)
    return block, block._leases[0]


def single(shop, key):
    block = shop.lease(key, wait=1)
    return block, block


@pytest.fixture(params=[single, basket])
def block(request, shop, key):
    return request.param(shop, key)


def test_a_block_that_another_thread_leaves_is_left(shop, key, block):
    block[0].__enter__()
    elsewhere(lambda: block[0].__exit__(None, None, None))
    assert taken_again(shop, key) == 1


def test_a_lease_released_inside_its_block_is_free(shop, key, block):
    with block[0]:
        block[1].release()
        assert taken_again(shop, key) == 1


def test_a_lease_that_is_lost_inside_its_block_may_be_taken_there(shop, key, block):
    with block[0]:
        shop.revoke(key)
        assert block[1].lost.wait(patience(20))
        assert taken_again(shop, key) == 1


def test_a_block_that_would_wait_for_itself_is_told(shop, key, block):
    with block[0]:
        for again in (shop.lease(key, wait=60), shop.leases(key + "2", key, wait=60)):
            with pytest.raises(stockade.Deadlock):
                again.__enter__()
    assert taken_again(shop, key) == 1


def test_a_block_inside_that_of_the_same_owner_does_not_end_it(shop, key):
    with shop.lease(key, owner="till"):
        with shop.lease(key, owner="till"):
            pass
        with pytest.raises(stockade.Deadlock):
            shop.lease(key, wait=60).__enter__()


def test_a_block_that_another_task_leaves_is_left(local, key):
    import asyncio

    async def run():
        async with aio_connect(local) as shop:
            block = shop.lease(key, wait=1)
            await block.__aenter__()
            await asyncio.create_task(block.__aexit__(None, None, None))
            block = shop.lease(key, wait=1, on_lost=lambda _: None)
            async with block:
                with pytest.raises(stockade.Deadlock):
                    await shop.lease(key, wait=60).__aenter__()
                await shop.revoke(key)
                await asyncio.wait_for(block.lost.wait(), patience(20))
                async with shop.lease(key, wait=patience(20)) as lease:
                    assert await lease.put(1) == 1
    asyncio.run(run())


# What cannot be sent.

CANNOT = {
    "acquire": lambda shop, lease: shop.lease(LONE, wait=1).acquire(),
    "owner": lambda shop, lease: shop.lease("k", owner=LONE).acquire(),
    "basket": lambda shop, lease: shop.leases("k", LONE).__enter__(),
    "value": lambda shop, lease: lease.set(LONE),
    "field": lambda shop, lease: lease.hset(mapping={LONE: 1}),
    "id": lambda shop, lease: lease.set(1, id=LONE),
    "sql": lambda shop, lease: shop.sql("SELECT ?", LONE, leases=[lease]),
    "query": lambda shop, lease: shop.query(LONE),
    "revoke": lambda shop, lease: shop.revoke(LONE),
}


def test_a_word_that_cannot_be_sent_costs_no_lease(shop, key, caplog):
    with shop.lease(key, ttl=30) as lease:
        for call in CANNOT.values():
            with pytest.raises(stockade.Misuse):
                call(shop, lease)
        lease.put(1)
        shop.revoke(key)  # is heard of by whoever renews
        assert lease.lost.wait(patience(20))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_the_same_for_tasks(local, key):
    import asyncio

    async def run():
        async with aio_connect(local) as shop:
            with pytest.raises(stockade.Misuse):
                await shop.lease(LONE).acquire()
            async with shop.lease(key, on_lost=lambda _: None) as lease:
                with pytest.raises(stockade.Misuse):
                    await lease.set(LONE)
                await shop.revoke(key)
                await asyncio.wait_for(lease.lost.wait(), patience(20))
    asyncio.run(run())


# The thread that renews.

def test_a_thread_that_cannot_be_started_grants_nothing(shop, key, monkeypatch):
    start = threading.Thread.start

    def no_room(_):
        raise RuntimeError("can't start new thread")
    monkeypatch.setattr(threading.Thread, "start", no_room)
    for block in (shop.lease(key), shop.leases(key)):
        with pytest.raises(RuntimeError):
            block.__enter__()
    assert shop.query(key) is None
    monkeypatch.setattr(threading.Thread, "start", start)
    with shop.lease(key) as lease:
        shop.revoke(key)
        assert lease.lost.wait(patience(20))
    shop.close()


def test_what_is_owed_without_a_thread_is_given_back_later(shop, key, monkeypatch):
    def no_room(_):
        raise RuntimeError("can't start new thread")
    lease = shop.lease(key).acquire()
    shop._keeper.stop()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_room)
        lease._give_back()
    shop.lease(key + "2").acquire()
    wait_until(lambda: shop.query(key)["state"] == "free", "it is given back")


def test_without_poll_it_waits_all_the_same(shop, key, monkeypatch, caplog):
    """As gevent and eventlet leave it."""
    monkeypatch.delattr(select, "poll")
    with shop.lease(key) as lease:
        shop.revoke(key)
        assert lease.lost.wait(patience(20))
    assert not caplog.records


def test_whatever_fails_while_it_waits_does_not_spin(shop, key, monkeypatch, caplog):
    def fails(*_):
        raise ValueError("such as a descriptor that is too large for select()")
    monkeypatch.setattr(type(shop._keeper), "_receive", fails)
    with caplog.at_level(logging.CRITICAL, "stockade"), shop.lease(key, ttl=1) as lease:
        calls = []
        monkeypatch.setattr(type(shop._keeper), "_receive", lambda *_: calls.append(1) or fails())
        assert lease.lost.wait(patience(20))
    assert len(calls) < 100


def test_a_callback_that_ends_its_thread_ends_nobody_elses_renewals(shop, key):
    """sys.exit() is what a program may think of when its lease is lost."""
    with shop.lease(key, ttl=1) as other:
        with shop.lease(key + "2", on_lost=lambda _: sys.exit("lost")) as lease:
            shop.revoke(lease.resource)
            assert lease.lost.wait(patience(20))
        until = other._until
        wait_until(lambda: other._until > until, "the other one is renewed")
        assert other.valid


def keepers():
    return [thread for thread in threading.enumerate() if thread.name == "stockade"]


def test_a_lease_granted_after_the_close_is_given_back(local, key, block):
    before, ended = len(keepers()), []
    with connect(local) as other:
        held = other.lease(key).acquire()
        closed = connect(local)
        waiting = (closed.leases if isinstance(block[0], type(closed.leases(key))) else
                   closed.lease)(key, wait=patience(20))

        def wait():
            with pytest.raises(stockade.Misuse, match="was closed"):
                waiting.__enter__()
            ended.append(True)
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: other.query(key)["waiters"] == 1, "it waits")
        closed.close()
        held.release()
        thread.join(patience(20))
        assert ended
        wait_until(lambda: other.query(key)["state"] == "free", "it is given back")
    wait_until(lambda: len(keepers()) <= before, "nobody renews any more")


# Its name.

def test_its_connections_have_its_name(local, key):
    import asyncio

    async def run():
        async with aio_connect(local, client_name=f"{key}-tasks") as shop:
            async with shop.lease(key, ttl=1):
                named(local, f"{key}-tasks")
    asyncio.run(run())
    with connect(local, client_name=f"{key}-threads") as shop, shop.lease(key, ttl=1):
        named(local, f"{key}-threads")
        assert f"{key}-threads" in shop.command("HISTORY", key)[0]
    for package, name in itertools.product((stockade, stockade.aio), ("two words", "", 65 * "x")):
        with pytest.raises(stockade.Misuse):
            package.connect(client_name=name)
    with connect(local, client_name=64 * "x") as shop:
        shop.ping()


def own_name(shop):
    return re.search(r" name=(\S*) ", shop.command("CLIENT", "INFO"))[1]


def test_each_process_has_a_name_of_its_own(local, monkeypatch):
    host = socket.gethostname()[:20]
    for argv, program in [(["/srv/shop tills/" + 40 * "t", "--all"], 32 * "t"),
                          (["/srv/till \ud800/__main__.py"], "till--"), ([], "python"),
                          ([""], "python"), (["-c"], "python")]:
        monkeypatch.setattr(sys, "argv", argv)
        with connect(local) as shop:
            assert own_name(shop) == f"{program}-{os.getpid()}@{host}"


def test_a_forked_child_has_a_name_of_its_own(local):
    with connect(local) as shop:
        mine = own_name(shop)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, own_name(shop).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 100).decode() == mine.replace(f"-{os.getpid()}@", f"-{child}@")
        assert own_name(shop) == mine


@pytest.mark.parametrize("password, told", [("", "NOAUTH"), ("wrong", "WRONGPASS"), ("pw", "")])
def test_a_login_is_told_as_it_is_and_a_name_needs_no_right(rig, password, told):
    import asyncio
    uri = users.with_users(rig, "user till on >pw ~* +get").uri
    uri = uri.replace("//", f"//till:{password}@" if password else "//")

    async def ping():
        async with stockade.aio.connect(uri) as shop:
            await shop.get("k")

    def threads():
        with stockade.connect(uri) as shop:
            shop.get("k")
    for call in (threads, lambda: asyncio.run(ping())):
        with pytest.raises(stockade.Denied, match=told) if told else contextlib.nullcontext():
            call()


def named(local, name):
    client = local.client()
    wait_until(lambda: client("CLIENT", "LIST").count(f"name={name} ".encode()) == 2,
               "the program's connection, and the one that renews")


# The daemon of a program's tests.

@pytest.mark.parametrize("options, program, says", [
    (["--nonsense"], BUILD / "stockaded", "nonsense"), ([], "/bin/true", "did not start"),
    ([], "/no/such/program", "No such file")])
def test_a_daemon_for_tests_that_does_not_start_leaves_nothing(
        options, program, says, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises((RuntimeError, OSError), match=says):
        testing.daemon(*options, program=str(program))
    assert not list(tmp_path.iterdir())
