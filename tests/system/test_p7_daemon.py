# SPDX-License-Identifier: Apache-2.0
"""P7 No way round, through the daemon: SQL and GUARD. What other programs can do is in
test_p7_no_way_round.py and test_p7_programs.py."""

import pytest

from harness.guards import KIND, RESTORE, ROWS, every_kind, fill, forms, resource, rows, table
from harness.resp import ReplyError
from harness.shop import Connection, program, report, under

MINE = (60000, "OWNER", "me")
kinds = pytest.mark.parametrize("kind", every_kind())


def restore(shop, kind):
    """Put the rows back as they were, after a statement that was let through."""
    with program(shop.file) as connection, under(connection, shop.some(kind, "MONXY")):
        for sql in fill(RESTORE + ROWS, kind).split(";"):
            connection.execute(sql)
        if kind.name == "autoincrement":
            connection.execute("UPDATE sqlite_sequence SET seq = 2 WHERE name = ?", (table(kind),))


def sql_under(tokens, sql):
    """Return the words of a command that runs the SQL under these tokens."""
    if not tokens:
        return ["SQL", sql]
    pairs = [word for pair in tokens.items() for word in pair]
    return ["FENCEDALL", len(tokens), *pairs, "SQL", sql]


def fault(outcome, form, tokens, code, reply, after):
    """Return what is wrong with the reply and the rows, or None. The daemon undoes what a statement
    did before it failed, also with OR FAIL; and it keeps WITH from using Stockade's names."""
    failed = isinstance(reply, ReplyError)
    own = "Stockade's names" in form.name
    if failed and after != outcome.before:
        return f"failed with {reply}, and the rows are {after}"
    if outcome.asked <= set(tokens) and code == "GUARDED" and not own:
        if failed:
            return None if outcome.error and outcome.error in reply.text else f"failed: {reply}"
        return None if not outcome.error and after == outcome.after else f"the rows are {after}"
    return None if failed and (own or reply.code == code) else f"ended with {reply}"


@kinds
@pytest.mark.parametrize("tokens, code", [
    ("none", "NOTOKEN"), ("another resource's", "GUARDED"), ("some", "GUARDED"),
    ("all", "GUARDED"), ("a stale one among them", "STALE")])
def test_a_statement_changes_the_rows_whose_tokens_it_brings_and_no_others(shop, kind, tokens,
                                                                           code):
    """Every form as SQL: those that ask for other rows have to be refused with the code. The
    daemon keeps no foreign keys, and DDL takes no tokens."""
    stale, every = resource(kind, "X"), shop.some(kind, "MONX")
    tokens = {"none": {}, "some": shop.some(kind, "MN"), "all": every,
              "another resource's": {"elsewhere": shop.client.token("elsewhere", *MINE)},
              "a stale one among them": {**every, stale: shop.stale[stale]}}[tokens]
    faults = []
    with Connection(shop.file) as watch:
        for form in forms(kind):
            if form.sql.startswith("DROP"):
                continue
            outcome = shop.oracles[kind.name].outcome(form._replace(foreign_keys=False))
            reply = shop.client.ask(*sql_under(tokens, fill(form.sql, kind)))
            after = rows(watch, kind)
            wrong = fault(outcome, form, tokens, code, reply, after)
            if wrong:
                faults.append((form.name, wrong))
            if after != outcome.before or not isinstance(reply, ReplyError):
                restore(shop, kind)
    report(faults)


def test_a_transaction_takes_all_its_tokens_to_every_statement(shop):
    kind = KIND["text_key"]
    mine, other = resource(kind, "M"), resource(kind, "O")
    update = fill("UPDATE {t} SET v = 'sold' WHERE {w} IN ({M}, {O})", kind)
    with Connection(shop.file) as watch:
        before = rows(watch, kind)
        for tokens in ([mine], [mine, other]):
            shop.client("MULTI")
            for name in tokens:
                shop.client(*sql_under({name: shop.tokens[name]}, fill(
                    "UPDATE {t} SET v = v WHERE {w} = '%s'" % name[-1], kind)))
            shop.client(*sql_under({mine: shop.tokens[mine]}, update))
            if len(tokens) == 1:
                shop.client.refused("GUARDED", "EXEC", text=other)
                assert rows(watch, kind) == before
        assert shop.client("EXEC")[-1] and rows(watch, kind) != before
    restore(shop, kind)


def test_a_refusal_says_which_token_is_missing_and_how_to_present_it(shop):
    kind = KIND["text_key"]
    other = {"elsewhere": shop.client.token("elsewhere", *MINE)}
    shop.client.refused("GUARDED", *sql_under(other, fill("UPDATE {t} SET v = 'x'", kind)),
                        text=f"'{resource(kind, 'M')}' was not presented.*FENCEDALL")
    shop.client.refused("GUARDED",
                        *sql_under(other, fill("INSERT INTO {t}(k) VALUES('nobody')", kind)),
                        text="nobody holds 'text_key:nobody'.*acquire it")
    shop.client.refused("GUARDED", *sql_under(other, fill("INSERT INTO {t}(k) VALUES(NULL)", kind)),
                        text="text or an integer.*not NULL")


def test_a_text_key_and_an_integer_key_name_the_same_resource(shop):
    client = shop.client
    client("SQL", "CREATE TABLE mixed(k, v)")
    assert client("GUARD", "CREATE", "mixed", "k", "mixed:") == "OK"
    token = {"mixed:5": client.token("mixed:5")}
    for key in ("5", "'5'"):
        client(*sql_under(token, f"INSERT INTO mixed VALUES({key}, 'x')"))
    for key in ("6", "'05'", "' 5'", "5.0", "x'35'", "NULL"):
        client.refused("GUARDED", *sql_under(token, f"INSERT INTO mixed VALUES({key}, 'x')"))
    assert client(*sql_under(token, "DELETE FROM mixed"))


DDL = ["DROP TABLE {t}", "ALTER TABLE {t} RENAME TO other", "ALTER TABLE {t} RENAME COLUMN v TO vv",
       "ALTER TABLE {t} ADD COLUMN more", "ALTER TABLE {t} DROP COLUMN q",
       "DROP TRIGGER stockade_guard_update_{t}", "DROP INDEX stockade_guard_blob_{t}",
       "CREATE TRIGGER sly BEFORE UPDATE ON {t} BEGIN SELECT RAISE(IGNORE); END",
       "CREATE TRIGGER stockade_guard_more BEFORE UPDATE ON {t} BEGIN SELECT 1; END",
       "DELETE FROM stockade_guard", "UPDATE stockade_resource SET token = 1",
       "DELETE FROM sqlite_schema", "PRAGMA recursive_triggers = OFF",
       "PRAGMA writable_schema = ON", "SELECT stockade_guard('', 'x', 1, '')", "ATTACH 'x' AS x"]


@pytest.mark.parametrize("sql", DDL)
def test_ddl_of_a_guarded_table_and_of_its_guard_is_refused(shop, sql):
    kind = KIND["text_key"]
    reply = shop.client.ask("SQL", fill(sql, kind))
    assert isinstance(reply, ReplyError) and reply.code in ("GUARDED", "NOPERM", "ERR"), reply
    other = {"elsewhere": shop.client.token("elsewhere", *MINE)}
    reply = shop.client.ask(*sql_under(other, fill(sql, kind)))
    assert isinstance(reply, ReplyError), reply
    assert {"ok"} == {guard["state"] for guard in shop.guards()}


def test_an_index_on_a_guarded_table_may_come_and_go(shop):
    shop.client("SQL", "CREATE INDEX by_v ON t_text_key(v)")
    shop.client("SQL", "DROP INDEX by_v")
    assert {"ok"} == {guard["state"] for guard in shop.guards()}
