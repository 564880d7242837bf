# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the system tests.

`rig` gives a test daemons of its own. `daemon` is a shared one, once with leases in its store
and once with leases on a real Redis, for tests that need no state but a fresh `key`; `local` and
`unfenced` are shared ones of one kind each; `client` is a client of `daemon`, and holds `key` where
a test takes `token`. Each test has a deadline, and a failed one shows the stderr of every process
that it could have used.
"""

import itertools
import os
import re
import shutil
import signal
import tempfile

import pytest

from harness import leftovers
from harness.certs import Certs
from harness.deployment import Deployment
from harness.library import Library
from harness.limits import BUILD, patience, sanitized
from harness.maintenance import Maintenance
from harness.postgres import Bouncer, Postgres
from harness.process import started
from harness.rig import Rig
from harness.shop import Shop
from harness.tool import Tool

pytest_plugins = ["harness.late"]

# Of a test that goes on and on: each of its waits has a limit of its own, and all of them together
# take ten times as long on a busy machine.
TEST_SECONDS_MAX = 600
SLOW_TEST_SECONDS_MAX = 1800

numbers = itertools.count(1)


def pytest_sessionstart(session):
    # Under nohup, or in the background, some are ignored, and a shell cannot trap what its parents
    # ignore.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if not (BUILD / "stockaded").exists() and not session.config.option.collectonly:
        pytest.exit(f"{BUILD / 'stockaded'} is missing: run make first", returncode=2)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """The suite `postgresql` has one server for all its workers."""
    if os.environ.get("STOCKADE_STORE_KIND") == "postgresql" and not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="stockade-suite-")
        config.rig = Rig(folder)
        config.rig.ends.append(lambda: shutil.rmtree(folder))
        os.environ["STOCKADE_TEST_POSTGRESQL"] = Postgres(
            config.rig, max_connections=300).socket_uri("{}")


def pytest_unconfigure(config):
    if hasattr(config, "rig"):
        config.rig.close()


def pytest_collection_modifyitems(items):
    """What shares a server stays on one worker, and begins first: last, the others would wait."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
    for item in items:
        if item.get_closest_marker("interpreted") and sanitized():
            item.add_marker(pytest.mark.skip(reason="interpreted: left out of sanitized builds"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    slow = item.get_closest_marker("slow")
    seconds = patience(SLOW_TEST_SECONDS_MAX if slow else TEST_SECONDS_MAX)

    def expire(*_):
        raise AssertionError(f"the test's deadline of {seconds} s has passed")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        rigs = [rig for value in getattr(item, "funcargs", {}).values()
                for rig in (value, getattr(value, "rig", None)) if isinstance(rig, Rig)]
        for process in [p for rig in rigs for p in rig.processes]:
            report.sections.append((f"{process.name} {process.pid}", process.describe()))


@pytest.fixture(autouse=True)
def shared_processes_live():
    """A test during which a process ends that a module or all share fails, and the others need not
    be asked. (This comes before any fixture of the test's own, and is over after those.)"""
    shared = [process for process in started if process.alive()]
    yield
    dead = [process for process in shared if process.died()]
    for process in dead:
        process.awaited = True  # told once
    assert not dead, "\n".join(f"a shared {p.name} died: {p.describe()}" for p in dead)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def shared(service, *args):
    @pytest.fixture(scope="session")
    def fixture(tmp_path_factory):
        deployment = Deployment(tmp_path_factory.mktemp(service), service, *args)
        yield deployment
        deployment.close()
    return fixture


shared_local = shared("local")
shared_redis = shared("redis")
shared_unfenced = shared("local", "--unfenced-writes", "allow")


@pytest.fixture(scope="session")
def library():
    return Library()


@pytest.fixture(params=["local", "redis"])
def daemon(request):
    with request.getfixturevalue("shared_" + request.param).lent() as daemon:
        yield daemon


@pytest.fixture
def local(shared_local):
    with shared_local.lent() as daemon:
        yield daemon


@pytest.fixture
def unfenced(shared_unfenced):
    with shared_unfenced.lent() as daemon:
        yield daemon


@pytest.fixture(params=["local", "redis"])
def lease(request, rig):
    """A lease URI for daemons of the test's own rig."""
    return "local:" if request.param == "local" else rig.redis().uri


@pytest.fixture(scope="module")
def module_rig(tmp_path_factory):
    """For what a module's tests share."""
    rig = Rig(tmp_path_factory.mktemp("module"))
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """A CA of the module's own."""
    return Certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def shop(module_rig):
    """A file with guarded tables."""
    return Shop(module_rig)


@pytest.fixture
def key(request):
    """A resource that no other test uses."""
    return re.sub(r"\W+", "-", request.node.name)[:80] + f":{next(numbers)}"


@pytest.fixture
def client(daemon):
    return daemon.client()


@pytest.fixture
def token(client, key):
    """Of a lease on `key`, granted to `client`."""
    return client.token(key)


@pytest.fixture
def holder(client, token):
    """The client that holds `key`, under `token`."""
    return client


@pytest.fixture
def redis(rig):
    return rig.redis()


@pytest.fixture
def relay(rig, redis):
    """In front of that Redis."""
    return rig.relay(redis.address)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """Shared: a test that ends or stops it, or changes its settings, starts one of its own."""
    rig = Rig(tmp_path_factory.mktemp("postgres"))
    yield Postgres(rig)
    rig.close()


@pytest.fixture
def database(rig, postgres):
    """A fresh one in that server; it goes when the test's daemons have ended, and has nothing then
    that `stockade check` would report, unless the test has `damaged` it."""
    def look():
        found = [] if database.damaged else leftovers.findings(database)
        assert not found, "left in the store:\n" + "\n".join(found)

    database = postgres.database()
    rig.ends += [database.drop, look]
    return database


@pytest.fixture
def bouncer(rig, postgres):
    """pgbouncer in transaction mode before that server."""
    return Bouncer(rig, postgres)


@pytest.fixture
def maintenance(rig):
    return Maintenance(rig)


@pytest.fixture
def tool(tmp_path):
    """The command line; what it leaves running is killed."""
    tool = Tool(tmp_path)
    yield tool
    for pid in tool.processes():
        os.kill(pid, signal.SIGKILL)
