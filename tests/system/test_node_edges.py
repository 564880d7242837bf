# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Node at the edges of its language: numbers that it does not hold,
names that it changes, listeners that it counts, a daemon that is silent at the end."""

import re
import signal
import socket

import pytest

from harness.limits import BUILD, wait_until
from harness.node import node

pytestmark = pytest.mark.interpreted
PRINTS = "const text = (value) => `${typeof value} ${value}`;"


def told(rig, daemon, text):
    """What a program that does no more than this said."""
    running = node(rig, text, daemon.uri)
    said = running.hear()
    running.end()
    return said


def test_integers_that_a_number_does_not_hold_are_bigints(rig, local, key):
    said = told(rig, local, PRINTS + f"""
        await shop.lease('{key}', async (lease) => {{
          await lease.set(2n ** 53n - 2n);
          const seen = [await lease.put(1), await lease.put(2n), await lease.take(2n ** 53n),
            await lease.take(1n)];
          await lease.fenced('SET', '{key}', 2n ** 53n);
          seen.push(await lease.fenced('INCR', '{key}'), await lease.get(), (await shop.transaction(
            lease, (sale) => sale.put(lease, 2).take(lease, 2n ** 53n)))[0]);
          await lease.delete();
          await lease.hset('n', -(2n ** 63n) + 1n);
          seen.push(await lease.hincrby('n', -1), await lease.hget('n'));
          const {{ rows }} = await lease.sql('SELECT ? AS a, ? AS b, ? AS c, ? AS d',
            [2n ** 53n + 1n, 5, 2.5, '9007199254740993']);
          seen.push(...Object.values(rows[0]));
          say(seen.map(text));
        }});""")
    assert said == [
        "number 9007199254740991", "bigint 9007199254740993", "number 1", "number 0",
        "bigint 9007199254740993", "string 9007199254740993", "bigint 9007199254740995",
        "bigint -9223372036854775808", "string -9223372036854775808",
        "bigint 9007199254740993", "number 5", "number 2.5", "string 9007199254740993"]


def test_columns_of_one_name_are_all_there(rig, local):
    said = told(rig, local, """
        const { columns, rows } = await shop.sql('SELECT 1 AS id, 2 AS id, 3 AS "id:1", 4 AS id');
        say([columns, rows]);""")
    assert said == [["id", "id", "id:1", "id"], [{"id": 1, "id:1": 2, "id:1:1": 3, "id:2": 4}]]


def test_any_number_of_waits_on_one_signal_warns_of_nothing(rig, local, key):
    """Those for one lease, and those for a basket, some of which wait for a connection."""
    said = told(rig, local, f"""
        const warnings = [];
        process.on('warning', (warning) => warnings.push(warning.message));
        const held = await shop.acquire('{key}');
        const controller = new AbortController();
        const options = {{ wait: 60000, signal: controller.signal }};
        const waits = Array.from({{ length: 20 }}, (_, i) => (i % 2
          ? shop.acquire('{key}', options) : shop.acquireAll(['{key}', `{key}-${{i}}`], options)));
        while ((await shop.query('{key}')).waiters < 20) await sleep(5);
        const first = await end(shop.acquire('{key}', {{ ...options, wait: 1 }}));
        controller.abort(); // of those that wait still
        const ends = await Promise.all(waits.map(end));
        say([first, [...new Set(ends)], warnings]);
        await held.release();""")
    assert said == ["Held", ["AbortError"], []]


HALVES = [
    "shop.acquire(half)", "shop.acquireAll(['k', half])", "shop.acquire('k', { owner: half })",
    "lease.set(half)", "lease.hset({ [half]: 1 })", "lease.set(1, { id: half })",
    "shop.sql('SELECT ?', [half])", "shop.sql(`SELECT '${half}'`)", "shop.command('GET', half)",
    "shop.revoke(half)"]


def test_half_a_character_is_refused(rig, local, key):
    """In its place would be sent what is not that name."""
    ends = ",".join(f"await end((async () => {call})())" for call in HALVES)
    said = told(rig, local, f"""
        const half = JSON.parse('"\\\\ud800"');
        await shop.lease('{key}', async (lease) => say([{ends}]));""")
    assert dict(zip(HALVES, said)) == dict.fromkeys(HALVES, "Misuse")


def test_a_daemon_that_is_silent_at_the_end_ends_no_program(rig):
    daemon = rig.daemon()
    program = node(rig, """
        const hasty = await connect(uri, { timeout: 300 });
        const lease = await hasty.acquire('k');
        say();
        await told();
        const written = end(lease.put(1));
        await hasty.close();
        say(await written);
        process.exit(0);""", daemon.uri)
    program.hear()
    daemon.signal(signal.SIGSTOP)
    program.tell()
    assert program.hear() in {"Unsure", "Misuse"}
    daemon.signal(signal.SIGCONT)
    program.end()


def test_its_connections_have_its_name(rig, local, key):
    program = node(rig, f"""
        const named = await connect(uri, {{ clientName: '{key}-orders' }});
        const lease = await named.acquire('{key}', {{ ttl: 300 }});
        await told();
        const names = ['two words', '', 'x'.repeat(65)];
        say(await Promise.all(names.map((clientName) => end(connect(uri, {{ clientName }})))));
        await (await connect(uri, {{ clientName: 'x'.repeat(64) }})).close();
        await named.close();""", local.uri)
    client = local.client()
    wait_until(lambda: client("CLIENT", "LIST").count(f"name={key}-orders".encode()) == 2,
               "the program's connection, and the one that renews")
    assert client("HISTORY", key)[0][7] == f"{key}-orders".encode()
    program.tell()
    assert program.hear() == 3 * ["Misuse"]
    program.end()


def test_each_process_has_a_name_of_its_own(rig, local, key):
    program = node(rig, f"""
        const lease = await shop.acquire('{key}', {{ ttl: 30000 }});
        say([process.pid]);
        await told();""", local.uri)
    [pid] = program.hear()
    name = local.client()("HISTORY", key)[0][7].decode()
    assert re.fullmatch(rf"[!-~]{{1,32}}-{pid}@{re.escape(socket.gethostname()[:20])}", name)
    program.tell()
    program.end()


def test_a_refusal_of_postgresql_is_an_error_of_the_package(rig, local, key):
    """What pg's errors say; the page on guards presents to a real one."""
    said = told(rig, local, f"""
        const db = (message, code) => ({{
          query: async () => {{ throw Object.assign(new Error(message), {{ code }}); }} }});
        await shop.lease('{key}', async (lease) => {{
          const seen = [];
          await lease.present(db('permission denied for schema stockade', '42501'))
            .catch((error) => seen.push(error.constructor.name, error.message));
          for (const text of ['no such function', 'UNKNOWN token 9 of', 'STALE token 1 of']) {{
            seen.push(await end(lease.present(db(text))), lease.signal.aborted);
          }}
          say(seen);
        }});""")
    assert said[0] == "Denied" and said[1] == (
        "permission denied for schema stockade: the role of this connection may not present; "
        "GRANT stockade_app TO it")
    assert said[2:] == ["Error", False, "Unknown", False, "Stale", True]


def test_an_id_of_the_programs_own_goes_with_each_write(rig, local, key):
    said = told(rig, local, f"""
        await shop.sql('CREATE TABLE IF NOT EXISTS edges(key)');
        await shop.lease('{key}', async (lease) => {{
          await lease.hset({{ a: 1, b: 2 }}, {{ id: 'hset' }});
          say([await lease.hdel('a', {{ id: 'hdel' }}), await lease.hdel('a', {{ id: 'hdel' }}),
            await lease.hset({{ a: 1, b: 2 }}, {{ id: 'hset' }}),
            await lease.hincrby('b', 1, {{ id: 'hincrby' }}),
            await lease.hincrby('b', 1, {{ id: 'hincrby' }}),
            await lease.hset('c', 1, {{ id: 'field' }}),
            await lease.hset('c', 1, {{ id: 'field' }}),
            await lease.delete({{ id: 'delete' }}), await lease.delete({{ id: 'delete' }}),
            await lease.put(1, {{ id: 'put' }}), await lease.put(1, {{ id: 'put' }}),
            await lease.take(1, {{ id: 'take' }}), await lease.take(1, {{ id: 'take' }}),
            (await lease.sql("INSERT INTO edges VALUES ('k')", [], {{ id: 'sql' }})).changes,
            (await lease.sql("INSERT INTO edges VALUES ('k')", [], {{ id: 'sql' }})).changes,
            (await shop.sql('SELECT * FROM edges')).rows.length]);
        }});""")
    assert said == [1, 1, 2, 3, 3, 1, 1, True, True, 1, 1, 0, 0, 1, 1, 1]


def test_a_daemon_for_tests_that_does_not_start_leaves_nothing(rig, local):
    said = told(rig, local, f"""
        const {{ startDaemon }} = await import('stockade/testing');
        const {{ mkdirSync, readdirSync }} = await import('node:fs');
        mkdirSync('folder');
        process.env.TMPDIR = `${{process.cwd()}}/folder`;
        const seen = [];
        for (const [options, program] of [[['--nonsense'], '{BUILD / "stockaded"}'],
          [[], '/bin/true'], [[], '/no/such/program']]) {{
          seen.push(await startDaemon(options, {{ program }}).catch((error) => error.message));
        }}
        say([seen, readdirSync('folder')]);""")
    assert [word in text for word, text in zip(["nonsense", "did not start", "ENOENT"], said[0])] \
        == [True, True, True], said
    assert said[1] == []
