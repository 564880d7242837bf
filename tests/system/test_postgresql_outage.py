# SPDX-License-Identifier: Apache-2.0
"""An outage of PostgreSQL in which the outcome of a commit is unknown. Who waits for that commit is
not answered, however long it lasts. Everybody else hears at once that nothing was done, wherever
the daemon has kept the operation until then."""

import contextlib

import pytest

from harness.limits import wait_until
from harness.postgres import ask
from harness.resp import ReplyError
from test_sql import under

pytestmark = pytest.mark.xdist_group("postgresql")


class Rigged:
    """A daemon whose connections to its database go through a relay."""

    def __init__(self, rig, database):
        self.database = database
        self.relay = rig.relay(("127.0.0.1", database.server.port))
        self.daemon = rig.daemon("--unfenced-writes", "allow",
                                 store=database.uri_at(self.relay.address))
        self.doubted, self.other = self.daemon.client(), self.daemon.client()
        self.news = self.daemon.client()

    def queued(self):
        return self.news.counter("store_writes_queued")

    def hold_commits(self):
        self.relay.hold("down", b"COMMIT")

    def await_commit(self, table):
        """It is made, and the daemon has not heard of it."""
        wait_until(lambda: self.database.sql(f"SELECT 1 FROM {table}"), "the commit is made")

    @contextlib.contextmanager
    def outage(self):
        """The commit that is held is in doubt until the block ends; then it is found."""
        self.relay.refuse()
        self.relay.cut()
        self.relay.let("down")
        yield
        with pytest.raises(TimeoutError):
            self.doubted.read(timeout=0.5)
        self.relay.accept()
        assert not isinstance(self.doubted.read(), ReplyError)


@pytest.fixture
def rigged(rig, database):
    return Rigged(rig, database)


def test_a_batch_that_runs_while_the_one_before_commits_is_told(rigged):
    doubted, other = rigged.doubted, rigged.other
    rigged.relay.hold("up", b"first")
    doubted.send("SET", "first", "1")
    wait_until(lambda: rigged.relay.kept("up"), "the first batch runs")
    other.send("SET", "second", "2")
    wait_until(lambda: rigged.queued() == 1, "the second one is to come")
    rigged.hold_commits()
    rigged.relay.let("up")
    rigged.await_commit("stockade.strings WHERE key = 'first'")
    wait_until(lambda: rigged.queued() == 0, "the second batch runs")
    with rigged.outage():
        assert other.read().code == "STORE"
    assert doubted("GET", "first") == b"1"
    assert other("GET", "second") is None
    assert other("SET", "second", "3") == "OK"


def test_what_waits_for_a_locked_row_is_told(rigged, database):
    doubted, other, waits = rigged.doubted, rigged.other, rigged.daemon.client()
    other("SET", "locked", "1")
    with database.connect() as user:
        ask(user, "BEGIN")
        ask(user, "SELECT 1 FROM stockade.resource WHERE name = 'locked' FOR UPDATE")
        waits.send("SET", "locked", "2")
        wait_until(lambda: rigged.queued() == 0, "it was taken")
        assert other("SET", "free", "1") == "OK"  # in a later batch, or behind it in the same
        rigged.hold_commits()
        doubted.send("SET", "first", "1")
        rigged.await_commit("stockade.strings WHERE key = 'first'")
        with rigged.outage():
            reply = waits.read()
            assert (reply.code, "locked" in reply.text) == ("STORE", False), reply.text
    assert waits("SET", "locked", "3") == "OK"


def test_what_waits_for_another_transaction_of_its_own_is_told_and_leaves_nothing(rigged, database):
    doubted, other = rigged.doubted, rigged.other
    doubted("SQL", "CREATE TABLE counter(n int)")
    tokens = {key: other.token(key) for key in ("first", "second")}

    def insert(key):
        return under(tokens[key], key, "INSERT INTO counter VALUES(1)")

    with database.connect() as user:
        ask(user, "BEGIN")
        ask(user, "LOCK stockade_sql.counter IN SHARE MODE")
        doubted.send(*insert("first"))
        wait_until(lambda: database.sql(
            "SELECT 1 FROM pg_locks WHERE NOT granted"
            " AND relation = 'stockade_sql.counter'::regclass"), "the first one is under way")
        other.send(*insert("second"))
        assert rigged.news("SET", "free", "1") == "OK"  # not before the second one is handed over
        assert rigged.queued() == 1
        rigged.hold_commits()
        ask(user, "ROLLBACK")
    rigged.await_commit("stockade_sql.counter")
    with rigged.outage():
        assert other.read().code == "STORE"
    other(*insert("second"))
    assert other.fenced(tokens["second"], "SET", "second", "1") == "OK"
