# SPDX-License-Identifier: Apache-2.0
"""A file with guarded tables, and the programs that try to change their rows (P7)."""

import contextlib
import sqlite3

from harness.guards import (KINDS, ROWS, SCHEMA, Oracle, fill, forms, prefix, resource, rows,
                            table)
from harness.limits import BUILD, HANG_SECONDS, patience

EXTENSION = BUILD / "stockade_guard.so"
NO_FUNCTION = "no such function: stockade_guard"  # already when the statement is compiled


class Connection(sqlite3.Connection):
    """In autocommit until it says BEGIN; closes at the end of a `with`."""

    def __init__(self, file, **options):
        super().__init__(str(file), isolation_level=None, timeout=patience(HANG_SECONDS), **options)

    def __exit__(self, *_):
        self.close()


def program(file, **options):
    """A connection of a program that has loaded the extension."""
    connection = Connection(file, **options)
    connection.enable_load_extension(True)
    connection.load_extension(str(EXTENSION))
    connection.enable_load_extension(False)
    return connection


def guards(client):
    """GUARD LIST, each a dict of text."""
    return [dict(zip(*[iter(word.decode() for word in guard)] * 2))
            for guard in client("GUARD", "LIST")]


class Shop:
    """A daemon, a file with a guarded table of each kind, and the tokens of their keys."""

    def __init__(self, rig):
        self.rig = rig
        self.daemon = self.rig.daemon()
        self.client = self.daemon.client()
        self.file = self.rig.store
        self.tokens, self.stale, self.oracles = {}, {}, {}
        with Connection(self.file) as connection:
            for kind in KINDS:
                connection.executescript(fill(SCHEMA + ROWS, kind))
        for kind in KINDS:
            assert self.client("GUARD", "CREATE", table(kind), "k", prefix(kind)) == "OK"
            for name in [resource(kind, key) for key in "MONXY"]:
                self.stale[name] = self.client.token(name, 3600000)
                self.client("RELEASE", name, self.stale[name])
                self.tokens[name] = self.client.token(name, 3600000)
            self.oracles[kind.name] = Oracle(kind, self.triggers(kind))

    def triggers(self, kind):
        """The guard's, as SQL."""
        with Connection(self.file) as connection:
            return [sql for sql, in connection.execute(
                "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?"
                " AND name LIKE 'stockade_guard%'", (table(kind),))]

    def guards(self):
        return guards(self.client)

    def some(self, kind, keys):
        """The tokens of these keys, by resource."""
        return {name: self.tokens[name] for name in (resource(kind, key) for key in keys)}


def is_refusal(error):
    return error is not None and (error.startswith("GUARDED ") or error == NO_FUNCTION)


def fault(outcome, held, error, after):
    """What is wrong with how a form ended, where the tokens of `held` were presented; or None."""
    if outcome.asked <= set(held) and error != NO_FUNCTION:
        if error != outcome.error:
            return f"ended with {error!r} instead of {outcome.error!r}"
        return None if after == outcome.after else f"the rows are {after}, not {outcome.after}"
    if not is_refusal(error):
        return f"was not refused but ended with {error!r}"
    return None if after == outcome.before else f"was refused, and changed the rows to {after}"


def report(faults):
    assert not faults, "\n".join(f"{name}: {what}" for name, what in faults)


def attempt(connection, sql):
    """Runs the statement, and returns the error's text or None."""
    try:
        connection.execute(sql).fetchall()
    except sqlite3.Error as error:
        return str(error)
    return None


def present(connection, tokens, schema="main"):
    for name, token in tokens.items():
        connection.execute("SELECT stockade_present(?, ?, ?)", (name, token, schema)).fetchall()


@contextlib.contextmanager
def under(connection, tokens, schema="main"):
    """A transaction under these tokens, which the end of the block commits."""
    connection.execute("BEGIN IMMEDIATE")
    present(connection, tokens, schema)
    yield
    connection.execute("COMMIT")


def run_forms(shop, kind, connection, held=(), schema="", some=None):
    """Each form (or some) in a transaction under the tokens `held`, by resource. A refused one is
    committed: what it may have left behind counts."""
    oracle, faults = shop.oracles[kind.name], []
    with Connection(shop.file) as watch:
        for form in forms(kind) if some is None else some:
            outcome = oracle.outcome(form)
            connection.execute(f"PRAGMA foreign_keys = {int(form.foreign_keys)}")
            connection.execute("BEGIN IMMEDIATE")
            present(connection, dict(held), schema[:-1] or "main")
            error = attempt(connection, fill(form.sql, kind, schema))
            wrong = fault(outcome, held, error, rows(connection, kind, schema))
            if connection.in_transaction:
                connection.execute("COMMIT" if is_refusal(error) else "ROLLBACK")
            if not wrong and rows(watch, kind) != outcome.before:
                wrong = "the file has changed"
            if wrong:
                faults.append((form.name, wrong))
    report(faults)
