# SPDX-License-Identifier: Apache-2.0
"""What guards and present() refuse to programs with SQL of their own: each refusal undoes its
transaction, and is seen all the same."""

import contextlib
import json
import re

import psycopg2
import pytest

from harness.limits import wait_until
from harness.postgres import ask
from harness.resp import ReplyError, mapped
from test_sql import under

pytestmark = pytest.mark.xdist_group("postgresql_column")

SLOTS = 16  # of store/postgresql/schema/7_refused.sql
FAR = 1_000_000_000
TABLES = """
CREATE TABLE inventory(sku int8 PRIMARY KEY, stock int NOT NULL);
INSERT INTO inventory VALUES(1, 10), (2, 10);
CREATE TABLE carts(id text PRIMARY KEY, total int NOT NULL);
INSERT INTO carts VALUES('a', 0), ('b', 0)"""


class Shop:
    def __init__(self, rig, database, *options):
        self.database = database
        database.sql(TABLES)
        self.daemon = rig.daemon(*options, store=database.uri)
        self.client = self.daemon.client()
        self.client("GUARD", "CREATE", "public.inventory", "sku", "sku:", "TOKEN", "token")
        self.client("GUARD", "CREATE", "public.carts", "id", "cart:")

    def refused(self, statement, *values):
        """The SQLSTATE of a statement, or of some, that must not pass."""
        with contextlib.closing(self.database.connect()) as user:
            with pytest.raises(psycopg2.Error) as raised:
                ask(user, "BEGIN")
                ask(user, statement, *values)
            return raised.value.pgcode

    def by_column(self, token, sku=1):
        return self.refused("UPDATE inventory SET stock = 9, token = %s WHERE sku = %s", token, sku)

    def seen(self, count, client=None):
        """All refusals, oldest first, once there are so many."""
        client = client or self.client
        return wait_until(
            lambda: len(all_ := client("REFUSALS", "COUNT", 1000)) >= count and
            [{name.decode(): value for name, value in mapped(entry).items()}
             for entry in reversed(all_)], f"{count} are seen")


@pytest.fixture
def shop(rig, database):
    return Shop(rig, database)


def brief(refusal):
    return tuple(refusal[name] for name in ("resource", "code", "token", "newest", "command"))


def test_each_kind_of_refusal_is_seen(shop):
    stale = shop.client.token("sku:1")
    shop.client("RELEASE", "sku:1", stale)
    newest = shop.client.token("sku:1")
    cart = shop.client.token("cart:a")
    assert shop.by_column(stale) == "ST001"
    assert shop.refused("SELECT stockade.present('sku:1', %s)", stale) == "ST001"
    assert shop.by_column(newest + 5) == "ST002"
    assert shop.by_column(None) == "ST004"
    assert shop.refused("UPDATE inventory SET sku = 3, token = %s WHERE sku = 1", newest) == "ST003"
    assert shop.refused("UPDATE carts SET total = 5 WHERE id = 'a'") == "ST004"
    assert shop.refused("SELECT stockade.present('cart:a', %s); UPDATE carts SET total = 5"
                        " WHERE id = 'b'", cart) == "ST003"
    shop.client.token("cart:b")
    assert shop.refused("SELECT stockade.present('cart:a', %s); UPDATE carts SET total = 5"
                        " WHERE id = 'b'", cart) == "ST003"
    seen = [brief(refusal) for refusal in shop.seen(7)]
    of_sku, of_cart = (b"sku:1", newest, b"guard"), (b"cart:a", cart, b"guard")
    assert [(refusal[1], refusal[2]) for refusal in seen if refusal[0] == b"sku:1"] == [
        (b"STALE", stale), (b"STALE", stale), (b"UNKNOWN", newest + 5), (b"NOTOKEN", None),
        (b"GUARDED", None)]
    assert all((refusal[0], refusal[3], refusal[4]) in (of_sku, of_cart, (b"cart:b", 1, b"guard"))
               for refusal in seen), seen
    assert shop.daemon.metric("store_guard_refusals_total") == 8
    assert shop.daemon.metric("refused_stale_total") == 2
    assert shop.daemon.metric("refused_unknown_total") == 1
    assert shop.by_column(newest + 6) == "ST002"
    assert len(shop.seen(8)) == 8, "each is told once"
    assert re.search(r'refused, STALE: guard of "sku:1" under token 1, the newest is 2, \d+ ms '
                     "after its lease ended; from a program's own SQL", shop.daemon.log())


def test_the_audit_has_a_line_for_each(rig, database):
    path = rig.folder / "audit.log"
    shop = Shop(rig, database, "--audit", path)
    shop.client.token("sku:1")
    assert shop.by_column(7) == "ST002"
    line, = wait_until(lambda: [line for line in map(json.loads, path.read_text().splitlines())
                                if line["event"] == "refused"], "it is in the audit")
    assert {name: line.get(name) for name in ("code", "resource", "token", "reason")} == {
        "code": "UNKNOWN", "resource": "sku:1", "token": 7, "reason": "guard"}


def test_who_was_late_is_told_with_its_lease(shop):
    stale = shop.client.token("sku:1", 60000)
    shop.client("REVOKE", "sku:1")
    assert shop.by_column(stale) == "ST001"
    refusal, = shop.seen(1)
    assert refusal["ended"] == b"revoked" and refusal["late_ms"] >= 0
    assert refusal["user"] == refusal["address"] == b"", "who it was outlives no rollback"
    grant, = [mapped(entry) for entry in shop.client("HISTORY", "sku:1")]
    assert grant[b"refused"] == 1


def test_all_are_counted_and_the_latest_are_seen(shop):
    stale = shop.client.token("sku:1")
    shop.client("RELEASE", "sku:1", stale)
    before = shop.daemon.metric("store_guard_refusals_total")
    count = 3 * SLOTS
    shop.refused("DO $$BEGIN FOR n IN 1..%s LOOP BEGIN PERFORM stockade.present('sku:1', %s);"
                 " EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; RAISE 'all were refused'; END$$",
                 count, stale)
    wait_until(lambda: shop.daemon.metric("store_guard_refusals_total") - before == count,
               "all are counted")
    assert SLOTS <= len(shop.seen(SLOTS)) <= count


def test_what_came_by_a_daemon_is_told_once(shop):
    stale = shop.client.token("cart:a")
    shop.client("RELEASE", "cart:a", stale)
    other = shop.client.token("cart:b")
    shop.database.sql("GRANT SELECT, UPDATE ON carts TO stockade_sql")
    reply = shop.client.ask(*under(other, "cart:b", "UPDATE public.carts SET total = 1"
                                                    " WHERE id = 'a'"))
    assert isinstance(reply, ReplyError) and reply.code == "GUARDED", reply
    assert shop.refused("SELECT stockade.present('cart:a', %s)", stale) == "ST001"
    assert [refusal["command"] for refusal in shop.seen(2)] == [b"SQL", b"guard"]


def test_each_daemon_tells_and_none_of_what_was_before_its_start(rig, shop):
    assert shop.by_column(None) == "ST004"
    shop.client.token("sku:1")
    assert shop.by_column(1_000_000) == "ST002"
    shop.seen(1)
    other = rig.daemon(store=shop.database.uri).client()
    # It has looked for the first time, perhaps only after some of these.
    wait_until(lambda: shop.by_column(2_000_000) == "ST002" and other("REFUSALS"), "it tells")
    assert {refusal["token"] for refusal in shop.seen(1, other)} == {2_000_000}
    assert {refusal["token"] for refusal in shop.seen(2)} == {1_000_000, 2_000_000}


def test_a_database_that_was_set_back_is_looked_at_anew(shop):
    shop.client.token("sku:1")
    shop.database.sql(f"SELECT setval('stockade.refused', {FAR})")
    assert shop.by_column(1_000_000) == "ST002"
    shop.seen(1)
    shop.database.sql("SELECT setval('stockade.refused', 10)")
    wait_until(lambda: shop.by_column(2_000_000) == "ST002" and len(shop.client("REFUSALS")) > 1,
               "it tells")
    assert {refusal["token"] for refusal in shop.seen(2)} == {1_000_000, 2_000_000}
