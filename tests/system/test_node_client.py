# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Node: what it promises its programs, with a real daemon."""

import json
import os
import signal
import socket
import threading
import time

import pytest

from harness import false_daemon
from harness.leases import PROMPT_SECONDS
from harness.limits import HANG_SECONDS, Seconds, Stopwatch, patience, wait_until
from harness.node import node
from harness.shop import Connection, program

pytestmark = pytest.mark.interpreted


def on_its_address(daemon):
    """The options that start a daemon where this one was."""
    return {"listen": ("{}:{}".format(*daemon.address),)}


@pytest.fixture
def daemon(rig):
    return rig.daemon()


def told(rig, daemon, text, *args):
    """What a program that does no more than this said."""
    running = node(rig, text, daemon.uri, *args)
    said = running.hear()
    running.end()
    return said


def test_a_block_sells_under_its_token_and_gives_back(rig, daemon):
    said = told(rig, daemon, """
        say(await shop.lease('sku:1', { ttl: 30000, wait: 1000 }, async (lease) => {
          await lease.set(10);
          return [lease.token, await lease.take(3), await lease.put(), await lease.get(),
            lease.valid, lease.left > 29000, await shop.get('sku:1'), await lease.delete()];
        }));""")
    assert said == [1, 7, 8, "8", True, True, "8", True]
    assert daemon.client()("LEASE", "sku:1")[1] == b"free"


def test_hashes_sql_and_any_other_command_go_under_the_token(rig, daemon):
    said = told(rig, daemon, """
        await shop.sql('CREATE TABLE orders(id TEXT, n INTEGER, price REAL, note BLOB, paid)');
        await shop.lease('h', async (lease) => {
          const seen = [await lease.hset({ a: 1, b: 'x' }), await lease.hset('c', 2),
            await lease.hincrby('a', -1, { min: 0 }), await end(lease.hincrby('a', -1, { min: 0 })),
            await lease.hget('b'), await lease.hdel('b', 'c'), await lease.hgetall(),
            await shop.hget('h', 'a'), await shop.hgetall('h'),
            await lease.fenced('HSETNX', 'h', 'd', 5, { id: 'mine' }),
            await lease.fenced('HSETNX', 'h', 'd', 5, { id: 'mine' })];
          await lease.sql('INSERT INTO orders VALUES (?, ?, ?, ?, ?)',
            ['o', 5, 1.5, Buffer.from('bytes'), null]);
          seen.push(await lease.sql('SELECT *, typeof(n) t, typeof(note) u FROM orders'));
          say(seen);
        });""")
    assert said[:-1] == [2, 1, 0, "SoldOut", "x", 2, {"a": "0"}, "0", {"a": "0"}, 1, 1]
    assert said[-1]["columns"] == ["id", "n", "price", "note", "paid", "t", "u"]
    assert said[-1]["rows"] == [{"id": "o", "n": 5, "price": 1.5, "note": "bytes", "paid": None,
                                 "t": "integer", "u": "blob"}]


def test_a_token_is_for_its_own_key_alone(rig, daemon):
    said = told(rig, daemon, """
        const [one, two] = await shop.acquireAll(['one', 'two']);
        say([one.token === two.token, await end(one.fenced('SET', 'two', 1)),
          await end(shop.transaction(one, (sale) => sale.fenced(one, 'SET', 'two', 1))),
          await two.get()]);""")
    assert said == [True, "NoToken", "NoToken", None]


def test_leaving_the_block_never_hides_the_programs_own_error(rig, daemon):
    running = node(rig, """
        const fails = (release) => end(shop.lease('k', async (lease) => {
          await release(lease);
          throw new RangeError('mine');
        }));
        say([await fails(() => {}), await fails(() => shop.revoke('k')),
          await fails((lease) => lease.release())]);
        const hasty = await connect(uri, { timeout: 2000 });
        const ended = end(hasty.lease('k', async () => {
          say('held');
          await told();
          throw new RangeError('mine');
        }));
        say(await ended);
        say(await end(hasty.lease('k', () => 1)));""", daemon.uri, epilogue="process.exit(0);")
    assert running.hear() == ["RangeError"] * 3
    assert running.hear() == "held"
    with daemon.frozen():
        running.tell()
        assert running.hear() == "RangeError"
        assert running.hear() == "Unreachable"
    running.end()


def test_errors_are_classes_of_one_base(rig, daemon):
    said = told(rig, daemon, """
        const causes = {
          SoldOut: async (lease) => { await lease.set(1); await lease.take(2); },
          Held: () => shop.acquire('k'),
          WrongType: async (lease) => { await lease.delete(); await lease.hset('a', 1);
            await lease.take(1); },
          NoToken: () => shop.command('SET', 'other', 1),
          Unknown: () => shop.command('FENCED', 99, 'SET', 'k', 1),
          Guarded: async (lease) => {
            await shop.sql('CREATE TABLE t(k TEXT PRIMARY KEY)');
            await shop.command('GUARD', 'CREATE', 't', 'k', 'row:');
            await lease.sql("INSERT INTO t VALUES ('x')");
          },
          Refused: () => shop.command('NOSUCH'),
          Stale: async (lease) => { await shop.revoke('k'); await lease.set(1); },
          Lost: (lease) => lease.set(1),
          Misuse: async () => {
            const given = await shop.acquire('given');
            await given.release();
            await given.set(1);
          },
        };
        const lease = await shop.acquire('k');
        const seen = {};
        for (const [name, cause] of Object.entries(causes)) {
          await cause(lease).then(() => { seen[name] = 'no error'; }, (error) => {
            seen[name] = error instanceof stockade[name] && error instanceof stockade.StockadeError
              && error instanceof Error && error.name === name ? error.code : error.stack;
          });
        }
        say(seen);""")
    assert said == {
        "SoldOut": "RANGE", "Held": "HELD", "WrongType": "WRONGTYPE", "NoToken": "NOTOKEN",
        "Unknown": "UNKNOWN", "Guarded": "GUARDED", "Refused": "ERR", "Stale": "STALE",
        "Lost": "STALE", "Misuse": "MISUSE"}


NONSENSE = [
    "shop.acquire('')", "shop.acquire('k', { ttl: 5 })", "shop.acquire('k', { ttl: '30s' })",
    "shop.acquire('k', { wait: -1 })", "shop.acquire('k', { waits: 1 })", "shop.acquire(7)",
    "shop.acquireAll([])", "connect('redis://127.0.0.1')", "connect('sqlite:shop.db')",
    "connect('stockade://127.0.0.1:7379/0')", "connect(uri, { timeout: 0 })",
    "lease.take(1.5)", "lease.take(-1)", "lease.take('1')", "lease.set({})", "lease.set(NaN)",
    "lease.fenced('SET', 'held', null)",
    "lease.renew(5)", "shop.sql(['SELECT 1'])", "shop.sql('SELECT ?', 1)",
    "shop.transaction([lease], (tx) => { tx.set(other, 1); })",
    "shop.lease('k', { wait: 5 })", "shop.leaseAll(['k'])",
    # An option that is misspelt would count for nothing.
    "connect(uri, { name: 'orders' })",
    "(await import('stockade/testing')).startDaemon([], { a: 1 })",
    "lease.set(1, { ID: 'order 1' })", "lease.delete({ ids: 'order 1' })",
    "lease.take(0, { minimum: 1 })", "lease.put(0, { maximum: 1 })",
    "lease.hset('f', 1, { key: 'order 1' })", "lease.hdel('f', { key: 'order 1' })",
    "lease.hincrby('f', 0, { minimum: 1 })", "lease.fenced('SET', 'held', 1, { ID: 'order 1' })",
    "lease.sql('SELECT 1', [], { ID: 'order 1' })",
    "shop.sql('SELECT 1', [], { lease: [lease] })",
    "shop.transaction([lease], (tx) => { tx.take(lease, 0, { minimum: 1 }); })",
    "shop.transaction([lease], (tx) => { tx.set(lease, 1); }, { ID: 'order 1' })"]


def test_a_call_that_makes_no_sense_is_refused_before_it_is_sent(rig, daemon):
    ends = ",".join(f"await end((async () => {call})())" for call in NONSENSE)
    said = told(rig, daemon, f"""
        const [lease, other] = await shop.acquireAll(['held', 'other']);
        say([{ends}]);""")
    assert dict(zip(NONSENSE, said)) == dict.fromkeys(NONSENSE, "Misuse")
    assert daemon.client()("EXISTS", "held", "other") == 0


def test_a_daemon_that_is_not_there_or_wants_a_password_says_so_at_once(rig):
    (rig.folder / "password").write_text("se@cret")
    daemon = rig.daemon("--password-file", rig.folder / "password")
    host = "{}:{}".format(*daemon.address)
    running = node(rig, f"""
        say([await end(connect('stockade://127.0.0.1:1')), await end(connect('stockade+unix:/no')),
          await end(connect('stockade://{host}').then((each) => each.get('k'))),
          await end(connect('stockade://:wrong@{host}')), await end(shop.get('k'))]);
        process.exit(0);""", f"stockade://:se%40cret@{host}")
    said = running.hear()
    running.end()
    assert said == ["Unreachable", "Unreachable", "Denied", "Denied", None]


# Waiting.

def test_forty_callers_share_a_connection_and_are_served_in_order(rig, lease):
    said = told(rig, rig.daemon(lease=lease), """
        await shop.lease('sku:1', (lease) => lease.set(40));
        const holder = await shop.acquire('sku:1');
        const order = [];
        const sales = Promise.all(Array.from({ length: 40 }, (_, i) =>
          shop.lease('sku:1', { ttl: 10000, wait: 30000 }, async (lease) => {
            order.push(i);
            const stock = Number(await lease.get());
            await sleep(1);
            await lease.set(stock - 1);
          })));
        while ((await shop.query('sku:1')).waiters < 40);
        const read = await shop.get('sku:1'); // nothing is held up
        await holder.release();
        await sales;
        say([read, await shop.get('sku:1'), order]);""")
    assert said == ["40", "0", list(range(40))]


def test_who_gives_up_leaves_the_line(rig, daemon):
    holder = daemon.client()
    token = holder.token("k")
    running = node(rig, """
        const ends = [clock(), await end(shop.acquire('k', { wait: 200 })), clock()];
        say(ends.concat((await shop.query('k')).waiters));
        const giving = new AbortController();
        const waiting = shop.acquire('k', { wait: 60000, signal: giving.signal });
        while ((await shop.query('k')).waiters === 0);
        giving.abort(new RangeError('mine'));
        say([await end(waiting), (await shop.query('k')).waiters]);
        say(await end(shop.acquire('k', { wait: 60000, signal: giving.signal })));""", daemon.uri)
    begun, name, ended, waiters = running.hear()
    assert name == "Held" and waiters == 0
    assert 0.2 <= Seconds(begun, ended) < 0.2 + patience(PROMPT_SECONDS)
    assert running.hear() == ["RangeError", 0]
    assert running.hear() == "RangeError"
    running.end()
    assert holder("RELEASE", "k", token) == 0


def test_a_waiter_is_told_of_its_turn_promptly(rig, daemon):
    holder = daemon.client()
    token = holder.token("k")
    running = node(rig, """
        const waiting = shop.lease('k', { ttl: 60000, wait: 60000 }, (lease) => say(lease.token));
        const listeners = () => shop.command('PUBSUB', 'NUMSUB', 'stockade:events:k');
        while ((await listeners())['stockade:events:k'] !== 1 && (await listeners())[1] !== 1);
        await shop.get('k'); // answered after what it asks when it has subscribed
        say('waits');
        await waiting;""", daemon.uri)
    assert running.hear() == "waits"
    holder.await_waiters("k", 1)
    with Stopwatch() as watch:
        holder("RELEASE", "k", token)
        assert running.hear() == token + 1
    assert watch.seconds < patience(PROMPT_SECONDS)
    running.end()


def test_baskets_that_cross_wait_over_connections_of_their_own(rig, daemon):
    said = told(rig, daemon, """
        const keys = ['a', 'b', 'c'];
        await shop.leaseAll(keys, (leases) => Promise.all([...leases].map((each) => each.set(60))));
        const holder = await shop.acquire('b');
        const sales = Promise.all(Array.from({ length: 60 }, (_, i) => {
          const pair = [keys[i % 3], keys[(i + 1) % 3]];
          return shop.leaseAll(pair, { wait: 30000 }, async ([one, other]) => {
            await shop.transaction([one, other], (sale) => sale.take(one).take(other));
          });
        }));
        while ((await shop.query('b')).waiters < 1);
        const read = await shop.get('a');
        await holder.release();
        await sales;
        say([read, await Promise.all(keys.map((key) => shop.get(key))),
          await end(shop.leaseAll(['a', 'a2'], ([a]) => shop.acquireAll(['a2', 'a'], { wait: 50 })))
        ]);""")
    assert said == ["60", ["20"] * 3, "Held"] or said[1:] == [["20"] * 3, "Held"]


def test_a_daemon_that_is_silent_at_the_login_holds_nobody_up(rig, daemon):
    token = daemon.client().token("a")
    relay = rig.relay(daemon.address)
    running = node(rig, """
        const quick = await connect(uri, { timeout: 500 });
        say();
        await told();
        const ends = async (promise) => [clock(), await end(promise), clock()];
        say(await ends(quick.acquireAll(['a', 'b'], { wait: 200 })));
        say(await ends(connect(uri, { timeout: 500 })));
        await quick.close();""", relay.uri)
    running.hear()
    relay.hold("up", only=b"HELLO")
    running.tell()
    for limit in 0.7, 0.5:
        begun, name, ended = running.hear()
        assert name == "Unreachable"
        assert Seconds(begun, ended) < limit + patience(PROMPT_SECONDS)
    running.end()
    assert token == 1 and daemon.client()("LEASE", "b") is None


# Renewal and loss.

def test_a_lease_lives_as_long_as_it_is_held(rig, daemon):
    running = node(rig, """
        await shop.leaseAll(['k', 'l'], { ttl: 2000 }, async ([lease, other]) => {
          say();
          await told();
          await lease.set('held');
          say([lease.signal.aborted, other.valid, await other.renew(400), lease.token]);
        });""", daemon.uri)
    running.hear()
    rival, watch = daemon.client(), daemon.client()
    rival.send("ACQUIRE", "k", 1000, "WAIT", 60000)
    before = watch.counter("leases_renewed")
    wait_until(lambda: (watch.counter("leases_renewed") >= before + 6 or
                        watch.lease("k")["token"] > 1),
               "each is renewed three times, which is as long as its TTL, or lost")
    running.tell()
    assert running.hear() == [False, True, None, 1]
    running.end()
    assert rival.read()[0] == 2
    assert rival("GET", "k") == b"held"


LOSER = """
    const lease = await shop.acquire('k', { ttl: 60000 });
    await sleep(200); // from a tenth of a second on
    say(lease.token);
    const { reason, name } = await lost(lease);
    say([name, reason, lease.valid, lease.left, await end(lease.set(1)), await lease.release()]);"""


@pytest.mark.parametrize("how, reason", [("REVOKE", "revoked"), ("RELEASE", "released")])
def test_a_lease_that_ends_elsewhere_is_told_at_once(rig, daemon, how, reason):
    running = node(rig, LOSER, daemon.uri)
    token = running.hear()
    client = daemon.client()
    with Stopwatch() as watch:
        client(how, "k", *([token] if how == "RELEASE" else []))
        assert running.hear() == ["Lost", reason, False, 0, "Lost", False]
    assert watch.seconds < patience(PROMPT_SECONDS)
    running.end()


def test_one_that_was_stopped_past_its_ttl_writes_over_nobodys_work(rig, daemon):
    running = node(rig, """
        const lease = await shop.acquire('k', { ttl: 400 });
        await lease.set('mine');
        say();
        await told();
        const written = await end(lease.set('stale'));
        say([written, lease.signal.aborted, await end(lease.get())]);""", daemon.uri)
    running.hear()
    client = daemon.client()
    with running.frozen():
        token, _ = client("ACQUIRE", "k", 60000, "WAIT", 10000, timeout=patience(HANG_SECONDS))
        client.fenced(token, "SET", "k", "successor's")
        running.tell()
    assert running.hear() == ["Lost", True, "Lost"]
    running.end()
    assert client("GET", "k") == b"successor's"


def test_a_loop_that_stalls_for_a_while_says_so_and_keeps_its_lease(rig, daemon):
    said = told(rig, daemon, """
        const late = [];
        shop.on('late', (event) => late.push(event));
        const lease = await shop.acquire('k', { ttl: 6000 });
        await sleep(200);
        stall(2600);
        await sleep(100);
        await lease.set(1);
        const { resource, token, left } = late[0];
        say([resource, token, left > 0, lease.signal.aborted, lease.left > 4500]);""")
    assert said == ["k", 1, True, False, True]


def test_a_loop_that_stalls_too_long_aborts_before_the_ttl_is_over(rig, daemon):
    running = node(rig, """
        const warned = new Promise((resume) => process.on('warning', resume));
        const lease = await shop.acquire('k', { ttl: 4000 });
        const granted = clock();
        lease.signal.addEventListener('abort', () => {
          say([lease.signal.reason.name, lease.signal.reason.reason, granted, clock()]);
        });
        stall(3700);
        say((await warned).code);
        say(await end(lease.set(1)));""", daemon.uri)
    said = [running.hear() for _ in range(3)]
    running.end()
    name, reason, granted, ended = next(each for each in said if isinstance(each, list))
    assert (name, reason) == ("Lost", "late") and Seconds(granted, ended) < 4  # its TTL
    assert "STOCKADE_LATE" in said and said[-1] == "Lost"
    assert daemon.client()("GET", "k") is None


def test_code_that_goes_on_after_a_stall_learns_of_the_loss(rig, daemon):
    said = told(rig, daemon, """
        const lease = await shop.acquire('k', { ttl: 300 });
        const { signal } = lease;
        stall(400);
        const before = signal.aborted; // no timer has run yet
        const writing = end(lease.set(1));
        say([before, signal.aborted, lease.valid, await writing]);""")
    assert said == [False, True, False, "Lost"]
    assert daemon.client()("GET", "k") is None


def test_a_reply_that_came_during_a_stall_counts(rig, daemon):
    running = node(rig, """
        const hasty = await connect(uri, { timeout: 2000 });
        const lease = await hasty.acquire('k', { ttl: 60000 });
        say();
        await told();
        const writing = end(lease.put(7));
        await new Promise((sent) => setImmediate(() => setImmediate(sent)));
        say();
        stall(2500);
        say(await writing);
        await hasty.close();""", daemon.uri)
    running.hear()
    with daemon.frozen():  # so that the reply comes during the stall, and not before
        running.tell()
        running.hear()
    assert running.hear() == 7
    running.end()


def test_a_daemon_that_is_silent_loses_the_lease_before_its_ttl_is_over(rig, daemon):
    running = node(rig, """
        const asked = clock();
        const lease = await shop.acquire('k', { ttl: 1500 });
        say();
        const { reason } = await lost(lease);
        say([reason, asked, clock()]);
        await told();""", daemon.uri)
    running.hear()
    with daemon.frozen():
        frozen = time.monotonic()  # no renewal is answered after this
        reason, asked, ended = running.hear()
    assert reason == "unreachable" and ended - asked > 1.2
    assert Seconds(frozen, ended) < 1.5  # its TTL
    running.tell()
    running.end()


def test_beyond_a_thousand_resources_turns_and_losses_are_found_by_asking(rig, daemon):
    holder = daemon.client()
    token = holder.token("k")
    running = node(rig, """
        const names = Array.from({ length: 1000 }, (_, i) => `r${i}`);
        const many = await Promise.all(names.map((name) => shop.acquire(name, { ttl: 60000 })));
        const listening = async () => (await shop.command('PUBSUB', 'CHANNELS')).length;
        while (await listening() < 1000);
        const waiting = shop.acquire('k', { ttl: 900, wait: 60000 });
        while ((await shop.query('k')).waiters === 0);
        say();
        const lease = await waiting;
        say([lease.token, await listening()]);
        say((await lost(lease)).name);
        await Promise.all(many.map((each) => each.release()));""", daemon.uri)
    running.hear()
    holder("RELEASE", "k", token)
    assert running.hear() == [token + 1, 1000]
    holder("REVOKE", "k")
    assert running.hear() == "Lost"
    running.end()


# Connections that break.

@pytest.mark.parametrize("call, reply", [
    ("lease.take(1, { id: 'order 17' })", 9),
    ("shop.acquire('m', { wait: 9000, owner: 'me' }).then(used)", [1, True, "free"])])
def test_a_request_of_ones_own_name_whose_reply_was_lost_is_applied_once(rig, daemon, call, reply):
    relay, watch = rig.relay(daemon.address), daemon.client()
    before = watch.counter("leases_renewed")
    running = node(rig, f"""
        const lease = await shop.acquire('k');
        await lease.set(10);
        say();
        const used = async (m) => [m.token, await m.release(),
          (await shop.query(m.resource)).state];
        await told();
        say(await {call});
        say(await lease.put(0).catch(() => null));""", relay.uri)
    running.hear()
    wait_until(lambda: watch.counter("leases_renewed") > before, "the reply is no renewal's")
    with relay.losing_reply():
        running.tell()
    assert running.hear() == reply
    assert running.hear() == (10 if "acquire" in call else 9)
    running.end()


def test_busy_after_a_lost_reply_leaves_the_write_unsure(rig):
    writes = []

    def answer(words):
        if words[0] == "HELLO":
            return "%1\r\n$5\r\nproto\r\n:3"
        if words[0] == "ACQUIRE":
            return "*2\r\n:1\r\n:60000"
        if not words[0].startswith("FENCED"):
            return "+OK"
        writes.append(words)
        return "-BUSY stopping" if len(writes) > 1 else None

    with socket.create_server(("127.0.0.1", 0)) as server:
        false_daemon.serve(server, answer)
        running = node(rig, """
            const hasty = await connect(uri, { timeout: 2000 });
            const lease = await hasty.acquire('k');
            const error = await lease.set(1).catch((reason) => reason);
            say([error.name, error.token]);
            await hasty.close();""", f"stockade://127.0.0.1:{server.getsockname()[1]}")
        assert running.hear() == ["Unsure", 1]
        running.end()
    assert len(writes) > 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_holders_and_waiters_go_on_after_a_restart(rig, daemon, how):
    running = node(rig, """
        const shop2 = await connect(uri, { timeout: 20000 });
        const holder = await shop2.acquire('k', { ttl: 30000 });
        await holder.set(5);
        const waiting = shop2.lease('k', { wait: 30000 }, (lease) => lease.take(1));
        while ((await shop2.query('k')).waiters === 0);
        say();
        await told();
        const taken = await holder.take(1);
        say([taken, holder.valid, await holder.release(), await waiting]);
        await shop2.close();""", daemon.uri)
    running.hear()
    daemon.close_clients()
    daemon.kill() if how == signal.SIGKILL else daemon.stop()
    running.tell()
    rig.daemon(**on_its_address(daemon))
    assert running.hear() == [4, True, True, 3]
    running.end()


def test_a_late_grant_to_an_owner_that_was_in_leaves_that_lease(rig, daemon):
    running = node(rig, """
        const hasty = await connect(uri, { timeout: 2000 });
        const lease = await shop.acquire('k', { ttl: 60000, owner: 'me' });
        say();
        await told();
        say(await end(hasty.acquire('k', { ttl: 60000, owner: 'me' })));
        await told();
        while ((await shop.query('k')).holds > 1);
        await sleep(200);
        say([await end(lease.set('mine')), (await shop.query('k')).holds]);
        await hasty.close();""", daemon.uri)
    running.hear()
    with daemon.frozen():
        running.tell()
        assert running.hear() == "Unreachable"
    running.tell()
    assert running.hear() == [None, 1]
    running.end()


@pytest.mark.parametrize("wait", [0, 30000])
def test_a_grant_to_a_named_owner_that_ended_before_its_repeat_is_asked_again(rig, daemon, wait):
    relay = rig.relay(daemon.address)
    running = node(rig, """
        say();
        await told();
        const lease = shop.acquire('k', { owner: 'me', wait: Number(args[0]) });
        say((await lease).token);""", relay.uri, wait)
    running.hear()
    relay.hold("down")
    running.tell()
    wait_until(lambda: daemon.client()("LEASE", "k") is not None and relay.kept("down"), "granted")
    daemon.client()("REVOKE", "k")
    relay.cut()
    relay.let("down")
    assert running.hear() == 2
    running.end()


def test_a_wait_for_a_basket_ends_with_its_signal_from_the_start(rig, daemon):
    said = told(rig, daemon, """
        const held = await shop.acquire('a');
        const controller = new AbortController();
        const basket = shop.acquireAll(['a', 'b'], { wait: 60000, signal: controller.signal });
        controller.abort(); // while it asks for the first time
        say([await end(basket), await held.release()]);""")
    assert said == ["AbortError", True]


# Transactions, and rows of the program's own.

def test_a_transaction_is_applied_whole_or_not_at_all(rig, daemon):
    said = told(rig, daemon, """
        await shop.sql('CREATE TABLE orders(id TEXT PRIMARY KEY, pieces INTEGER)');
        const seen = [];
        const basket = await shop.acquireAll(['a', 'b']);
        const [a, b] = basket;
        seen.push(await shop.transaction(basket, (tx) => { tx.set(a, 5).set(b, 1); }));
        const sell = (order, options) => shop.transaction(basket, (tx) => {
          tx.take(a, 2).take(b).sql('INSERT INTO orders VALUES (?, ?)', [order, 3]);
        }, options);
        seen.push((await sell('first', { id: 'order 1' })).slice(0, 2));
        seen.push((await sell('first', { id: 'order 1' })).slice(0, 2));
        seen.push(await end(sell('second')));
        await shop.revoke('b');
        seen.push(await end(shop.transaction(basket, (tx) => { tx.take(a, 1); })));
        await lost(b);
        seen.push(a.valid, basket.valid, basket.signal.aborted);
        say([...seen, await shop.get('a'), await shop.get('b'),
          (await shop.sql('SELECT * FROM orders')).rows, await basket.release()]);""")
    assert said == [[None, None], [3, 0], [3, 0], "SoldOut", "Stale", True, False, True,
                    "3", "0", [{"id": "first", "pieces": 3}], False]


SQLITE = r"""
    // What better-sqlite3 and node:sqlite have, over a pipe to a real SQLite in the test.
    import { openSync, readSync, writeSync } from 'node:fs';
    const [ask, answer] = [openSync(args[0], 'w'), openSync(args[1], 'r')];
    function query(sql, params) {
      writeSync(ask, `${JSON.stringify([sql, params.map((each) => (
        typeof each === 'bigint' ? Number(each) : each))])}\n`);
      let text = '';
      while (!text.endsWith('\n')) {
        const bytes = Buffer.alloc(4096);
        text += bytes.toString('utf8', 0, readSync(answer, bytes));
      }
      const { error, row } = JSON.parse(text);
      if (error) throw new Error(error);
      return row;
    }
    const db = {
      exec: (sql) => query(sql, []),
      prepare: (sql) => ({ get: (...params) => query(sql, params) }),
    };
"""


def serve_sqlite(connection, ask, answer):
    with open(ask, encoding="utf-8") as questions, open(answer, "w", encoding="utf-8") as answers:
        for line in questions:
            sql, params = json.loads(line)
            try:
                reply = {"row": connection.execute(sql, params).fetchone()}
            except Exception as error:  # pylint: disable=broad-except
                reply = {"error": str(error)}
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


@pytest.mark.parametrize("loaded", [True, False])
def test_a_token_is_presented_in_a_transaction_of_the_programs_own(rig, daemon, loaded):
    admin = daemon.client()
    admin("SQL", "CREATE TABLE inventory(sku TEXT PRIMARY KEY, left INTEGER)")
    admin("GUARD", "CREATE", "inventory", "sku", "sku:")
    pipes = [rig.folder / "ask", rig.folder / "answer"]
    for pipe in pipes:
        os.mkfifo(pipe)
    open_file = program if loaded else Connection
    connection = open_file(rig.store, check_same_thread=False)
    server = threading.Thread(target=serve_sqlite, args=[connection, *pipes], daemon=True)
    server.start()
    running = node(rig, SQLITE + """
        const lease = await shop.acquire('sku:1', { ttl: 60000 });
        const sell = () => {
          db.exec('BEGIN IMMEDIATE');
          try {
            lease.present(db);
            db.exec("INSERT INTO inventory VALUES ('1', 9)");
            db.exec('COMMIT');
            return 'sold';
          } catch (error) {
            db.exec('ROLLBACK');
            return error.name;
          }
        };
        const seen = [sell()];
        await shop.revoke('sku:1');
        say([...seen, sell(), sell(), lease.signal.aborted]);""", daemon.uri, *pipes)
    assert running.hear() == (["sold", "Stale", "Lost", True] if loaded
                              else ["Misuse", "Misuse", "Misuse", False])
    running.end()
    server.join(10)
    connection.close()
    rows = admin("SQL", "SELECT count(*) FROM inventory")
    assert [b"1" if loaded else b"0"] in rows or [[b"1" if loaded else b"0"]] in rows
