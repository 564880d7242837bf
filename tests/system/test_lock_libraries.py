# SPDX-License-Identifier: Apache-2.0
"""Lock libraries as they are, on lock keys: those that can be installed run with a real Redis and
with a daemon, and see the same; of the others, what they say to Redis is said to a daemon, which
answers as Redis does (harness/conversations.py)."""

import asyncio
import contextlib
import hashlib
import os
import re
import subprocess
import sys

import pytest
import redis as redis_py
import redis.asyncio as redis_aio
from redis.exceptions import LockError, LockNotOwnedError

from harness import services
from harness.conversations import CONVERSATIONS, hold
from harness.deployment import Deployment
from harness.limits import HANG_SECONDS, REPO, patience, wait_until
from harness.programs import NODE_MODULES, SYSTEM, run_js
from harness.rig import Rig

PATTERNS = ("--lock-keys", "lock:*", "--lock-keys", "mutex:*")


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("locks"))
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def redis(rig):
    return rig.redis()


@pytest.fixture(scope="module", params=["local", "redis"])
def locks(request, rig, redis):
    """A daemon with lock keys."""
    lease = "local:" if request.param == "local" else redis.uri
    return rig.daemon(*PATTERNS, lease=lease, store=f"sqlite:{rig.folder / request.param}.db")


@pytest.fixture(scope="module", params=[
    pytest.param("Redis itself", marks=pytest.mark.interpreted), "local", "redis"])
def server(request, rig, redis):
    """A real Redis, and daemons."""
    if request.param == "Redis itself":
        return redis
    lease = "local:" if request.param == "local" else redis.uri
    return rig.daemon(*PATTERNS, lease=lease, store=f"sqlite:{rig.folder / request.param}2.db")


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=pytest.mark.xdist_group(name))
    for name in services.SERVICES if name not in ("local", "redis")])
def elsewhere(request, tmp_path_factory):
    """A daemon with lock keys on any other lease service."""
    deployment = Deployment(tmp_path_factory.mktemp(request.param), request.param, *PATTERNS)
    with deployment.lent() as daemon:
        yield daemon
    deployment.close()


@pytest.mark.parametrize("name", [
    "plain commands", "redis-py 4.3.4 to 8.1.0", "node-redlock 5.0.0-beta.2",
    "Redisson 3.50.0, RLock", "spring-integration 6.5.0"])
def test_lock_keys_are_the_same_on_every_lease_service(elsewhere, key, name):
    with contextlib.closing(elsewhere.client()) as client:
        hold(client, name, key)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_it_answers_a_librarys_scripts_as_redis_does(locks, key, name):
    with contextlib.closing(locks.client()) as client:
        hold(client, name, key)


def test_it_answers_plain_commands_as_a_real_redis_does(redis, key):
    with contextlib.closing(redis.client()) as client:
        hold(client, "plain commands", key)


def test_every_script_that_is_known_is_spoken():
    source = (REPO / "proxy/engine/lockkeys/scripts.c").read_text()
    known = set(re.findall(r'\{"([0-9a-f]{40})",[^}]*&\w+\}', source))
    assert len(known) > 50
    assert known == set(re.findall(r"[0-9a-f]{40}", " ".join(CONVERSATIONS.values()))) - {"0" * 40}


# redis-py.

@contextlib.contextmanager
def redis_client(server):
    with redis_py.Redis(*server.address, socket_timeout=patience(HANG_SECONDS)) as client:
        yield client


def test_redis_py_locks_extends_reacquires_and_releases(server, key):
    with redis_client(server) as r:
        lock, other = (r.lock(f"lock:{key}", timeout=60, blocking=False) for _ in range(2))
        assert not lock.locked() and not lock.owned()
        assert lock.acquire() and lock.locked() and lock.owned()
        assert not other.acquire() and not other.owned() and other.locked()
        assert lock.extend(30) and 80000 < r.pttl(lock.name) <= 90000
        assert lock.extend(30, replace_ttl=True) and 20000 < r.pttl(lock.name) <= 30000
        assert lock.reacquire() and 50000 < r.pttl(lock.name) <= 60000
        stolen = r.lock(lock.name, timeout=60)
        stolen.local.token = b"not-the-one"
        with pytest.raises(LockNotOwnedError):
            stolen.extend(1)
        with pytest.raises(LockNotOwnedError):
            stolen.reacquire()
        stolen.local.token = b"not-the-one"
        with pytest.raises(LockNotOwnedError):
            stolen.release()
        lock.release()
        with pytest.raises(LockError):
            lock.release()
        assert not lock.locked() and other.acquire()


def test_redis_py_waits_for_a_lock(server, key):
    with redis_client(server) as r:
        assert r.lock(f"lock:{key}", timeout=0.3).acquire()
        waits = {"timeout": 60, "sleep": 0.01}
        with r.lock(f"lock:{key}", blocking_timeout=patience(HANG_SECONDS), **waits) as second:
            assert second.owned()
            impatient = r.lock(f"lock:{key}", blocking_timeout=0.05, **waits)
            assert not impatient.acquire()
            with pytest.raises(LockError, match="within the time"):
                with impatient:
                    pass
        assert impatient.acquire()


def test_redis_py_is_told_that_its_lock_ran_out(server, key):
    with redis_client(server) as r:
        lock = r.lock(f"lock:{key}", timeout=0.05)
        assert lock.acquire()
        wait_until(lambda: not lock.locked(), "the lock runs out")
        assert not lock.owned()
        with pytest.raises(LockNotOwnedError):
            lock.extend(60)
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()
        with pytest.raises(LockNotOwnedError):
            lock.release()
        assert not r.exists(lock.name)


def test_redis_py_locks_with_asyncio(server, key):
    async def use():
        async with redis_aio.Redis(host=server.address[0], port=server.address[1]) as r:
            lock, other = (r.lock(f"lock:{key}", timeout=60) for _ in range(2))
            async with lock:
                assert await lock.locked() and await lock.owned()
                assert not await other.acquire(blocking=False)
                assert await lock.extend(30)
                assert await lock.reacquire()
            assert not await lock.locked()
            short = r.lock(f"lock:{key}", timeout=0.05)
            assert await short.acquire()
            waiting = r.lock(f"lock:{key}", timeout=60, sleep=0.01)
            assert await waiting.acquire()
            with pytest.raises(LockNotOwnedError):
                await short.release()
            await waiting.release()

    asyncio.run(use())


def test_redis_py_sells_with_one_line_added(locks, key):
    with redis_client(locks) as r:
        with r.lock(f"lock:{key}", timeout=60) as lock:
            assert r.execute_command("FENCED", lock.local.token, "SET", key, 10) == b"OK"
            stock = int(r.get(key))
            r.execute_command("FENCED", lock.local.token, "SET", key, stock - 1)
            value = lock.local.token
        assert r.get(key) == b"9"
        with pytest.raises(redis_py.ResponseError, match="^STALE "):
            r.execute_command("FENCED", value, "SET", key, 1)


# Node.js.

@pytest.mark.parametrize("library", ["redlock4", "redlock5", "sesamecare"])
def test_node_redlock_locks_one_and_several(server, redis, key, library):
    seen = run_js("locks.js", library, *server.address, f"lock:{key}", key)
    fences = server is not redis
    assert seen["wrote"] == ("written" if fences else "ERR")
    assert seen["late"] == ("STALE" if fences else "ERR")
    assert seen["second"] in ("LockError", "ExecutionError")
    assert 90000 < seen["left"] <= 120000
    assert seen["both"] == 2 and seen["none"] == 0
    assert seen["crossing"] == seen["second"]
    assert seen["again"] == seen["second"]
    assert library == "redlock4" or seen["using"] == 1


def lock_scripts(*program):
    """What tools/lock-scripts says of what a program sends."""
    return subprocess.run([sys.executable, str(REPO / "tools/lock-scripts"), *map(str, program)],
                          capture_output=True, text=True, timeout=patience(60), check=False,
                          env={**os.environ, "NODE_PATH": str(NODE_MODULES)})


@pytest.mark.interpreted
def test_each_script_that_an_installed_library_sends_has_its_row(key):
    said = lock_scripts("node", SYSTEM / "clients/locks.js", "sesamecare", "{host}", "{port}",
                        f"lock:{key}", key)
    assert said.returncode == 0, said.stdout + said.stderr
    rows = re.findall(r'^\{"[0-9a-f]{40}", "[0-9a-f]{40}",\n "sesamecare redlock", &(\w+)\}$',
                      said.stdout, re.M)
    assert sorted(rows) == ["db_extend_all", "db_give_each", "db_take_all"]
    assert re.search(r"^pttl lock:", said.stdout, re.M)  # and what it sends besides


@pytest.mark.interpreted
def test_a_script_without_a_row_is_told_with_its_text():
    text = "return redis.call('ping')  -- \"new\""
    said = lock_scripts("sh", "-c", 'redis-cli -u "$REDIS_URL" EVAL "$0" 0 >&2', text)
    sha1, plain = (hashlib.sha1(form.encode()).hexdigest()
                   for form in (text, "returnredis.call('ping')--'new'"))
    assert said.returncode == 1
    assert f'{{"{sha1}", "{plain}",\n "no row", &?}}\n\n{text}\n' in said.stdout
    assert said.stdout.endswith(f"scripts.c has no row for {sha1}\n")


def test_redis_semaphores_mutex_locks(server, redis, key):
    seen = run_js("locks.js", "semaphore", *server.address, f"mutex:{key}", key)
    fences = server is not redis
    assert seen["wrote"] == ("written" if fences else "ERR")
    assert seen["late"] == ("STALE" if fences else "ERR")
    assert seen["second"] == "TimeoutError" and seen["lived"] and seen["exists"] == 0
