# SPDX-License-Identifier: Apache-2.0
"""The log has one line for each refused command and each REVOKE, but not more than it should."""

import re

from harness.limits import wait_until
from harness.resp import Client


def lines(daemon, word):
    return [line for line in daemon.stderr().splitlines() if f" info {word}" in line]


def await_line(daemon, pattern):
    return wait_until(lambda: re.search(pattern, daemon.stderr(), re.M), pattern)


def test_each_refused_write_is_one_line_with_its_token_and_client(rig):
    daemon = rig.daemon()
    client = daemon.client(name="till-3")
    host, port = client.sock.getsockname()
    here = rf'from {host}:{port} "till-3"$'
    old = client.token("sku:1")
    client("REVOKE", "sku:1")
    token = client.token("sku:1")
    client.ask("FENCED", old, "SET", "sku:1", "v")
    await_line(daemon, rf'refused, STALE: SET of "sku:1" under token {old}, the newest is {token}, '
               r'\d+ ms after its lease ended; ' + here)
    client.ask("FENCED", 99, "HSET", "sku:1", "f", "v")
    await_line(daemon, rf'refused, UNKNOWN: HSET of "sku:1" under token 99, the newest is {token}; '
               + here)
    client.ask("DEL", "sku:1")
    await_line(daemon, r'refused, NOTOKEN: DEL of "sku:1"; ' + here)
    client.ask("FENCEDALL", 1, "sku:1", token, "MSET", "sku:1", "v", "sku:2", "v")
    await_line(daemon, r'refused, NOTOKEN: MSET of "sku:2"; ' + here)
    client("MULTI")
    client.ask("FENCED", old, "SET", "sku:1", "v")
    client.ask("EXEC")
    await_line(daemon, rf'refused, STALE: EXEC of "sku:1" under token {old}, the newest is '
               rf'{token}, \d+ ms after its lease ended; ' + here)
    client("MULTI")
    client.ask("SET", "sku:9", "v")
    client("DISCARD")
    await_line(daemon, r'refused, NOTOKEN: SET of "sku:9"; ' + here)
    assert len(lines(daemon, "refused")) == 6
    assert client("FENCED", token, "SET", "sku:1", "v") == "OK"
    assert len(lines(daemon, "refused")) == 6, "what is accepted is not told"


def test_a_guarded_row_that_was_touched_is_a_line_too(rig):
    daemon = rig.daemon()
    client = daemon.client()
    client("SQL", "CREATE TABLE t(k TEXT PRIMARY KEY, n)")
    client("GUARD", "CREATE", "t", "k", "t:")
    client.ask("FENCEDALL", 1, "r", client.token("r"), "SQL", "INSERT INTO t VALUES('a', 1)")
    await_line(daemon, r"refused, GUARDED: SQL, \"GUARDED nobody holds 't:a'.*from 127")


def test_each_revoke_is_one_line(rig):
    daemon = rig.daemon()
    client = daemon.client(name="boss")
    token = client.token("r")
    client("REVOKE", "r"), client("REVOKE", "r"), client("REVOKE", "never")
    await_line(daemon, rf'REVOKE of "r": token {token} is retired; from 127.* "boss"$')
    await_line(daemon, r'REVOKE of "r": nobody held it; from 127.* "boss"$')
    await_line(daemon, r'REVOKE of "never": nobody held it; from')
    assert len(lines(daemon, "REVOKE")) == 3


def test_names_are_escaped_and_cut(rig):
    daemon = rig.daemon()
    client = daemon.client()
    client.ask("SET", b"a\r\n2026-01-01 error forged \x00\xff\"", "v")
    await_line(daemon, r'of "a\\x0d\\x0a2026-01-01 error forged \\x00\\xff\\x22"; from')
    client.ask("SET", b"\x01" * 512, "v")
    line = await_line(daemon, r'of "(\\x01)+\.\.\."; from.*$')[0]
    assert len(line) < 300
    assert " error " not in re.sub(r'".*?"', "", daemon.stderr())


def test_a_flood_of_refusals_is_told_in_few_lines_and_a_count(rig):
    daemon = rig.daemon()
    client = daemon.client()
    count = 3000
    client.pipeline([("SET", f"k{i}", "v") for i in range(count)])
    client("REVOKE", "r")
    await_line(daemon, r"REVOKE of")  # which a flood of the other kind does not drown

    def told():
        left_out = sum(map(int, re.findall(r"(\d+) more commands were refused", daemon.stderr())))
        return left_out + len(lines(daemon, "refused")) == count

    wait_until(told, "each is told or counted")
    assert len(lines(daemon, "refused")) < 400, "20 in a second"


def test_what_was_left_out_is_told_at_the_end_too(rig):
    daemon = rig.daemon()
    Client(daemon.address).pipeline([("SET", "k", "v")] * 100)
    daemon.close_clients()
    daemon.stop()
    left_out = sum(map(int, re.findall(r"(\d+) more commands were refused", daemon.stderr())))
    assert left_out + len(lines(daemon, "refused")) == 100


def test_at_level_warn_nothing_of_it_is_told(rig):
    daemon = rig.daemon("--log-level", "warn")
    client = daemon.client()
    client.ask("SET", "k", "v"), client("REVOKE", "k")
    assert daemon.log() == ""
