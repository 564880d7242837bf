# SPDX-License-Identifier: Apache-2.0
"""P7 No way round: rows of a guarded table do not change without their token, whatever statement
tries it, and whatever program: harness/guards.py has the kinds of tables and the forms of
statements. The daemon's own SQL is in test_p7_daemon.py."""

import random
import subprocess

import pytest

from harness.guards import (FORMS, KIND, KINDS, Oracle, every_kind, fill, forms, random_form,
                            resource, rows)
from harness.limits import HANG_SECONDS, patience
from harness.shop import (EXTENSION, Connection, attempt, is_refusal, present, program, report,
                          run_forms)

kinds = pytest.mark.parametrize("kind", every_kind())


def test_the_matrix_is_as_large_as_it_says():
    assert len(KINDS) >= 18 and len(FORMS) >= 105
    assert len({form.name for form in FORMS}) == len(FORMS)
    assert len({(form.sql, form.foreign_keys) for form in FORMS}) == len(FORMS)


@kinds
def test_a_guard_asks_for_every_row_that_a_statement_changes(shop, kind):
    """The rest of this file builds on it: the oracle hears what the guard is asked."""
    faults = []
    for form in forms(kind):
        outcome = shop.oracles[kind.name].outcome(form)
        if not outcome.changed <= outcome.asked:
            faults.append((form.name, f"changed {outcome.changed}, asked for {outcome.asked}"))
        # (Without triggers, SQLite 3.40 forgets a foreign key of WITHOUT ROWID in one case.)
        forgotten = kind.name.startswith("tree") and outcome.error == (
            "FOREIGN KEY constraint failed")
        if outcome.free != (outcome.after, outcome.error) and not forgotten:
            faults.append((form.name, "does something else where there is a guard"))
    report(faults)


@kinds
def test_most_forms_change_rows_and_need_a_token(shop, kind):
    outcomes = [shop.oracles[kind.name].outcome(form) for form in forms(kind)]
    assert sum(bool(outcome.changed) for outcome in outcomes) > 65
    assert sum(bool(outcome.asked) for outcome in outcomes) > 85


@pytest.mark.parametrize("lost", ["inserted", "update", "updated", "delete", "recursion"])
def test_the_matrix_notices_a_trigger_that_is_missing_or_does_not_fire(shop, lost):
    kind = KIND["text_key"]
    oracle = Oracle(kind, [sql for sql in shop.triggers(kind)
                           if f"stockade_guard_{lost}_" not in sql])
    if lost == "recursion":
        oracle.heard.execute("PRAGMA recursive_triggers = OFF")
    outcomes = [oracle.outcome(form) for form in forms(kind)]
    assert any(not outcome.changed <= outcome.asked for outcome in outcomes)


@kinds
@pytest.mark.parametrize("keys", [None, "", "MN", "O", "MONXY", "of another table"])
def test_a_program_changes_the_rows_whose_tokens_it_presents_and_no_others(shop, kind, keys):
    """Without the extension (None) it changes nothing."""
    held = shop.some(KIND["plain" if kind.name != "plain" else "strict"], "MONX") if (
        keys == "of another table") else shop.some(kind, keys or "")
    with (Connection if keys is None else program)(shop.file) as connection:
        run_forms(shop, kind, connection, held)


@kinds
def test_an_attached_file_is_guarded_too(shop, kind):
    with Connection(":memory:") as connection:
        connection.execute("ATTACH ? AS shop", (str(shop.file),))
        run_forms(shop, kind, connection, schema="shop.")
    with program(":memory:") as connection:
        connection.execute("ATTACH ? AS shop", (str(shop.file),))
        for keys in ("", "MN", "MONX"):
            run_forms(shop, kind, connection, shop.some(kind, keys), schema="shop.")


@kinds
def test_statements_that_nobody_thought_of_are_judged_like_the_others(shop, kind):
    chance = random.Random(kind.name)
    some = [random_form(chance, kind) for _ in range(150)]
    outcomes = [shop.oracles[kind.name].outcome(form) for form in some]
    report([(form.sql, f"changed {outcome.changed}, asked for {outcome.asked}")
            for form, outcome in zip(some, outcomes) if not outcome.changed <= outcome.asked])
    assert sum(bool(outcome.changed) for outcome in outcomes) > 40
    with program(shop.file) as connection:
        for keys in ("", "MN", "MONX"):
            run_forms(shop, kind, connection, shop.some(kind, keys), some=some)


def run_refused(shop, kind, connection, begin, expected):
    """Every form that asks for a row is refused with a text that contains `expected`."""
    faults = []
    for form in forms(kind):
        outcome = shop.oracles[kind.name].outcome(form)
        connection.execute(f"PRAGMA foreign_keys = {int(form.foreign_keys)}")
        begin(connection)
        error = attempt(connection, fill(form.sql, kind))
        if connection.in_transaction:
            connection.execute("COMMIT" if is_refusal(error) else "ROLLBACK")
        if outcome.asked and not (is_refusal(error) and expected in error):
            faults.append((form.name, f"ended with {error!r}"))
        if rows(connection, kind) != outcome.before:
            faults.append((form.name, "the rows have changed"))
            break
    report(faults)


@kinds
def test_a_statement_outside_of_a_transaction_changes_nothing(shop, kind):
    with program(shop.file) as connection:
        run_refused(shop, kind, connection, lambda connection: None, "GUARDED")
    with Connection(shop.file) as connection:
        run_refused(shop, kind, connection, lambda connection: None, "no such function")


@kinds
def test_a_stale_token_is_refused_and_changes_nothing(shop, kind):
    def begin(connection):
        connection.execute("BEGIN")
        for name in shop.some(kind, "MONX"):
            error = attempt(connection, f"SELECT stockade_present('{name}', {shop.stale[name]})")
            assert error.startswith(f"STALE token {shop.stale[name]} of '{name}'")
            error = attempt(connection, f"SELECT stockade_present('{name}', 1 << 50)")
            assert error.startswith("UNKNOWN token")
            # Go round stockade_present, which checks the token, to what the guard itself reads.
            connection.execute(
                "INSERT INTO stockade_presented(resource, token, file) SELECT ?, ?, value"
                " FROM stockade_meta WHERE key = 'file'", (name, shop.stale[name]))

    with program(shop.file) as connection:
        run_refused(shop, kind, connection, begin, "GUARDED")


@kinds
def test_without_recursive_triggers_even_the_right_tokens_change_nothing(shop, kind):
    def begin(connection):
        connection.execute("BEGIN")
        present(connection, shop.some(kind, "MONX"))

    with program(shop.file) as connection:
        connection.execute("PRAGMA recursive_triggers = OFF")
        run_refused(shop, kind, connection, begin, "recursive_triggers")


@kinds
def test_what_an_earlier_transaction_presented_changes_nothing(shop, kind):
    def begin(connection):
        for end in ("COMMIT", "ROLLBACK"):
            connection.execute("BEGIN")
            present(connection, shop.some(kind, "MONX"))
            connection.execute(end)
        connection.execute("SAVEPOINT a")
        connection.execute("SAVEPOINT b")
        present(connection, shop.some(kind, "MONX"))
        connection.execute("ROLLBACK TO a")

    with program(shop.file) as connection:
        run_refused(shop, kind, connection, begin, "GUARDED")


def shell(shop, *lines):
    """Run the lines in the sqlite3 shell."""
    return subprocess.run(["sqlite3", "-init", "/dev/null", "-batch", str(shop.file)], text=True,
                          input="\n".join((".timeout 10000", *lines, "")), check=False,
                          capture_output=True, timeout=patience(HANG_SECONDS))


@kinds
@pytest.mark.parametrize("loads", [False, True], ids=["as it is", "with the extension"])
def test_the_sqlite3_shell_changes_nothing(shop, kind, loads):
    load = [f".load {EXTENSION}"] if loads else []
    asking = [form for form in forms(kind) if shop.oracles[kind.name].outcome(form).asked]
    for begin, commit in (("", ""), ("BEGIN IMMEDIATE;", "COMMIT;")):
        script = []
        for number, form in enumerate(asking):
            script += [f"PRAGMA foreign_keys = {int(form.foreign_keys)};", begin,
                       fill(form.sql, kind) + ";", commit, f"SELECT 'done {number}';"]
        done = shell(shop, *load, *script)
        errors = [line for line in done.stderr.splitlines() if "GUARDED" in line
                  or "no such function: stockade_guard" in line]
        assert len(errors) == len(asking), done.stderr
        assert f"done {len(asking) - 1}" in done.stdout
        with Connection(shop.file) as connection:
            assert rows(connection, kind) == shop.oracles[kind.name].outcome(asking[0]).before


def test_the_sqlite3_shell_with_the_extension_changes_rows_under_their_token(shop):
    kind = KIND["text_key"]
    name = resource(kind, "M")
    done = shell(shop, f".load {EXTENSION}", "BEGIN IMMEDIATE;",
                 f"SELECT stockade_present('{name}', {shop.tokens[name]});",
                 fill("UPDATE {t} SET v = 'sold' WHERE {w} = {M} RETURNING v;", kind),
                 "ROLLBACK;")
    assert done.stdout.split() == [str(shop.tokens[name]), "sold"] and not done.stderr
