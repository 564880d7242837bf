# SPDX-License-Identifier: Apache-2.0
"""What one SQL statement may take, and that it takes nothing from anybody else. Tests run on every
store, but for those marked sqlite: its functions, its memory in our process, its statements."""

import threading
import time
from pathlib import Path

import pytest

from harness.limits import Stopwatch, patience
from harness.resp import ReplyError
from harness.threads import Beside
from test_sql import under

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
NUMBERS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < $1) "


def test_100000_rows_and_no_more(rig):
    client = rig.daemon("--sql-time-limit", "60000").client()
    numbers = NUMBERS + "SELECT x FROM c"
    back = client("SQL", "TYPES", "i", numbers, 100000)[3]
    assert len(back) == 100000 and back[-1] == [b"100000"]
    client.refused("ERR", "SQL", "TYPES", "i", numbers, 100001, text="100000 rows")
    assert client("PING") == "PONG"


@pytest.mark.sqlite  # zeroblob()
def test_a_reply_of_64_mib_and_no_more(local):
    client = local.client()
    sixteen = "SELECT zeroblob(16777216)"
    assert [len(row[0]) for row in client("SQL", " UNION ALL ".join([sixteen] * 3),
                                          timeout=30)[3]] == [16 << 20] * 3
    client.refused("ERR", "SQL", " UNION ALL ".join([sixteen] * 4), text="64 MiB")
    client.refused("ERR", "SQL", "SELECT zeroblob(17000000)", text="too big")


def test_a_statement_of_1_mib_and_no_more(local):
    client = local.client()
    assert client.rows("SELECT 1".ljust(1 << 20)) == [[b"1"]]
    client.refused("ERR", "SQL", "SELECT 1".ljust((1 << 20) + 1), text="1 MiB")


@pytest.mark.sqlite  # which is in our process
def test_a_statement_cannot_take_all_the_memory(rig):
    """Neither while it runs nor while it is compiled."""
    daemon = rig.daemon("--sql-time-limit", "60000")
    client = daemon.client()
    doubling = "WITH a0(x) AS (SELECT 1)" + "".join(
        f",a{i}(x) AS (SELECT p.x FROM a{i - 1} p, a{i - 1} q)" for i in range(1, 40))
    for statement in (ENDLESS + "SELECT randomblob(100000) FROM c ORDER BY 1",
                      doubling + " SELECT * FROM a39"):
        for _ in range(3):
            client.refused("ERR", "SQL", statement, text="128 MiB")
    assert daemon.peak_rss_bytes() < (512 << 20) * patience(1)


def test_names_nested_thousandfold_do_not_end_the_daemon(local):
    chain = "WITH a0(x) AS (SELECT 1)" + "".join(
        f",a{i}(x) AS (SELECT x FROM a{i - 1} LIMIT 1)" for i in range(1, 20000))
    client = local.client()
    client.refused("ERR", "SQL", chain + " SELECT * FROM a19999", text="500 SELECTs")
    assert client("PING") == "PONG"


def test_a_read_is_stopped_in_time_and_nobody_else_notices(rig, key):
    """Other reads and writes go past it, even where it is one of many."""
    for limit_ms in (1500, 6000, 24000):  # who waits for it takes longer than any limit
        daemon = rig.daemon("--sql-time-limit", limit_ms)
        slow, other, key = daemon.client(), daemon.client(), f"{key}+"
        token = other.token(key)
        with Stopwatch() as watch:
            for _ in range(3):
                slow.send("SQL", ENDLESS + "SELECT max(x) FROM c")
            for number in range(20):
                assert other.fenced(token, "SET", key, number) == "OK"
                assert other("GET", key) == b"%d" % number
            assert other("PING") == "PONG"
        for _ in range(3):
            reply = slow.read()
            assert isinstance(reply, ReplyError) and f"took more than {limit_ms} ms" in reply.text
        assert slow("GET", key) == b"19"
        daemon.close_clients()
        daemon.stop()
        if float(watch.seconds) < 0.8 * limit_ms / 1000:
            return
    assert watch.seconds < 0.8 * limit_ms / 1000


@pytest.mark.parametrize("bad", [
    "UPDATE {t} SET b = (" + ENDLESS + "SELECT max(x) FROM c)",
    "INSERT INTO {t} " + ENDLESS + "SELECT x, x FROM c", *(
        pytest.param(bad, marks=pytest.mark.sqlite) for bad in (
            "INSERT OR ROLLBACK INTO {t} VALUES(0, 0)", "UPDATE OR ROLLBACK {t} SET a = 0",
            "INSERT OR FAIL INTO {t} VALUES(-5, 0), (0, 0)"))])
def test_a_write_that_ends_its_transaction_loses_nobody_elses(rig, key, bad):
    """They share batches with 4 clients whose every write must be there, once."""
    daemon = rig.daemon("--sql-time-limit", "200")
    client = daemon.client()
    client("SQL", "CREATE TABLE t(a TEXT PRIMARY KEY, b TEXT)")
    token = client.token(key)
    client(*under(token, key, "INSERT INTO t VALUES(0, 0), (1, 1)"))
    stop = threading.Event()

    def write(name):
        own = daemon.client()
        mine, sent, inserted = own.token(name), 0, 0
        while not stop.is_set():
            replies = own.pipeline(
                [("FENCED", mine, "INCRBY", name, 1)] * 5
                + [under(mine, name, "INSERT INTO t VALUES($1, 1)", f"{name}/{sent}/{i}")
                   for i in range(5)])
            # Where the machine stands still, a statement has been under way for too long, too.
            errors = [reply for reply in replies[5:] if isinstance(reply, ReplyError)]
            assert all("took more than" in error.text for error in errors), errors
            sent, inserted = sent + 5, inserted + 5 - len(errors)
            assert replies[4] == sent
        return sent, inserted

    writers = {name: Beside(write, name) for name in [f"{key}:{i}" for i in range(4)]}
    ends = time.monotonic() + 2
    failures = 0
    while failures < 3 or time.monotonic() < ends:
        client.refused("ERR", *under(token, key, bad.format(t="t")))
        failures += 1
    stop.set()
    counts = {name: writer.end(40) for name, writer in writers.items()}
    assert sum(count for count, _ in counts.values()) >= 20
    assert all(inserted > 0 for _, inserted in counts.values())
    for name, (count, inserted) in counts.items():
        assert client("GET", name) == b"%d" % count
        assert client.rows("SELECT count(*) FROM t WHERE a > $1 || '/' AND a < $1 || '0'",
                           name) == [[b"%d" % inserted]]
    assert client.rows("SELECT a, b FROM t WHERE b = '0' OR a = '-5'") == [[b"0", b"0"]]


def processor_ns(pid):
    """Return what all threads of a process have used. Pauses and other programs do not count."""
    return sum(int(thread.read_text().split()[0])
               for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"))


@pytest.mark.sqlite  # which is in our process
def test_a_statement_compiled_once_is_fast_the_next_time(local):
    """Thousands a second from one connection: nothing is compiled again."""
    client = local.client()
    long = "SELECT ?1 WHERE " + " AND ".join(f"?1 <> {i}" for i in range(400))
    used = []
    for number in (lambda i: i, lambda i: 0):
        before = processor_ns(local.pid)
        for i in range(200):
            assert client.rows(long + f" -- {number(i)}", "x") == [[b"x"]]
        used.append(processor_ns(local.pid) - before)
    compiled_each_time, compiled_once = used
    assert compiled_once < compiled_each_time / 2
