# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Python, for threads: what it does, what it does when a lease is lost,
a call is interrupted or a reply does not come, and that it installs. (test_python_asyncio.py: the
same for tasks. test_handlers.py: web handlers.)"""

import inspect
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

from harness import false_daemon
from harness.install import VERSION
from harness.limits import HANG_SECONDS, REPO, Stopwatch, patience, wait_until
from harness.package import FOLDER, connect, stockade
from harness.process import Process
from harness.shop import program

pytestmark = pytest.mark.interpreted


@pytest.fixture
def shop(local):
    with connect(local) as shop:
        yield shop


@pytest.fixture
def behind(rig):
    """A daemon of the test's own behind a relay, and a shop on that."""
    daemon = rig.daemon()
    relay = rig.relay(daemon.address)
    with connect(relay) as shop:
        yield shop, relay, daemon


def background(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def is_free(shop, resource):
    known = shop.query(resource)
    return known is None or known["state"] == "free"


# What it does.

def test_what_a_lease_writes_is_there(shop, key):
    with shop.lease(key) as lease:
        assert lease.get() is None
        lease.set("ten")
        assert lease.get() == shop.get(key) == "ten"
        lease.set(10)
        assert (lease.take(3), lease.take(), lease.put(2), lease.get()) == (7, 6, 8, "8")
        assert lease.delete() is True and lease.delete() is False
        assert lease.fenced("SETNX", key, 1) == 1 and lease.fenced("SETNX", key, 2) == 0
        assert lease.token == int(shop.query(key)["token"]) > 0
    assert is_free(shop, key)


def test_hashes(shop, key):
    with shop.lease(key) as lease:
        assert lease.hset("left", 5) == 1
        assert lease.hset(mapping={"left": 6, "price": 2.5}) == 1
        assert lease.hget("left") == "6" and lease.hget("none") is None
        assert lease.hincrby("left", -2, min=0) == 4
        with pytest.raises(stockade.SoldOut):
            lease.hincrby("left", 2, max=5)
        assert lease.hdel("price", "none") == 1
        assert lease.hgetall() == shop.hgetall(key) == {"left": "4"}
        with pytest.raises(stockade.WrongType):
            lease.get()


def test_bytes_that_are_no_text_come_back(shop, key):
    with shop.lease(key) as lease:
        lease.set(b"\xff\x00\xfe")
        assert lease.get().encode("utf-8", "surrogateescape") == b"\xff\x00\xfe"


def test_a_token_is_for_its_own_key_alone(shop, key):
    with shop.lease(key) as one, shop.lease(key + "2") as two:
        assert one.token == two.token
        with pytest.raises(stockade.NoToken):
            one.fenced("SET", two.resource, 1)
        with pytest.raises(stockade.NoToken), shop.transaction(one) as sale:
            sale.fenced(one, "SET", two.resource, 1)
        assert two.get() is None


def test_nothing_is_taken_where_there_is_not_enough(shop, key):
    with shop.lease(key) as lease:
        lease.set(6)
        with pytest.raises(stockade.SoldOut) as caught:
            lease.take(100)
        assert caught.value.code == "RANGE"
        with pytest.raises(stockade.SoldOut):
            lease.put(5, max=10)
        assert lease.get() == "6"
        assert lease.take(8, min=-2) == -2


def test_every_code_of_the_daemon_is_a_class_or_a_plain_refusal():
    table = (REPO / "fence/base/err.h").read_text().partition("STK_CLIENT_ERROR_MAP")[0]
    codes = set(re.findall(r'X\(\w+, "(\w+)"', table))
    known = {code for code in codes if type(stockade.errors.from_text(f"{code} why"))
             is not stockade.Refused}
    assert codes - known == {"NOPROTO", "NOSCRIPT", "EXECABORT", "ERR"}
    for name in stockade.__all__:
        each = getattr(stockade, name)
        if inspect.isclass(each) and issubclass(each, Exception):
            assert issubclass(each, stockade.StockadeError)


def test_a_lease_that_another_has_is_held(shop, key):
    with shop.lease(key):
        with pytest.raises(stockade.Held):
            shop.lease(key).acquire()
        begun = time.monotonic()
        with pytest.raises(stockade.Held):
            shop.lease(key, wait=0.3).acquire()
        assert time.monotonic() - begun > 0.298  # timers count whole milliseconds
    with shop.lease(key) as lease:
        assert lease.valid


def test_it_waits_in_line_and_is_woken(shop, key):
    tokens = []

    def wait():
        with shop.lease(key, wait=patience(10)) as lease:
            tokens.append(lease.token)
    with shop.lease(key) as lease:
        thread = background(wait)
        wait_until(lambda: shop.query(key)["waiters"] == 1, "it waits")
        assert not tokens
    thread.join(patience(5))
    assert tokens == [lease.token + 1]


def test_a_connection_that_holds_the_lease_is_no_deadlock(shop, key):
    """The connection over which a lease was taken is the next one to be used."""
    held = shop.lease(key).acquire()
    got = []
    threads = [background(lambda: got.append(shop.lease(key, wait=patience(10)).acquire()))
               for _ in range(3)]
    wait_until(lambda: shop.query(key)["waiters"] == 3, "they wait")
    held.release()
    for number in range(3):
        wait_until(lambda: len(got) == number + 1, "the next one has it")
        got[-1].release()
    for thread in threads:
        thread.join()


def test_a_thread_that_would_wait_for_itself_is_told(shop, key):
    with shop.lease(key, wait=1), Stopwatch() as watch:
        with pytest.raises(stockade.Deadlock):
            with shop.lease(key, wait=60):
                pass
    assert watch.seconds < patience(5)


def test_the_same_owner_enters_again_with_the_same_token(shop, key):
    with shop.lease(key, owner="till 3") as outer:
        with shop.lease(key, owner="till 3") as inner:
            assert inner.token == outer.token
        assert not is_free(shop, key)
        outer.set(1)
    assert is_free(shop, key)


def test_more_callers_wait_than_have_connections(rig, key):
    daemon = rig.daemon()
    shop = connect(daemon, waiting_max=2)
    done = []

    def visit():
        with shop.lease(key, wait=patience(20)) as lease:
            done.append(lease.token)
    with shop.lease(key):
        threads = [background(visit) for _ in range(6)]
        wait_until(lambda: daemon.metric("leases_denied_total") >= 4, "four were told at once")
        assert shop.query(key)["waiters"] == 2
        with shop.lease(key + "x", wait=patience(20)) as lease:
            assert lease.valid  # one that is free is had all the same
    for thread in threads:
        thread.join(patience(20))
    assert len(set(done)) == 6


@pytest.mark.parametrize("uri", [
    "", "redis://h", "stockade:h", "stockade://", "stockade://h:x", "stockade://h/1",
    "stockade://h?x=1", "sqlite:shop.db", "stockade+unix:"])
def test_a_uri_that_makes_no_sense_is_refused(uri):
    with pytest.raises(stockade.Misuse):
        stockade.connect(uri)


def test_a_password_and_a_unix_socket(rig, key):
    (rig.folder / "password").write_text("s:e/c@ret\n")
    socket = f"unix:{rig.folder}/s.sock"
    daemon = rig.daemon("--password-file", rig.folder / "password",
                        listen=("127.0.0.1:0", socket))
    port = daemon.address[1]
    with stockade.connect(f"stockade://:s%3Ae%2Fc%40ret@127.0.0.1:{port}") as shop:
        with shop.lease(key) as lease:
            lease.set(1)
        assert "ret" not in repr(shop)
    for uri in (f"stockade://127.0.0.1:{port}", f"stockade://:wrong@127.0.0.1:{port}",
                f"stockade+unix:{rig.folder}/s.sock"):
        with stockade.connect(uri) as shop, pytest.raises(stockade.Denied):
            shop.get(key)
    other = rig.daemon(listen=(f"unix:{rig.folder}/o.sock",), store=f"sqlite:{rig.folder}/o.db")
    with connect(other) as shop:
        with shop.lease(key) as lease:
            lease.set(1)
        assert shop.get(key) == "1"


@pytest.mark.parametrize("options", [{"ttl": 0.001}, {"ttl": 90000}, {"ttl": float("nan")},
                                     {"wait": -1}, {"ttl": "30"}, {"wait": None}])
def test_times_that_make_no_sense_are_refused(shop, options):
    with pytest.raises(stockade.Misuse):
        shop.lease("r", **options)


def test_a_value_that_is_none_is_refused_before_it_is_sent(shop, key):
    with shop.lease(key) as lease, pytest.raises(stockade.Misuse):
        lease.set(None)
    with pytest.raises(stockade.Misuse, match="not been acquired"):
        shop.lease(key).set(1)
    with pytest.raises(stockade.Misuse, match="once"):
        lease.acquire()


# Decorator, transactions, SQL, programs with a SQLite of their own.

def test_a_decorated_function_runs_under_its_lease(shop, key):
    @shop.leased(key + ":{sku}", wait=1)
    def sell(sku, n=1, *, lease):
        """Sell."""
        assert lease.resource == f"{key}:{sku}"
        return lease.put(n)

    @shop.leased(key + ":{sku}")
    def look(sku):
        return shop.query(f"{key}:{sku}")["state"]

    @shop.leased(key + ":{sku}")
    def middle(lease, sku, n):
        return lease.put(n) + sku

    assert sell(5) == 1 and sell(sku=5, n=3) == 4
    assert sell.__name__ == "sell" and sell.__doc__ == "Sell."
    assert list(inspect.signature(sell).parameters) == ["sku", "n"]
    assert look("5") == "held" and is_free(shop, f"{key}:5")
    assert middle(5, 1) == 10
    with pytest.raises(TypeError):
        sell()


def test_the_wrong_kind_of_function_is_refused_when_it_is_decorated(shop):
    async def task(sku):
        pass

    def generator(sku):
        yield sku
    for function in (task, generator):
        with pytest.raises(stockade.Misuse):
            shop.leased("{sku}")(function)


def test_a_transaction_is_whole_or_not_there(shop, key):
    with shop.leases(key + "a", key + "b", wait=1) as (first, second):
        first.set(5)
        second.hset("left", 5)
        with shop.transaction(first, second) as sale:
            sale.take(first, 2)
            sale.hincrby(second, "left", -1, min=0)
            sale.get(first)
            sale.hgetall(second)
        assert sale.results == [3, 4, "3", {"left": "4"}]
        with pytest.raises(stockade.SoldOut):
            with shop.transaction(first, second) as sale:
                sale.take(first)
                sale.hincrby(second, "left", -9, min=0)
        with pytest.raises(KeyError):
            with shop.transaction(first) as sale:
                sale.take(first)
                raise KeyError
        assert (first.get(), second.hget("left")) == ("3", "4")
        with pytest.raises(stockade.Misuse):
            sale.take(first)
    assert is_free(shop, key + "a") and is_free(shop, key + "b")


def test_all_leases_of_a_transaction_are_current(shop, key):
    with shop.lease(key + "a") as first, shop.lease(key + "b") as second:
        shop.revoke(key + "b")
        with pytest.raises(stockade.Stale):
            with shop.transaction(first, second) as sale:
                sale.put(first)
        assert first.get() is None


def test_a_basket_is_all_or_none(shop, key):
    with shop.lease(key + "b"):
        with pytest.raises(stockade.Held):
            with shop.leases(key + "a", key + "b"):
                pass
        assert is_free(shop, key + "a")


def test_crossing_baskets_do_not_deadlock(shop, key):
    def visit(names):
        for _ in range(10):
            with shop.leases(*names, wait=patience(20)) as leases:
                for lease in leases:
                    lease.put(1)
    threads = [background(lambda names=names: visit(names))
               for names in ([key + "a", key + "b"], [key + "b", key + "a"])]
    for thread in threads:
        thread.join(patience(20))
    assert shop.get(key + "a") == shop.get(key + "b") == "20"


def test_sql(shop, key):
    shop.sql("CREATE TABLE IF NOT EXISTS python_sql(n, name, price, bytes, none)")
    with shop.lease(key) as lease:
        done = shop.sql("INSERT INTO python_sql VALUES(?, ?, ?, ?, ?)", 7, key, 2.5, b"x", None,
                        leases=[lease])
        assert done.changes == 1 and done.last_insert_rowid > 0
        again = [shop.sql("INSERT INTO python_sql(name) VALUES(?)", key, leases=[lease],
                          id=key + "order") for _ in range(2)]
        assert again[0].last_insert_rowid == again[1].last_insert_rowid
    rows = shop.sql("SELECT *, typeof(n) AS kind FROM python_sql WHERE name = ? AND n = ?", key, 7)
    assert rows.columns == ("n", "name", "price", "bytes", "none", "kind")
    assert list(rows) == [("7", key, "2.5", "x", None, "integer")] and len(rows) == 1
    with pytest.raises(stockade.NoToken):
        shop.sql("DELETE FROM python_sql")
    with pytest.raises(stockade.Misuse):
        shop.sql("SELECT ?", object())


def test_a_token_is_presented_to_a_connection_of_the_programs_own(rig):
    daemon = rig.daemon()
    shop = connect(daemon)
    shop.sql("CREATE TABLE inventory(sku TEXT PRIMARY KEY, left INTEGER)")
    daemon.client()("GUARD", "CREATE", "inventory", "sku", "sku:")
    with sqlite3.connect(rig.store) as plain, shop.lease("sku:1") as lease:
        with pytest.raises(stockade.Misuse, match="stockade_guard"):
            lease.present(plain)
        assert not plain.in_transaction
    mine = program(rig.store)
    mine.isolation_level = ""  # as the module has it by itself

    def left():
        return mine.execute("SELECT left FROM inventory").fetchall()
    with shop.lease("sku:1") as lease:
        lease.present(mine)
        mine.execute("INSERT INTO inventory VALUES('1', 10)")
        mine.commit()
        mine.execute("BEGIN")
        lease.present(mine)
        mine.execute("UPDATE inventory SET left = 9")
        mine.commit()
        assert left() == [(9,)]
    with pytest.raises(stockade.Stale):
        lease.present(mine)
    assert not mine.in_transaction
    with pytest.raises(sqlite3.OperationalError, match="GUARDED"):
        mine.execute("UPDATE inventory SET left = 99")
    mine.rollback()
    assert left() == [(9,)]
    mine.close()


# Leaving the block, and losing the lease.

def test_the_programs_own_error_is_not_hidden(behind, key):
    shop, relay, _ = behind
    with pytest.raises(KeyError):
        with shop.lease(key):
            shop.revoke(key)
            raise KeyError
    with pytest.raises(KeyError):
        with shop.lease(key):
            relay.refuse()
            relay.cut()
            raise KeyError
    relay.accept()
    wait_until(lambda: is_free(shop, key), "what could not be released is, when it can")


def test_leaving_the_block_raises_nothing_when_the_lease_is_lost_or_the_daemon_away(behind, key):
    shop, relay, _ = behind
    with shop.lease(key) as lease:
        lease.set(1)
        shop.revoke(key)
    with shop.lease(key) as lease, Stopwatch() as watch:
        relay.refuse()
        relay.cut()
    assert watch.seconds < patience(3)
    relay.accept()
    wait_until(lambda: is_free(shop, key), "it is released later")


def test_release_says_when_it_was_lost(shop, key):
    lease = shop.lease(key).acquire()
    shop.revoke(key)
    with pytest.raises(stockade.Stale):
        lease.release()


def test_a_revoked_lease_is_told_at_once(local, shop, key):
    told = []
    renewals = local.metric("leases_renewed_total")
    with shop.lease(key, ttl=60, on_lost=told.append) as lease:
        lease.set(1)
        wait_until(lambda: local.metric("leases_renewed_total") > renewals,
                   "it is renewed, and hears of its loss from then on")
        shop.revoke(key)
        assert lease.lost.wait(patience(HANG_SECONDS)), "long before a renewal is due"
        wait_until(lambda: told, "the callback was called")
        assert not lease.valid and lease.left == 0 and "revoked" in lease._lost_error()
        with pytest.raises(stockade.Stale):
            lease.set(2)
    assert told == [lease] and shop.get(key) == "1"


def test_fewer_than_none_are_neither_taken_nor_put(shop, key):
    with shop.lease(key) as lease:
        lease.set(5)
        for bad in (-1, "-1", "1", 1.5, -1.5):
            for act in (lease.take, lease.put):
                with pytest.raises(stockade.Misuse):
                    act(bad)
            for act in ("take", "put"):
                with pytest.raises(stockade.Misuse), shop.transaction(lease) as transaction:
                    getattr(transaction, act)(lease, bad)
        assert lease.get() == "5" and lease.take(0) == 5


def in_a_transaction(shop, lease):
    with shop.transaction(lease) as transaction:
        transaction.set(lease, 2)


HEARS_OF_IT_BY = {
    "a write": lambda shop, lease: lease.set(2),
    "a read": lambda shop, lease: lease.get(),
    "a renewal": lambda shop, lease: lease.renew(),
    "SQL": lambda shop, lease: shop.sql("SELECT 1", leases=[lease]),
    "a transaction": in_a_transaction,
}


@pytest.mark.parametrize("what", HEARS_OF_IT_BY)
def test_what_is_stale_under_a_lease_is_its_loss(shop, key, what):
    told = threading.Event()
    with shop.lease(key, ttl=60, on_lost=lambda lease: told.set()) as lease:
        shop.revoke(key)
        with pytest.raises(stockade.Stale):
            HEARS_OF_IT_BY[what](shop, lease)
        assert not lease.valid and lease.left == 0
        assert lease.lost.wait(patience(HANG_SECONDS)) and told.wait(patience(HANG_SECONDS))


def test_of_several_leases_the_one_is_lost_that_was_refused(shop, key):
    with shop.leases(key, key + "b", ttl=60) as (kept, revoked):
        shop.revoke(key + "b")
        with pytest.raises(stockade.Stale):
            shop.sql("SELECT 1", leases=[kept, revoked])
        assert revoked.lost.wait(patience(HANG_SECONDS)) and kept.valid


def test_it_is_renewed_for_as_long_as_it_is_held(shop, key):
    ttl = patience(2)
    with shop.lease(key, ttl=ttl) as lease:
        end = time.monotonic() + 1.6 * ttl
        while time.monotonic() < end:
            assert lease.valid and shop.query(key)["state"] == "held"
            time.sleep(ttl / 10)  # a lease that lives past its TTL is looked at
        lease.set(1)
        assert not lease.lost.is_set()
    lease = shop.lease(key, ttl=ttl / 4, renew=False).acquire()
    wait_until(lambda: is_free(shop, key), "one that is not renewed ends")
    assert lease.lost.wait(patience(HANG_SECONDS)) and not lease.valid


def test_a_lease_that_nobody_refers_to_is_not_renewed(shop, key):
    shop.lease(key, ttl=patience(0.5)).acquire()
    wait_until(lambda: is_free(shop, key), "it has ended")


def test_another_ttl_from_here_on(shop, key):
    with shop.lease(key, ttl=10) as lease:
        assert lease.left < 10
        lease.renew(100)
        assert 90 < lease.left < 100 and lease.ttl == 100
        lease.renew(patience(2))
        assert not lease.lost.wait(patience(2.5)) and lease.valid  # and kept alive by that one


@pytest.mark.parametrize("how", ["silent", "cut"])
def test_the_holder_is_told_in_time_that_the_daemon_is_away(behind, key, how):
    shop, relay, _ = behind
    ttl = 3
    with shop.lease(key, ttl=patience(ttl)) as lease:
        begun = time.monotonic()
        relay.hold("down")
        if how == "cut":
            relay.refuse()
            relay.cut()
        wait_until(lease.lost.is_set, "the holder is told in time", ttl)
        assert not lease.valid
        assert time.monotonic() - begun > patience(ttl) / 4, "and not for nothing"


def test_a_daemon_that_is_away_for_a_moment_loses_no_lease(behind, key):
    shop, relay, daemon = behind
    with shop.lease(key, ttl=patience(3)) as lease:
        relay.refuse()
        relay.cut()
        time.sleep(patience(1.2))  # a renewal falls into it
        relay.accept()
        renewals = daemon.metric("leases_renewed_total")
        wait_until(lambda: daemon.metric("leases_renewed_total") > renewals, "it is renewed")
        lease.set(1)
        assert lease.valid and not lease.lost.is_set()


HOLD = """
import os, sys, time
sys.path.insert(0, {folder!r})
import stockade
shop = stockade.connect({uri!r})
with shop.lease({key!r}, ttl={ttl}) as lease:
    lease.set("mine")
    print("held", flush=True)
    while not os.path.exists({go!r}):
        time.sleep(0.01)  # until it is to go on
    print("valid" if lease.valid else "not valid", flush=True)
    try:
        lease.set("overwritten")
    except stockade.Stale:
        print("stale", flush=True)
    print("lost" if lease.lost.wait(5) else "not told", flush=True)
"""


def test_a_holder_that_was_stopped_past_its_ttl_writes_nothing_and_knows(rig, key):
    daemon = rig.daemon()
    shop = connect(daemon)
    go = rig.folder / "go"
    text = HOLD.format(folder=str(FOLDER), uri=daemon.uri, key=key, ttl=patience(1), go=str(go))
    holder = Process("python", ["/usr/bin/python3", "-c", text], rig.stderr_path("holder"))
    rig.processes.append(holder)
    assert holder.first_line() == "held"
    with holder.frozen():
        with shop.lease(key, wait=patience(10)) as lease:
            lease.set("its successor's")
        go.touch()
    assert [holder.first_line() for _ in range(3)] == ["not valid", "stale", "lost"]
    assert holder.wait() == 0
    assert shop.get(key) == "its successor's"


# Calls that are interrupted.

class Interrupted(BaseException):
    pass


def interrupted(call, when):
    """Whether a signal's exception came out of the call, sent as soon as `when`."""
    def interrupt(*_):
        raise Interrupted

    def send():
        wait_until(when, "it is there")
        os.kill(os.getpid(), signal.SIGUSR1)
    previous = signal.signal(signal.SIGUSR1, interrupt)
    thread = background(send)
    try:
        with pytest.raises(Interrupted):
            call()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


def test_a_release_that_is_interrupted_is_made_up_for(behind, key):
    shop, relay, daemon = behind

    def leave():
        with shop.lease(key, ttl=60):
            relay.hold("up", b"RELEASE")
    kept = []
    interrupted(leave, lambda: relay.kept("up") and kept.append(relay.kept("up")) is None)
    wait_until(lambda: relay.kept("up") > kept[0], "it is under way once more")
    relay.cut()
    relay.let("up")
    with connect(daemon) as other:
        wait_until(lambda: is_free(other, key), "it is released")


def test_a_forked_child_releases_nothing(rig, key):
    shop = connect(rig.daemon())
    with shop.lease(key) as lease:
        lease.set(1)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(stockade.Misuse):
                    lease.set(2)
                lease.__exit__(None, None, None)
                with shop.lease(key + "child") as other:
                    other.set(3)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        lease.set(4)
        assert shop.get(key + "child") == "3" and not is_free(shop, key)
    assert shop.get(key) == "4"


def test_a_lease_that_was_made_before_a_fork_is_taken_and_given_back_by_the_child(rig, key):
    shop = connect(rig.daemon())
    with shop.lease(key + "parent"):  # its keeper runs
        lease = shop.lease(key)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with lease:
                    lease.set(1)
                    status = 0 if shop.query(key)["state"] == "held" else 2
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert shop.get(key) == "1" and is_free(shop, key)


# Replies that do not come.

def scripted(server, answers):
    """Each command takes the next answer, after so many seconds. None closes its connection."""
    def answer(words):
        if words[0] == "HELLO" and "AUTH" not in words:
            return "+OK"
        wait, said = answers.pop(0) if answers else (0, None)
        time.sleep(wait)  # so long the answer takes
        return said
    false_daemon.serve(server, answer)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def reach(server, login="", **options):
    return stockade.connect("stockade://{}127.0.0.1:{}".format(login, server.getsockname()[1]),
                            **options)


def test_a_login_that_finds_the_daemon_busy_is_tried_again(server):
    scripted(server, [(0, "-BUSY 8 passwords are being checked already; try again"), (0, "+OK"),
                      (0, "$1\r\n7")])
    with reach(server, "user:password@") as shop:
        assert shop.get("k") == "7"


def test_a_slow_login_takes_its_time_from_the_call(server):
    scripted(server, [(1.6, "+OK"), (5, "$1\r\n7")])
    with reach(server, "user:password@", timeout=2) as shop, Stopwatch() as watch:
        with pytest.raises(stockade.Unreachable):
            shop.get("k")
    assert watch.seconds < 3.5  # 3.6 where the call had all its time after the login


def test_busy_after_a_lost_reply_leaves_the_write_unsure(server):
    scripted(server, [(0, "*2\r\n:1\r\n:60000"), (0, None), *[(0, "-BUSY stopping")] * 999])
    with reach(server, timeout=2) as shop:
        lease = shop.lease("k", renew=False).acquire()
        with pytest.raises(stockade.Unsure) as caught:
            lease.set(1)
        assert caught.value.token == 1 and caught.value.id


REFUSED = [(0, "-BUSY too many commands"), (0, "+QUEUED"), (0, ":99"), (0, "-EXECABORT Discarded")]


def test_a_transaction_that_was_refused_as_busy_is_sent_again(server):
    scripted(server, [(0, "*2\r\n:1\r\n:60000"), *REFUSED, (0, "+OK"), (0, "+QUEUED"),
                      (0, "+QUEUED"), (0, "*2\r\n:99\r\n:98")])
    with reach(server, timeout=5) as shop:
        with shop.transaction(shop.lease("k", renew=False).acquire()) as sale:
            sale.take(sale._leases[0])
            sale.take(sale._leases[0])
        assert sale.results == [99, 98]


@pytest.mark.parametrize("outcome", ["-ERR EXEC without MULTI", "*2\r\n:99\r\n:98"])
def test_busy_in_a_transaction_is_no_reason_to_send_it_again_unless_exec_says_so(server, outcome):
    """As a daemon answered that refused MULTI alone."""
    scripted(server, [(0, "*2\r\n:1\r\n:60000"), *REFUSED[:-1], (0, outcome)])
    with reach(server, timeout=5) as shop:
        lease = shop.lease("k", renew=False).acquire()
        with pytest.raises(stockade.Unsure, match="too many commands"):
            with shop.transaction(lease) as sale:
                sale.take(lease)
                sale.take(lease)


def test_a_name_that_takes_too_long_to_look_up_holds_nobody_up(monkeypatch):
    look_up, over = socket.getaddrinfo, threading.Event()

    def slowly(host, *args):
        if host == "slow.example" and socket.AI_NUMERICHOST not in args:
            over.wait(20)
        return look_up(host, *args)
    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    with stockade.connect("stockade://slow.example", timeout=0.3) as shop, Stopwatch() as watch:
        with pytest.raises(stockade.Unreachable):
            shop.get("k")
    over.set()
    assert watch.seconds < 5  # a slow look-up lasts for 20 s


@pytest.mark.parametrize("several", [False, True], ids=["one", "basket"])
def test_a_grant_that_ended_before_its_repeat_is_asked_for_again(behind, key, several):
    shop, relay, daemon = behind
    names = [key, key + "2"] if several else [key]
    shop.ping()

    def lose_it_and_its_reply():
        wait_until(lambda: relay.kept("down"), "there is a reply")
        for each in names:
            daemon.client()("REVOKE", each)
        relay.cut()
        relay.let("down")
    relay.hold("down")
    thread = background(lose_it_and_its_reply)
    with shop.leases(*names) if several else shop.lease(key) as held:
        assert (held[0] if several else held).token == 2
    thread.join()


def test_an_id_of_the_programs_own_counts_once_under_another_lease(shop, key):
    for _ in range(2):
        with shop.lease(key) as lease:
            assert lease.put(5, id="delivery 7") == 5
    assert shop.get(key) == "5"


def test_a_write_under_a_resource_of_any_name_can_be_asked_for(behind):
    shop, relay, daemon = behind
    quick = connect(relay, timeout=2)
    with quick.lease("ID", ttl=60) as lease:
        quick.sql("CREATE TABLE t(x)")
        relay.hold("down")
        with pytest.raises(stockade.Unsure) as caught:
            quick.sql("INSERT INTO t VALUES (1)", leases=[lease], id="mine")
        relay.cut()
        relay.let("down")
        assert caught.value.id == "mine" and quick.was_applied(caught.value) is True


def test_a_daemon_that_is_not_there_is_unreachable_and_nothing_was_applied(rig):
    relay = rig.relay(rig.daemon().address)
    shop = connect(relay, timeout=0.5)
    relay.refuse()
    with Stopwatch() as watch, pytest.raises(stockade.Unreachable):
        shop.lease("r").acquire()
    assert watch.seconds < patience(3)


def test_a_daemon_that_restarts_is_waited_for(rig, key):
    daemon = rig.daemon()
    shop = connect(daemon, timeout=20)
    listen = ("{}:{}".format(*daemon.address),)
    with shop.lease(key, ttl=60) as lease:
        lease.set(1)
        waiting = []
        thread = background(lambda: waiting.append(
            shop.lease(key, wait=patience(20)).acquire()))
        wait_until(lambda: shop.query(key)["waiters"] == 1, "one waits")
        daemon.stop()
        writing = background(lambda: lease.set(2))
        rig.daemon(listen=listen)
        writing.join()
        assert shop.get(key) == "2"
    thread.join()
    assert waiting[0].token == lease.token + 1
    waiting[0].release()


# The package.

USE = """
import stockade
shop = stockade.connect()
@shop.leased('sku:{sku}')
def sell(sku: str, lease: stockade.Lease) -> int:
    return lease.take(1)
with shop.lease('r') as lease:
    reveal_type(lease.get())
    lease.take('x')
async def main() -> None:
    async with stockade.aio.connect().lease('r') as lease:
        reveal_type(await lease.take())
"""


def test_types_hold_with_mypy_strict(tmp_path):
    use = tmp_path / "use.py"
    use.write_text(USE)
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "mypy", "--config-file", "setup.cfg",
         "--cache-dir", tmp_path / "cache", "stockade", use],
        cwd=FOLDER, capture_output=True, text=True, check=False)
    said = re.findall(r"^(.*?): (error|note): (.*)", done.stdout, re.M)
    assert [words for _, _, words in said] == [
        'Revealed type is "Union[builtins.str, None]"',
        'Argument 1 to "take" of "Lease" has incompatible type "str"; expected "int"  [arg-type]',
        'Revealed type is "builtins.int"'], done.stdout


@pytest.mark.slow
def test_pip_installs_it_without_a_network(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "pip", "install", "--no-index", "--no-deps", "--target", target,
         "--disable-pip-version-check", source], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DEPRECATION" not in done.stderr
    shown = subprocess.run(
        ["/usr/bin/python3", "-c", "import stockade, importlib.metadata as m\n"
         "print(stockade.__file__, stockade.__version__ == m.version('stockade'))\n"
         "print(m.requires('stockade'), sorted(str(f) for f in m.files('stockade')))"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(target)}).stdout
    assert str(target) in shown and " True\n" in shown and "['redis (>=4.3.4)'] " in shown
    assert "py.typed" in shown and "LICENSE" in shown and "stockade/aio.py" in shown


def test_its_version_is_the_products():
    assert stockade.__version__ == VERSION
    assert f"\nversion = {VERSION}\n" in (FOLDER / "setup.cfg").read_text()
