# SPDX-License-Identifier: Apache-2.0
"""Clients that people have connect unmodified and run a lease cycle."""

import asyncio
import os
import pty
import re
import subprocess
import time

import pytest
import redis as redis_py
import redis.asyncio as redis_aio

from harness.limits import HANG_SECONDS, patience
from harness.programs import read_until, run, run_node


@pytest.mark.parametrize("proto", ["-2", "-3"])
def test_redis_cli_runs_a_lease_cycle(daemon, key, proto):
    def cli(*words):
        return run("redis-cli", proto, "-h", daemon.address[0], "-p", daemon.address[1],
                   *words).strip()

    token, ttl = cli("ACQUIRE", key, 60000).split()
    assert 50000 < int(ttl) <= 60000
    assert cli("ACQUIRE", key, 60000) == ""
    assert cli("FENCED", token, "SET", key, 5) == "OK"
    assert cli("FENCED", token, "DECRBY", key, 1, "MIN", 0) == "4"
    assert cli("LEASE", key).split()[:4] == ["state", "held", "token", token]
    assert 20000 < int(cli("RENEW", key, token, 30000)) <= 30000
    assert cli("RELEASE", key, token) == "0"
    assert cli("FENCED", token, "SET", key, 9).startswith("STALE ")
    assert cli("GET", key) == "4"
    assert "redis_version" in cli("INFO", "server") or "stockade" in cli("INFO", "server")


@pytest.mark.parametrize("proto", ["-2", "-3"])
def test_redis_cli_at_a_terminal_asks_for_docs_and_goes_on(daemon, key, proto):
    master, slave = pty.openpty()
    cli = subprocess.Popen(
        ["redis-cli", proto, "-h", daemon.address[0], "-p", str(daemon.address[1])],
        stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "dumb",
                                                      "HOME": "/nonexistent"})
    os.close(slave)
    seen = ""
    try:
        for words, answer in (
                (f"ACQUIRE {key} 60000", r"1\) \(integer\) \d+\s+2\) \(integer\) \d+"),
                (f"LEASE {key}", r"held"), ("HELP ACQUIRE", r"(?i)lease"),
                (f"SET {key} v", r"\(error\) NOTOKEN "), ("PING", r"PONG")):
            os.write(master, words.encode() + b"\n")
            seen = read_until(master, answer)
        os.write(master, b"quit\n")
        assert cli.wait(patience(HANG_SECONDS)) == 0
    finally:
        cli.kill()
        cli.wait()
        os.close(master)
    assert "PONG" in seen


def benchmark(daemon, *words):
    return run("redis-benchmark", "-h", daemon.address[0], "-p", daemon.address[1], *words,
               timeout=60)


def assert_ran(output):
    assert "rror" not in output, output
    rates = re.findall(r"([\d.]+) requests per second", output)
    assert rates and all(float(rate) > 0 for rate in rates), output


def test_redis_benchmark_writes_fenced_with_50_clients_and_pipeline_16(daemon, client, token, key):
    assert_ran(benchmark(daemon, "-c", 50, "-P", 16, "-n", 20000, "-r", 100000, "-q",
                         "FENCED", token, "SET", key, "__rand_int__"))
    assert re.fullmatch(rb"\d{12}", client("GET", key))
    assert_ran(benchmark(daemon, "-c", 50, "-n", 5000, "-r", 100000, "-q",
                         "FENCED", token, "SET", key, "__rand_int__"))


def test_redis_benchmark_runs_its_own_tests_where_bare_writes_are_allowed(unfenced):
    assert_ran(benchmark(unfenced, "-c", 50, "-P", 16, "-n", 5000, "-r", 1000, "-q",
                         "-t", "ping,set,get,incr,hset"))


@pytest.fixture
def redis_client(daemon):
    client = redis_py.Redis(host=daemon.address[0], port=daemon.address[1],
                            socket_timeout=patience(HANG_SECONDS))
    yield client
    client.close()


def test_redis_py_runs_a_lease_cycle(redis_client, key):
    r = redis_client
    token, ttl = r.execute_command("ACQUIRE", key, 60000, "OWNER", "python")
    assert r.execute_command("ACQUIRE", key, 60000, "OWNER", "other") is None
    assert r.execute_command("FENCED", token, "SET", key, 10) in (b"OK", True)
    assert r.execute_command("FENCED", token, "DECRBY", key, 1, "MIN", 0) == 9
    assert r.get(key) == b"9"
    with pytest.raises(redis_py.ResponseError, match="^NOTOKEN "):
        r.set(key, 5)
    lease = r.execute_command("LEASE", key)
    lease = dict(zip(lease[::2], lease[1::2]))
    assert lease[b"owner"] == b"python" and lease[b"token"] == token
    assert 0 < r.execute_command("RENEW", key, token, 5000) <= 5000
    assert r.execute_command("RELEASE", key, token) == 0
    with pytest.raises(redis_py.ResponseError, match="^STALE "):
        r.execute_command("FENCED", token, "SET", key, 11)
    assert 0 < ttl <= 60000


def test_redis_py_reads_hashes_scans_and_pipelines(redis_client, key):
    r = redis_client
    token, _ = r.execute_command("ACQUIRE", key, 60000)
    assert r.execute_command("FENCED", token, "HSET", key, "a", 1, "b", 2) == 2
    assert r.hgetall(key) == {b"a": b"1", b"b": b"2"}
    assert dict(r.hscan_iter(key)) == r.hgetall(key)
    assert key.encode() in set(r.scan_iter(match=key + "*"))
    assert r.hmget(key, "a", "none") == [b"1", None]
    pipe = r.pipeline(transaction=False)
    for _ in range(100):
        pipe.execute_command("FENCED", token, "HINCRBY", key, "a", 1)
    assert pipe.execute() == list(range(2, 102))
    assert r.ping() and r.client_id() > 0 and r.dbsize() >= 1
    assert r.info()["loading"] == 0
    assert r.client_setname("py") and r.client_getname() == "py"
    assert abs(r.time()[0] - time.time()) < 5


def test_redis_py_connects_over_a_unix_socket_with_a_password(rig):
    password = rig.folder / "password"
    password.write_text("secret")
    path = rig.folder / "s.sock"
    rig.daemon("--password-file", password, listen=(f"unix:{path}",))
    with redis_py.Redis(unix_socket_path=str(path), password="secret") as r:
        assert r.ping()
    with redis_py.Redis(unix_socket_path=str(path), password="wrong") as r:
        with pytest.raises(redis_py.RedisError, match="WRONGPASS"):
            r.ping()


@pytest.mark.parametrize("library", ["node_redis", "ioredis"])
def test_node_clients_run_a_lease_cycle(daemon, key, library):
    seen = run_node(library, "cycle", daemon, key)
    token = seen["grant"][0]
    assert seen["grant"][1] <= 60000 and seen["others"] is None
    assert seen["wrote"] == "OK" and seen["sold"] == 9 and seen["read"] == "9"
    assert seen["bare"] == "NOTOKEN" and seen["stale"] == "STALE"
    assert seen["released"] == 0 and seen["hash"] == {"a": "1", "b": "2"}
    assert seen["lease"]["state"] == "held" and seen["lease"]["token"] == token
    assert seen["piped"] == list(range(1, 51))


# Callers that wait for each other, and hashes that are listed.

async def sell_by_tasks(address, key):
    """README's first lines, in tasks that share a client; its pool lends each a connection."""
    async def sell():
        for _ in range(5):
            token, _ = await client.execute_command("ACQUIRE", key, 30000, "WAIT", 30000)
            await client.execute_command("FENCED", token, "INCR", key)
            await client.execute_command("RELEASE", key, token)
    async with redis_aio.Redis(host=address[0], port=address[1]) as client:
        await asyncio.gather(*(sell() for _ in range(6)))


def test_tasks_that_share_a_client_of_redis_py_are_told_of_no_deadlock(daemon, client, key):
    asyncio.run(sell_by_tasks(daemon.address, key))
    assert client("GET", key) == b"30"


@pytest.mark.parametrize("library", ["node_redis", "ioredis"])
def test_callers_of_node_wait_for_each_other_and_are_told_where_they_share_a_connection(
        daemon, key, library):
    """Where they do, what would end the wait stands behind it: that is a deadlock."""
    seen = run_node(library, "share", daemon, key)
    assert seen["each"] == 6 * ["no error: undefined"]
    assert set(seen["one"]) == {"no error: undefined", "DEADLOCK"}
    assert int(seen["total"]) == 6 + seen["one"].count("no error: undefined")


async def list_by_tasks(address, key):
    fields, most, cursor = [], 0, None
    async with redis_aio.Redis(host=address[0], port=address[1], decode_responses=True) as client:
        while cursor != 0:
            cursor, page = await client.hscan(key, cursor or 0, count=50)
            fields += page
            most = max(most, len(page))
    return {"fields": fields, "most": most}


@pytest.mark.parametrize("count", [400, pytest.param(20000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("library", ["redis.asyncio", "node_redis", "ioredis"])
def test_clients_list_a_hash_whose_fields_begin_alike(daemon, client, key, library, count):
    token = client.token(key)
    names = [f"order:2026-11-28T12:00:{i:06}" for i in range(count)]
    for at in range(0, count, 500):
        client.fenced(token, "HSET", key, *(word for name in names[at:at + 500]
                                            for word in (name, "x")))
    seen = (asyncio.run(list_by_tasks(daemon.address, key)) if library == "redis.asyncio" else
            run_node(library, "list", daemon, key))
    assert sorted(seen["fields"]) == names and seen["most"] <= 50
