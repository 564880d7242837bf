# SPDX-License-Identifier: Apache-2.0
"""What is over leaves no row: once leases have ended, values have gone and their time is over, each
of Stockade's tables is as it is in a new store, and so is each that a later version adds. (What
each test leaves in a database is held against the rules of `stockade check`: harness/leftovers.py.)
"""

import contextlib
import sqlite3
import time

import pytest

from harness.limits import Wait
from harness.postgres import Database

pytestmark = pytest.mark.xdist_group("postgresql_leftovers")

# What is meant to stay, as SQL for such rows.
STAYS = {
    "mark": "true",  # for a week; who prunes and forgets them has tests of its own
    "stockade_resource": "id = (SELECT max(id) FROM stockade_resource)",  # so that ids are new
}


class File:
    """A store in a file, as plain SQL sees it."""

    def __init__(self, path):
        self.path, self.uri = path, f"sqlite:{path}"

    def sql(self, text):
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as link:
            return link.execute(text).fetchall()

    def tables(self):
        return [name for name, in self.sql(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'stockade\\_%'"
            " ESCAPE '\\'")]

    def counts(self):
        return {name: self.sql(f"SELECT count(*) FROM {name} WHERE NOT"
                               f" ({STAYS.get(name, 'false')})")[0][0] for name in self.tables()}

    def become_another(self):
        """As a file that was copied: all leases end at the next start."""
        copy = self.path.with_name("copy.db")
        self.sql(f"VACUUM INTO '{copy}'")
        self.path, self.uri = copy, f"sqlite:{copy}"


class Schema(File):
    """The same of one in PostgreSQL."""

    def __init__(self, database: Database):
        self.database, self.uri = database, database.uri

    def sql(self, text):
        return self.database.sql(text)

    def tables(self):
        return [name for name, in self.sql(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('stockade')"
            " AND relkind = 'r'")]

    def counts(self):
        return {name: self.sql(f"SELECT count(*) FROM stockade.{name} WHERE NOT"
                               f" ({STAYS.get(name, 'false')})")[0][0] for name in self.tables()}

    def become_another(self):
        """As a dump that was restored."""
        self.sql("UPDATE stockade.meta SET identity = 'another'")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, rig):
    if request.param == "sqlite":
        return File(rig.folder / "stockade.db")
    return Schema(request.getfixturevalue("database"))


def use(client):
    """Everything that leaves a row, with an ID where it may have one, on leases that end in every
    way; what is still held then ends as the store begins anew."""
    for name in ("released", "revoked", "entered", "held", "again"):
        token = client("ACQUIRE", name, 60000, "OWNER", "me", "ID", "acquire")[0]
        client.ask("FENCED", token, "ID", "string", "SET", name, "x")
        client.ask("FENCED", token, "ID", "none", "GET", name)
    for name in ("released", "entered"):
        client("ACQUIRE", name, 60000, "OWNER", "me")
        client("RELEASE", name, client.lease(name)["token"], "ID", "once")
        client("RELEASE", name, client.lease(name)["token"], "ID", "release")
    client("REVOKE", "revoked")
    old = client.lease("again")["token"]
    client("RELEASE", "again", old)
    client("RELEASE", "again", client.token("again"), "ID", "release")
    client.refused("STALE", "FENCED", old, "ID", "late", "SET", "again", "y")
    cart = client.token("cart")
    client("FENCED", cart, "ID", "fields", "HSET", "cart", "a", 1, "b", 2)
    client.multi(("FENCED", cart, "HSET", "cart", "c", 3), ("FENCED", cart, "HDEL", "cart", "a"))
    client("EXEC")
    client("ACQUIREALL", 60000, 2, "one", "two", "ID", "both")
    client("SQL", "CREATE TABLE wares(sku TEXT PRIMARY KEY, n INT)")
    client("GUARD", "CREATE", "wares", "sku", "sku:")
    client("GUARD", "DROP", "wares")


def await_counts(store, expected):
    wait = Wait()
    while (left := {name: store.counts()[name] for name in expected}) != expected:
        wait.check(f"there is no more than in a new store: {left}, and not {expected}")
        time.sleep(0.05)  # a look goes through all of the store


def test_what_is_over_leaves_no_row(rig, store):
    options = "--receipts-keep", "1", "--forget-after", "1", "--unfenced-writes", "allow"

    def daemon():
        return rig.daemon(*options, store=store.uri)

    def stop(daemon):
        daemon.close_clients()
        daemon.stop()
        rig.processes.remove(daemon)

    first = daemon()
    first.client()("DBSIZE")
    new = store.counts()
    assert len(new) > 6
    use(first.client())
    used = store.counts()
    assert sum(used.values()) > sum(new.values()) + 20
    stop(first)
    store.become_another()
    second = daemon()
    client = second.client()
    client("FENCED", client.token("flushed"), "ID", "string", "SET", "flushed", "x")
    client("FLUSHALL")
    names = [name for name in new if name.endswith(("receipt", "retired"))]
    await_counts(store, {name: new[name] for name in names})
    stop(second)
    daemon()  # which walks over all resources at its start, and then seldom
    await_counts(store, new)
