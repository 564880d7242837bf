# SPDX-License-Identifier: Apache-2.0
"""What INFO and /metrics count of a store, in a file and in PostgreSQL: each counter moves by what
was done and no other moves, and failures are no successes. And what costs nobody an answer: an idle
daemon does nothing, and leaves its database alone."""

import contextlib
import pathlib
import re
import sqlite3
import threading
import time

import pytest

from harness.limits import Wait, wait_until
from harness.postgres import PROBES, Postgres, ask
from harness.relay import Relay
from harness.resp import ReplyError

COUNTERS = re.compile(r"^stockade_(store_\w+_total|store_\w+_seconds_count) (\d+)$", re.M)
ONE_COMMIT = {"store_commits_total": 1, "store_writes_total": 1, "store_queue_seconds_count": 1,
              "store_commit_seconds_count": 1}
ONE_READ = {"store_reads_total": 1, "store_read_batches_total": 1}
TRIES = 20
IDLE_SECONDS = 4
SPINS = 0.8  # of the time a thread that never sleeps has a core, or waits for one
# What the watch asks an idle database, and how many seconds pass at least from one to the next.
LOOKS = {"SCHEMA_HARM": 1, "GUARD_BROKEN": 3, "CLOCK_NOTE": 10, "MARKS_FORGET": 10,
         "OLDEST_SNAPSHOT": 10}


def counts(daemon):
    return {name: int(value) for name, value in COUNTERS.findall(daemon.get("/metrics")[2])}


def grown(daemon, action):
    """What `action` has moved: {counter: by how much}."""
    before = counts(daemon)
    action()
    after = counts(daemon)
    assert set(before) == set(after)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def moves(daemon, action, expected):
    """What is counted of the action is exactly that. (The daemon looks for what is old now and
    then: what is done just then is done again.)"""
    for _ in range(TRIES):
        found = grown(daemon, action)
        if found == expected:
            return
    assert found == expected


@pytest.fixture(params=["file", "postgresql"])
def kept(request, rig):
    """A daemon on a store of that kind, and which it is."""
    uri = request.getfixturevalue("database").uri if request.param == "postgresql" else None
    return rig.daemon("--unfenced-writes", "allow", store=uri or f"sqlite:{rig.store}"), uri


def test_each_counter_moves_by_what_was_done(kept):
    daemon, shared = kept
    client = daemon.client()
    token = client.token("r", 600000)
    barrier = {"store_barrier_seconds_count": 1} if shared else {}
    numbers = iter(range(10**9))
    moves(daemon, lambda: client.fenced(token, "SET", "r", next(numbers)), ONE_COMMIT)
    moves(daemon, lambda: client("GET", "r"), {**ONE_READ, **barrier})
    moves(daemon, lambda: client("PING"), {})

    def several(*words):
        client.send_all([words] * 20)
        assert [client.read() for _ in range(20)]

    wait = Wait()
    while True:
        writes = grown(daemon, lambda: several("INCR", "n"))
        if writes["store_writes_total"] == 20 and "store_reads_total" not in writes:
            break
        wait.check(f"{writes} are 20 writes")
    assert writes["store_commits_total"] < 20, "they shared transactions"
    assert writes["store_queue_seconds_count"] == 20
    assert writes["store_commit_seconds_count"] == writes["store_commits_total"]
    most = daemon.metric("store_batch_writes_max")
    assert 1 < most <= 20
    client("INCR", "n")
    assert daemon.metric("store_batch_writes_max") == most, "of all so far, not of the last one"
    wait_until(lambda: daemon.metric("store_writes_queued") == 0 and
               daemon.metric("store_reads_queued") == 0, "nothing waits any more")


def test_commits_of_others_in_the_file_are_counted(rig):
    daemon = rig.daemon("--unfenced-writes", "allow", store=f"sqlite:{rig.store}")
    client = daemon.client()
    client("INCR", "n")
    with contextlib.closing(sqlite3.connect(rig.store, isolation_level=None)) as file:
        file.execute("CREATE TABLE t(a)")
        moves(daemon, lambda: client("INCR", "n") and file.execute("INSERT INTO t VALUES(1)"),
              {**ONE_COMMIT, "store_foreign_commits_total": 1})
    client("INCR", "n")
    moves(daemon, lambda: client("INCR", "n"), ONE_COMMIT)


def test_a_commit_that_is_lost_is_counted_as_run_again_and_once_as_done(rig, database):
    relay = rig.relay(("127.0.0.1", database.server.port))
    daemon = rig.daemon("--unfenced-writes", "allow", store=database.uri_at(relay.address))
    client = daemon.client()
    client("INCR", "n")

    def lost():
        relay.hold("up", b"\0MARK\0")
        client.send("INCR", "n")
        wait_until(lambda: relay.kept("up"), "the commit is held")
        relay.cut()
        relay.let("up")
        assert client.read() > 1

    moves(daemon, lost, {**ONE_COMMIT, "store_batch_reruns_total": 1})


def test_what_fails_is_counted_as_failed_and_its_time_is_no_answers(rig):
    """A balancer and a graph of how long reads take: failures, which are quick, would hide how slow
    the others are."""
    own = Postgres(rig)
    daemon = rig.daemon("--unfenced-writes", "allow", store=own.database().uri)
    client = daemon.client()
    client("INCR", "n")
    own.kill()

    def refused(*words):
        reply = client.ask(*words)
        assert isinstance(reply, ReplyError) and reply.code == "STORE"

    wait_until(lambda: daemon.metric("store_up") == 0, "the daemon has seen it")
    moves(daemon, lambda: refused("INCR", "n"), {
        "store_writes_total": 1, "store_failed_commits_total": 1, "store_queue_seconds_count": 1,
        "store_errors_total": 1})
    moves(daemon, lambda: refused("GET", "n"), {**ONE_READ, "store_errors_total": 1})
    own.start()


def busy_ns(daemon):
    """How long each thread has had a core, or has waited for one."""
    return {thread.parent.name: sum(map(int, thread.read_text().split()[:2]))
            for thread in pathlib.Path(f"/proc/{daemon.pid}/task").glob("*/schedstat")}


@contextlib.contextmanager
def locked(database, name):
    """A user has the resource's row."""
    with database.connect() as user:
        ask(user, "BEGIN")
        ask(user, "SELECT FROM stockade.resource WHERE name = %s FOR UPDATE", name.encode())
        yield
        ask(user, "COMMIT")


def test_no_thread_of_an_idle_daemon_spins(request, kept):
    """Each has been woken before: by a write, a read, a lease that ends while another waits for it,
    and in PostgreSQL by a row that somebody has locked."""
    daemon, shared = kept
    holder, waiter = daemon.client(), daemon.client()
    token = holder.token("r", 600000)
    waiter.send("ACQUIRE", "r", 1000, "WAIT", 60000)
    holder.await_waiters("r")
    holder("RELEASE", "r", token)
    assert waiter.read()[0] > token
    holder("INCR", "n")
    holder("GET", "n")
    if shared:
        database = request.getfixturevalue("database")
        with locked(database, "n"):
            holder.send("INCR", "n")
            wait_until(lambda: database.sql(PROBES), "it looks who has the row")
        assert holder.read() == 2

    def all_rest():
        before, begun = busy_ns(daemon), time.monotonic_ns()
        time.sleep(0.5)  # what is used of this time is what is asked
        after, passed = busy_ns(daemon), time.monotonic_ns() - begun
        return all(after[thread] - before.get(thread, 0) < SPINS * passed for thread in after)

    wait_until(all_rest, "they sleep")


class ListeningRelay(Relay):
    """Notes what is asked, and when."""

    def __init__(self, target):
        super().__init__(target)
        self.asked = []

    def _pump(self, source, sink, gate):
        relay = self

        class Sink:
            def sendall(self, data):
                relay.asked += [(name, time.monotonic()) for name in LOOKS
                                for _ in range(data.count(b"\0" + name.encode() + b"\0"))]
                sink.sendall(data)

            def __getattr__(self, name):
                return getattr(sink, name)
        super()._pump(source, Sink() if gate is self.gates["up"] else sink, gate)


def test_an_idle_daemon_asks_its_database_no_more_often_than_it_has_to(rig, database):
    relay = ListeningRelay(("127.0.0.1", database.server.port))
    rig.relays.append(relay)
    daemon = rig.daemon(store=database.uri_at(relay.address))
    wait_until(lambda: {name for name, _ in relay.asked} >= set(LOOKS), "it has looked at all")
    begun, said = time.monotonic(), daemon.log()
    assert not threading.Event().wait(IDLE_SECONDS)  # so long it is left alone
    assert daemon.client()("PING") == "PONG"
    found = [name for name, at in relay.asked if at > begun]
    for name, seconds in LOOKS.items():
        assert found.count(name) <= (time.monotonic() - begun) / seconds + 1, (name, found)
    assert daemon.log() == said, "and it has nothing to say"


def test_who_looks_for_the_holder_of_a_row_rests_once_the_row_is_free(rig, database):
    daemon = rig.daemon("--unfenced-writes", "allow", store=database.uri)
    client = daemon.client()
    client("INCR", "n")
    with locked(database, "n"):
        client.send("INCR", "n")

        def same_probe():
            first = database.sql(PROBES)
            time.sleep(1.5)  # several looks, of which nobody is told
            return first and database.sql(PROBES) == first

        wait_until(same_probe, "it looks who has the row, again and again by one connection")
    assert client.read() == 2
    wait_until(lambda: not database.sql(PROBES), "it has no reason to look any more")
    assert daemon.metric("store_lock_waits_total") == 1
