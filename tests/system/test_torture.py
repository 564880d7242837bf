# SPDX-License-Identifier: Apache-2.0
"""The torture rig's checker itself: what it accepts, what it refuses, and that it draws."""

import itertools
import pathlib
import random
import sys
from xml.etree import ElementTree

import pytest

from harness.limits import wait_until, within

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from torture import history, invariants, linearize, model, timeline  # noqa: E402
from torture.client import Caller, Lost  # noqa: E402

pytestmark = pytest.mark.interpreted

OPS = {"A": "acquire", "R": "release", "V": "revoke", "S": "set", "W": "swap", "G": "get",
       "F": "fget", "B": "sell", "P": "set", "C": "receipt", "L": "lease", "N": "renew"}


def story(*lines):
    """Read operations from 'client kind call-done key=value ... -> reply'; no reply: unknown. P:
    a write without an ID."""
    ops = []
    for index, line in enumerate(lines):
        left, _, right = line.partition(" -> ")
        client, kind, times, *args = left.split()
        begin, _, end = times.partition("-")
        fields = dict(arg.split("=") for arg in args)
        if "token" in fields:
            fields["token"] = int(fields["token"])
        fields["id"] = None if kind == "P" else fields.get("id", fields.get("value"))
        record = {"client": client, "n": index, "at": "d0", "resource": "r", "op": OPS[kind],
                  "call": float(begin), **fields}
        if right:
            record["done"] = float(end)
            if right.isupper() and right != "OK":
                record["error"] = right + " why"
            else:
                record["reply"] = parse(right)
        ops.append(record)
    return history.number(sorted(ops, key=lambda op: op["call"]))


def parse(text):
    if text == "null":
        return None
    if text.startswith("["):
        return [parse(part) for part in text.strip("[]").split(",")]
    return int(text) if text.lstrip("-").isdigit() else text


def verdict(ops, value=None):
    found = linearize.check(ops, model.initial(value))
    assert found.decided
    return found


GOOD = {
    "two holders in turn": (
        "a A 0-1 -> 1", "a S 2-3 token=1 value=x -> OK", "a R 4-5 token=1 -> 0",
        "b A 6-7 -> 2", "b F 8-9 token=2 -> x", "a S 10-11 token=1 value=z -> STALE",
        "b G 12-13 -> x"),
    "an expired lease with no successor still writes": (
        "a A 0-1 -> 1", "a S 900-901 token=1 value=x -> OK", "b A 902-903 -> 2",
        "b G 904-905 -> x"),
    "an unknown write that happened much later, under its token": (
        "a A 0-1 -> 1", "a S 2- token=1 value=x", "b G 3-4 -> null", "b G 5-6 -> x"),
    "an unknown write without an ID that happened": (
        "a A 0-1 -> 1", "a P 2- token=1 value=x", "a P 3-4 token=1 value=y -> OK",
        "b G 5-6 -> y", "b G 7-8 -> x"),
    "an unknown write without an ID that did not happen": (
        "a A 0-1 -> 1", "a P 2- token=1 value=x", "b A 3-4 -> 2", "b F 5-6 token=2 -> null"),
    "an unknown grant fenced the holder out": (
        "a A 0-1 -> 1", "b A 2-", "a S 3-4 token=1 value=x -> STALE", "c A 5-6 -> 3"),
    "an unknown release retired the token": (
        "a A 0-1 -> 1", "a R 2- token=1", "a S 3-4 token=1 value=x -> STALE"),
    "a grant fences before its reply": (
        "a A 0-1 -> 1", "b A 2-9 -> 2", "a S 3-4 token=1 value=x -> STALE"),
    "a write among two others that overlap": (
        "a A 0-1 -> 1", "a S 2-9 token=1 value=x -> OK", "b S 3-8 token=1 value=y -> OK",
        "c G 4-5 -> y", "c G 6-7 -> x", "c G 10-11 -> x"),
    "a repeat under a later token gets the first reply": (
        "a A 0-1 -> 1", "a W 2- token=1 value=x", "a A 3-4 -> 2", "a S 5-6 token=2 value=y -> OK",
        "a W 7-8 token=1 value=x -> null", "a G 9-10 -> y"),
    "a refused write leaves no trace and is tried again": (
        "a A 0-1 -> 1", "b A 2-3 -> 2", "a S 4-5 token=1 value=x -> STALE",
        "b S 6-7 token=2 value=x -> OK", "b G 8-9 -> x"),
    "an acquire without a lease had one that ran out": (
        "a A 0-1 -> 1", "b A 2-3 -> null", "a S 4-5 token=1 value=x -> STALE"),
    "a lease that ran out on its way is seen": ("a A 0-1 -> null", "b L 2-3 -> 1", "a A 4-5 -> 2"),
    "a grant whose reply was lost is seen, then entered again by its owner": (
        "a A 0- owner=a", "b L 2-3 -> 1", "a A 4-5 owner=a -> 1", "a S 6-7 token=1 value=x -> OK"),
    "the last release again": (
        "a A 0-1 -> 1", "a R 2-3 token=1 -> 0", "a R 4-5 token=1 -> 0",
        "a N 6-7 token=1 -> STALE", "b V 8-9 -> 1"),
    "a token that was never granted": (
        "a A 0-1 -> 1", "b S 2-3 token=999 value=x -> UNKNOWN", "a G 4-5 -> null"),
    "revoked by a token nobody heard of": (
        "a A 0-1 -> 1", "b A 2-", "c V 3-4 -> 2", "c A 5-6 -> 3"),
}

BAD = {
    "a stale write is accepted": ("a A 0-1 -> 1", "b A 2-3 -> 2", "a S 4-5 token=1 value=x -> OK"),
    "a stale write is accepted before the successor's first": (
        "a A 0-1 -> 1", "b A 2-3 -> 2", "b F 4-5 token=2 -> null",
        "a S 6-7 token=1 value=x -> OK", "b S 8-9 token=2 value=y -> OK"),
    "a write without an ID applied twice": (
        "a A 0-1 -> 1", "a P 2-3 token=1 value=x -> OK", "a P 4-5 token=1 value=y -> OK",
        "b G 6-7 -> x"),
    "an unknown write without an ID applied twice": (
        "a A 0-1 -> 1", "a P 2- token=1 value=x", "b G 3-4 -> x",
        "a P 5-6 token=1 value=y -> OK", "b G 7-8 -> x"),
    "a lost update": (
        "a A 0-1 -> 1", "a S 2-3 token=1 value=x -> OK", "b A 4-5 -> 2",
        "b W 6-7 token=2 value=y -> null"),
    "a token going backwards": ("a A 0-1 -> 5", "b A 2-3 -> 4"),
    "one token for two owners": ("a A 0-1 -> 5", "b A 2-3 -> 5"),
    "a retry applied twice": (
        "a A 0-1 -> 1", "a B 2- token=1 id=i", "a B 3-4 token=1 id=i -> 8", "a G 5-6 -> 8"),
    "a retry applied twice, in the register": (
        "a A 0-1 -> 1", "a S 2-3 token=1 id=i value=x -> OK",
        "a S 4-5 token=1 value=y -> OK", "a S 6-7 token=1 id=i value=x -> OK", "a G 8-9 -> x"),
    "a value never written": ("a A 0-1 -> 1", "a S 2-3 token=1 value=x -> OK", "b G 4-5 -> y"),
    "an acknowledged write is lost": (
        "a A 0-1 -> 1", "a S 2-3 token=1 value=x -> OK", "a S 4-5 token=1 value=y -> OK",
        "final G 6-7 -> x"),
    "a released token writes": (
        "a A 0-1 -> 1", "a R 2-3 token=1 -> 0", "a S 4-5 token=1 value=x -> OK"),
    "a revoked token writes": ("a A 0-1 -> 1", "b V 2-3 -> 1", "a S 4-5 token=1 value=x -> OK"),
    "a refused write has happened": (
        "a A 0-1 -> 1", "b A 2-3 -> 2", "a S 4-5 token=1 value=x -> STALE", "b G 6-7 -> x"),
    "a holder is refused and nothing explains it": (
        "a A 0-1 -> 1", "a S 2-3 token=1 value=x -> STALE"),
    "a token that was never granted writes": ("a A 0-1 -> 1", "b S 2-3 token=999 value=x -> OK"),
    "a read goes back in time": (
        "a A 0-1 -> 1", "a S 2-9 token=1 value=x -> OK", "b G 3-4 -> x", "b G 5-6 -> null"),
    "a receipt denies a write that happened": (
        "a A 0-1 -> 1", "a S 2- token=1 id=i value=x", "b A 3-4 -> 2",
        "a C 5-6 token=1 id=i -> [0,null]", "b G 7-8 -> x"),
    "a poisoned fence": (
        "a A 0-1 -> 1", "b S 2-3 token=999 value=x -> UNKNOWN",
        "a S 4-5 token=1 value=y -> STALE"),
    "a grant whose reply was lost is another's, too": (
        "a A 0- owner=a", "b L 2-3 -> 1", "c A 4-5 -> 1"),
    "a lease is taken away by a repeat of its own request": (
        "a A 0- owner=i", "a A 1-2 owner=i -> 4", "a S 3-4 token=4 value=x -> STALE",
        "a R 5-6 token=4 -> 0"),
    "an error that the command may not give": (
        "a A 0-1 -> 1", "a S 2-3 token=1 value=x -> WRONGTYPE"),
}
STOCK = {"a retry applied twice": 10}


@pytest.mark.parametrize("name", GOOD)
def test_the_checker_finds_an_order(name):
    found = verdict(story(*GOOD[name]))
    assert found.ok, linearize.explain(found)


@pytest.mark.parametrize("name", BAD)
def test_the_checker_finds_that_there_is_none(name):
    ops = story(*BAD[name])
    found = verdict(ops, STOCK.get(name))
    assert not found.ok
    assert found.op.client in linearize.explain(found)
    reply = found.op.done
    earlier = [op for op in ops if op.call < reply and op.index != found.op.index]
    assert verdict([op._replace(done=None) if (op.done or 0) > reply else op for op in earlier],
                   STOCK.get(name)).ok, "without the operation it names there is an order"


def exhaustive(ops, state):
    """Try everything: each order, each unknown operation in or out, each hidden grant."""
    remember = model.repeated_ids(ops)

    def may_go(index, left):
        return all(not (ops[other].known and ops[other].done < ops[index].call)
                   for other in left if other != index)

    def search(state, left):
        if not any(ops[index].known for index in left):
            return True
        return any(may_go(index, left) and any(
            search(*after) for after in outcomes(state, left, index)) for index in left)

    def outcomes(state, left, index):
        after = model.step(state, ops[index], remember)
        if after is not None:
            yield after, left - {index}
        if ops[index].op == "acquire" and ops[index].known and not state.hidden:
            yield model.bump(state), left  # one that ran out; the operation is still to come

    return search(state, frozenset(op.index for op in ops if not model.is_free(op)))


def random_story(chance):
    """Near the truth: a run of the model, with a few replies changed and some lost."""
    ops, state, now, names = [], model.initial(5), 0.0, itertools.count()
    granted, ids = [], []
    for index in range(chance.randint(3, 7)):
        now += 1
        kind = chance.choice(["acquire"] * 3 + ["release", "revoke", "get", "sell", "sell", "set",
                                                "swap", "fget", "receipt", "lease"])
        op = {"index": index, "client": f"c{index}", "resource": "r", "op": kind}
        begin, end = now - chance.random() * 3, now + chance.random() * 3
        if kind in ("release", "set", "swap", "sell", "fget", "receipt"):
            heard = [token for token, when in granted if when < begin]
            op["token"] = chance.choice(heard[-2:] or [999])
        if kind in ("set", "swap", "sell", "receipt"):
            op["id"] = chance.choice(ids) if ids and chance.random() < 0.4 else f"{kind}{index}"
            ids += [op["id"]] if kind == "sell" else []
        if kind in ("set", "swap"):
            op["value"] = 100 + next(names)
        reply = {"acquire": state.newest + chance.choice([0, 1, 1, 1, 2]), "release": 0,
                 "revoke": state.newest or None, "get": state.value, "lease": state.newest or None,
                 "set": "OK", "swap": state.value, "fget": state.value,
                 "sell": (state.value or 0) - 1,
                 "receipt": chance.choice([None, [0, None], [1, 4]])}[kind]
        error = None
        if kind in ("set", "swap", "sell", "fget", "release") and model.judge(state, op["token"]):
            error = model.judge(state, op["token"]) + " x"
        if chance.random() < 0.1 and kind in ("set", "sell", "fget", "release"):
            error = chance.choice(["STALE x", "BUSY x", None])
        if kind == "acquire" and chance.random() < 0.2:
            error = "BUSY x"
        op.update(call=begin, done=end, reply=None if error else reply, error=error)
        made = history.make(**op)
        if chance.random() < 0.25:
            made = made._replace(done=None, reply=None, error=None)
        state = model.step(state, made) or state
        if kind == "acquire" and made.known and not error:
            granted.append((reply, end))
        ops.append(made)
    return ops


def test_the_checker_agrees_with_trying_everything():
    chance, count = random.Random(7), {True: 0, False: 0}
    for _ in range(3000):
        ops = random_story(chance)
        expected = exhaustive(ops, model.initial(5))
        found = verdict(ops, 5)
        assert found.ok == expected, "\n".join(map(repr, ops))
        count[expected] += 1
    assert min(count.values()) > 300, count


def long_story(writes):
    """One client after another, each write read by two others at once, some unknown."""
    ops, now, value = [], 0.0, None
    for turn in range(writes // 10):
        token = turn + 1
        ops.append(dict(client="a", op="acquire", call=now, done=now + 1, reply=token))
        for number in range(10):
            now += 2
            before, value = value, f"{turn}.{number}"
            ops.append(dict(client="a", op="set", token=token, id=value, value=value, call=now,
                            done=now + 1, reply="OK"))
            ops.append(dict(client="b", op="get", call=now, done=now + 1.5, reply=value))
            ops.append(dict(client="c", op="get", call=now - 0.5, done=now + 0.5, reply=before))
        ops.append(dict(client="d", op="set", token=token, id=f"u{turn}", value=f"u{turn}",
                        call=now, reply=None))
        now += 2
    records = sorted(({"resource": "r", "n": 0, "at": "d0", **op} for op in ops),
                     key=lambda op: op["call"])
    return history.number(records)


def test_thousands_of_operations_are_checked_in_seconds():
    ops = long_story(3000)
    with within(20):  # every order would take for ever
        assert verdict(ops).ok
    wrong = [op._replace(reply="never") if op.index == len(ops) - 50 and op.op == "get" else op
             for op in ops]
    changed = next(i for i in range(len(ops) - 50, len(ops)) if ops[i].op == "get")
    wrong[changed] = ops[changed]._replace(reply="never")
    assert verdict(wrong).op.index == changed


def test_a_history_that_takes_too_long_is_not_called_good():
    ops = story("a A 0-1 -> 1", *(f"w{i} S 2- token=1 value=v{i}" for i in range(14)),
                "b G 3-4 -> v0", "b G 5-6 -> v1", "b G 7-8 -> nobody")
    found = linearize.check(ops, model.initial(), configurations_max=200)
    assert not found.decided and not found.ok and "200" in found.note


def test_tokens_must_rise():
    good = story("a A 0-1 -> 1", "b A 2-3 -> 2", "c A 2-4 -> 7", "d A 5-6 -> LEASEDOWN")
    assert invariants.tokens_rise(good)[0]
    good[-1] = good[-1]._replace(error="LEASEDOWN lease service redis: it keeps minting tokens "
                                       "that were used already")
    assert not invariants.tokens_rise(good)[0]
    for bad in ("a token going backwards", "one token for two owners"):
        assert not invariants.tokens_rise(story(*BAD[bad]))[0]


def test_a_write_after_a_larger_grant_is_found_without_a_search():
    assert not invariants.fenced_out(story(*BAD["a stale write is accepted"]))[0]
    assert invariants.fenced_out(story(*GOOD["a repeat under a later token gets the first reply"]
                                       ))[0]


def test_the_last_read_must_agree_with_what_was_acknowledged():
    assert not invariants.acknowledged_lasts(story(*BAD["an acknowledged write is lost"]))[0]
    good = story("a A 0-1 -> 1", "a S 2-3 token=1 value=x -> OK", "a S 4- token=1 value=y",
                 "final G 6-7 -> y")
    assert invariants.acknowledged_lasts(good)[0]
    repeated = story("a A 0-1 -> 1", "a S 2-3 token=1 value=x -> OK",
                     "a S 4-5 token=1 value=y -> OK", "a S 6-7 token=1 value=x -> OK")
    assert invariants.acknowledged_lasts([*repeated, *story("final G 8-9 -> y")])[0]
    for lost in ("x", "null"):
        assert not invariants.acknowledged_lasts([*repeated, *story(f"final G 8-9 -> {lost}")])[0]


@pytest.mark.parametrize("lines, ok", [
    (("a B 2-3 token=1 id=i -> 9", "a B 4-5 token=1 id=j -> 8", "final G 6-7 -> 8"), True),
    (("a B 2-3 token=1 id=i -> 9", "a B 4- token=1 id=j", "final C 5-6 token=1 id=j -> [0,null]",
      "final G 6-7 -> 9"), True),
    (("a B 2-3 token=1 id=i -> 9", "a B 4- token=1 id=j", "final C 5-6 token=1 id=j -> [0,null]",
      "final G 6-7 -> 8"), False),
    (("a B 2-3 token=1 id=i -> 9", "b B 4-5 token=1 id=j -> 9", "final G 6-7 -> 9"), False),
    (("a B 2-3 token=1 id=i -> 9", "a B 4-5 token=1 id=i -> 8", "final G 6-7 -> 8"), False),
    (("a B 2- token=1 id=i", "final G 6-7 -> 10"), False),
], ids=["sold", "not sold", "sold and denied", "twice the last piece", "two replies", "unresolved"])
def test_stock_is_conserved(lines, ok):
    assert invariants.stock_is_conserved(story(*lines), 10)[0] is ok


def test_a_basket_is_sold_of_each_stock_or_of_none():
    whole = story("a B 0-1 token=1 id=basket-1 -> 9", "a B 2- token=1 id=basket-2",
                  "final C 3-4 token=1 id=basket-2 -> [0,null]")
    other = [op._replace(resource="s", index=op.index + 10) for op in whole]
    assert invariants.baskets_are_whole(whole + other)[0]
    other[2] = other[2]._replace(reply=[1, 8])
    assert not invariants.baskets_are_whole(whole + other)[0]


@pytest.mark.parametrize("name", ["a stale write is accepted", "a read goes back in time"])
def test_a_violation_is_drawn_as_valid_xml(tmp_path, name):
    ops = story(*BAD[name], "c G 20- ")
    found = verdict(ops)
    path = tmp_path / "build" / "violation.svg"
    timeline.draw(path, ops, [(0.5, "SIGSTOP <d0> & more")], "r: <not linearizable>",
                  linearize.explain(found), bad=[found.op], around=found.op)
    text = path.read_text()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg") and "href" not in text
    assert {client for client in "ab"} <= {node.text for node in root.iter() if node.text}
    red = [node for node in root.iter() if node.get("class", "").split()[:1] == ["bad"]]
    assert len(red) == 1
    assert any(node.get("class") == "fault" for node in root.iter())


def test_what_clients_wrote_down_is_merged_and_read_back(tmp_path):
    for client, reply in (("c0", 5), ("c1", None)):
        recorder = history.Recorder(tmp_path / client, client)
        n = recorder.call("d0", "r", "acquire", wait=0)
        if reply:
            recorder.done(n, reply)
        recorder.close()
    ops = history.merge([tmp_path / "c0", tmp_path / "c1"])
    assert [op.known for op in ops] == [True, False]
    history.write(tmp_path / "all", ops, [(ops[0].call, "FLUSHALL")])
    again, faults = history.read(tmp_path / "all")
    assert again == ops and faults == [(ops[0].call, "FLUSHALL")]


class AlwaysHangsUp:
    def random(self):
        return 0.0

    def choice(self, _):
        return 0.0


def test_a_lease_that_an_unheard_repeat_tied_to_its_connection_ends_with_it(tmp_path, local, key):
    """An owner enters again with EPHEMERAL and hangs up: its token ends, and no newer one does."""
    paths = [tmp_path / name for name in ("a", "b")]
    first, again = (Caller(path.name, path, [{"address": local.address, "store": ""}])
                    for path in paths)
    token = first.acquire(0, key, 60000, owner="slot")
    again.chance = AlwaysHangsUp()
    with pytest.raises(Lost):
        again.acquire(0, key, 60000, owner="slot", ephemeral=True)
    wait_until(lambda: first.put(0, key, token, "late")[1] == "STALE", "the lease ends")
    assert first.acquire(0, key, 1000, owner="slot", ephemeral=True) == token + 1
    first.drop(0)
    found = linearize.check(history.merge(paths), model.initial())
    assert found.ok, linearize.explain(found)
