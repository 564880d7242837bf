# SPDX-License-Identifier: Apache-2.0
"""P6 Once: a write repeated with its ID applies once, and the repeat gets the first reply."""

import contextlib
import itertools
import random
import signal
import sqlite3
import time

import pytest

from harness.limits import wait_until
from harness.resp import Client, ReplyError, encode
from harness.rig import restart
from harness.threads import at_once

CLIENTS = 8
SECONDS = 30
STOCK = 100000


def test_a_repeat_is_answered_under_a_stale_token_and_under_a_later_one(daemon, client, token,
                                                                        key):
    for again in (client, client, daemon.client()):
        assert again.fenced(token, "ID", "r1", "INCRBY", key, 5) == 5
    assert client("GET", key) == b"5"
    client("RELEASE", key, token)
    assert client.fenced(token, "ID", "r1", "INCRBY", key, 5) == 5
    later = client.token(key)
    assert client.fenced(token, "ID", "r1", "INCRBY", key, 5) == 5
    assert client.fenced(later, "ID", "r1", "INCRBY", key, 5) == 5
    client.refused("STALE", "FENCED", token, "ID", "r2", "INCRBY", key, 5)
    assert client("GET", key) == b"5"


# As earlier versions wrote them: receipts outlive an upgrade.
FINGERPRINTS = {("DECRBY", "5"): -5803287849278138854, ("HSET", "f", "v"): -7696447430754243497}


@pytest.mark.sqlite
@pytest.mark.parametrize("command", FINGERPRINTS, ids=lambda command: command[0])
def test_a_repeat_is_known_over_an_upgrade(rig, command):
    client = rig.daemon().client()
    token = client.token("pinned")
    client.fenced(token, "ID", "r1", command[0], "pinned", *command[1:])
    with contextlib.closing(sqlite3.connect(rig.store)) as db:
        assert db.execute("SELECT fingerprint FROM stockade_receipt WHERE id = CAST('r1' AS BLOB)"
                          ).fetchall() == [(FINGERPRINTS[command],)]


def test_an_id_used_for_another_command_is_an_error_and_changes_nothing(client, token, key):
    client.fenced(token, "ID", "r1", "SET", key, "a")
    for other in (("SET", key, "b"), ("SET", key, "a", "GET"), ("GET", key), ("DEL", key)):
        client.refused("ERR", "FENCED", token, "ID", "r1", *other, text="ID")
    assert client("GET", key) == b"a"


def test_a_repeat_may_spell_its_command_in_another_case(client, token, key):
    assert client.fenced(token, "ID", "r1", "INCRBY", key, 5) == 5
    for name in ("incrby", "IncrBy", "INCRBY"):
        assert client.fenced(token, "ID", "r1", name, key, 5) == 5
    client.refused("ERR", "FENCED", token, "ID", "r1", "decrby", key, 5, text="another command")
    assert client("GET", key) == b"5"


def test_an_id_used_for_a_transaction_is_not_that_of_its_only_write(client, token, key):
    """The one replies with an array, the other does not."""
    write = ("FENCED", token, "ID", "r1", "INCRBY", key, 5)
    assert client(*write) == 5
    client("MULTI")
    client(*write)
    client.refused("ERR", "EXEC", text="this ID was used for another command")
    write = ("FENCED", token, "ID", "r2", "INCRBY", key, 5)
    for _ in range(2):
        client("MULTI")
        client(*write)
        assert client("EXEC") == [10]
    client.refused("ERR", *write, text="this ID was used for another command")
    assert client("GET", key) == b"10"


# Their replies have all types that only RESP3 knows.
TYPED = [[["SET", "{key}", "a", "GET"]],
         [["SQL", "UPDATE typed SET n = 1.5 RETURNING *"]],
         [["HSET", "{key}", "f", "v", "g", ""], ["HGETALL", "{key}"], ["HGET", "{key}", "h"],
          ["SQL", "SELECT 2.5, NULL, 'a'"], ["HGETALL", "{key}x"]]]


def run_typed(client, token, key, writes):
    """A write, or a transaction of several. Returns its reply's bytes."""
    commands = [["FENCEDALL", 1, key, token, *(word.format(key=key) for word in write)]
                for write in writes]
    commands[0][4:4] = ["ID", "r1"]
    if len(commands) > 1:
        commands = [["MULTI"], *commands, ["EXEC"]]
    for command in commands:
        client(*command)
    return client.reader.raw


@pytest.mark.parametrize("writes", TYPED, ids=lambda writes: writes[-1][0])
def test_a_repeat_over_resp2_gets_what_resp2_can_say(daemon, client, key, writes):
    client("SQL", "DROP TABLE IF EXISTS typed")
    client("SQL", "CREATE TABLE typed(n FLOAT, none INTEGER)")
    other = daemon.client()
    other("HELLO", 3)
    token, same = client.token(key), client.token(key + "'")
    client("FENCEDALL", 1, key, token, "SQL", "INSERT INTO typed VALUES(1, NULL)")
    first = run_typed(other, token, key, writes)
    repeat = run_typed(client, token, key, writes)
    assert repeat != first, "nothing in it is RESP3's own"
    assert repeat == run_typed(client, same, key + "'", writes)


def test_a_refused_write_leaves_no_trace(client, token, key):
    client.refused("RANGE", "FENCED", token, "ID", "r1", "DECRBY", key, 1, "MIN", 0)
    assert client("RECEIPT", key, token, "r1") is None
    client.fenced(token, "SET", key, 1)
    assert client.fenced(token, "ID", "r1", "DECRBY", key, 1, "MIN", 0) == 0


def test_an_id_belongs_to_its_resource(client, key):
    for name in (key, key + "'"):
        assert client.fenced(client.token(name), "ID", "r1", "INCR", name) == 1


def test_receipt_tells_applied_never_and_open(client, token, key):
    assert client("RECEIPT", key, token, "r1") is None
    client.fenced(token, "ID", "r1", "HSET", key, "f", "v")
    assert client("RECEIPT", key, token, "r1") == [1, 1]
    client.refused("UNKNOWN", "RECEIPT", key, token + 1, "r2")
    client("RELEASE", key, token)
    assert client("RECEIPT", key, token, "r1") == [1, 1]
    assert client("RECEIPT", key, token, "r2") == [0, None]
    later = client.token(key)
    assert client("RECEIPT", key, token, "r2") == [0, None]
    assert client("RECEIPT", key, later, "r2") is None


def test_receipts_outlive_their_token_by_the_option_then_it_is_expired(rig, lease):
    client = rig.daemon("--receipts-keep", "1", lease=lease).client()
    token, other = client.token("r"), client.token("held")
    client.fenced(token, "ID", "r1", "SET", "r", 1)
    client.fenced(other, "ID", "r1", "SET", "held", 1)
    client("RELEASE", "r", token)
    assert client("RECEIPT", "r", token, "r1") == [1, "OK"]

    wait_until(lambda: isinstance(client.ask("RECEIPT", "r", token, "r1"), ReplyError),
               "the receipt expires")
    client.refused("EXPIRED", "RECEIPT", "r", token, "r1")
    assert client("RECEIPT", "held", other, "r1") == [1, "OK"], "its token is still held"


@pytest.mark.parametrize("id", ["", "x" * 513])
def test_an_id_has_1_to_512_bytes(client, token, key, id):
    client.refused("ERR", "FENCED", token, "ID", id, "SET", key, 1)
    client.refused("ERR", "RECEIPT", key, token, id)
    assert client.fenced(token, "ID", b"\x00" * 512, "SET", key, 1) == "OK"
    assert client("RECEIPT", key, token, b"\x00" * 512) == [1, "OK"]


def test_receipts_survive_kill_9(rig, lease):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    token = client.token("r")
    client.fenced(token, "ID", "r1", "INCR", "r")
    client = restart(rig, daemon, signal.SIGKILL, lease=lease).client()
    assert client.fenced(token, "ID", "r1", "INCR", "r") == 1
    assert client("GET", "r") == b"1"


class Seller:
    """Sells one at a time over a line that breaks: every sale has an ID and is repeated until it is
    answered, by whatever token it takes. Others sell the same resource."""

    def __init__(self, address, number, until):
        self.address, self.number, self.until = address, number, until
        self.random = random.Random(number)
        self.sold = self.broken = self.repeats_under_a_new_token = 0

    def run(self):
        for serial in itertools.count():
            if time.monotonic() >= self.until:
                return
            self.sell(f"{self.number}-{serial}")

    def sell(self, id):
        tokens, key = set(), self.random.choice(["stock:0", "stock:1"])
        while True:
            try:
                client = Client(self.address)
                token = client.token(key, 100, "WAIT", 20000)
                tokens.add(token)
                self.give_or_break(client, token, key, id)
                self.sold += 1
                self.repeats_under_a_new_token += len(tokens) > 1
                return
            except (ConnectionError, TimeoutError):
                self.broken += 1
            except ReplyError as refusal:
                if refusal.code not in ("STALE", "BUSY"):
                    raise
            finally:
                client.close()

    def give_or_break(self, client, token, key, id):
        command = encode("FENCED", token, "ID", id, "DECRBY", key, 1, "MIN", 0)
        chance = self.random.random()
        if chance < 0.2:  # half of it arrives
            client.send_bytes(command[:self.random.randrange(1, len(command))])
            client.reset()
            raise ConnectionError
        client.send_bytes(command)
        if chance < 0.5:  # all of it arrives, the reply does not
            client.reset() if chance < 0.35 else client.close()
            time.sleep(self.random.uniform(0, 0.003))  # at any moment
            raise ConnectionError
        reply = client.read()
        if isinstance(reply, ReplyError):
            raise reply
        client.send("RELEASE", key, token)
        client.read()


@pytest.mark.slow
def test_8_connections_retrying_broken_requests_for_30_s_end_with_exact_stock(rig, lease):
    daemon = rig.daemon(lease=lease)
    admin = daemon.client()
    for key in ("stock:0", "stock:1"):
        token = admin.token(key)
        admin.fenced(token, "SET", key, STOCK)
        admin("RELEASE", key, token)
    until = time.monotonic() + SECONDS
    sellers = [Seller(daemon.address, number, until) for number in range(CLIENTS)]
    at_once(Seller.run, sellers, seconds=SECONDS + 60)
    sold = sum(seller.sold for seller in sellers)
    assert sold > 100 and sum(seller.broken for seller in sellers) > 20
    assert sum(seller.repeats_under_a_new_token for seller in sellers) > 5
    left = sum(int(value) for value in admin("MGET", "stock:0", "stock:1"))
    assert left + sold == 2 * STOCK
