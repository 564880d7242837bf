# SPDX-License-Identifier: Apache-2.0
"""One table for all packages: what a program is told of a call under way whose connection ends at
some moment, which is cancelled, whose reply does not come, or during which its lease is revoked.
And then nothing is left: no lease, no waiter, no connection; and nothing was applied twice.

A package takes part by a program of its language (harness/callers.py); a call, or something that
befalls calls, by a row here."""

import itertools
from urllib.parse import quote

import pytest

from harness.callers import PACKAGES, Caller
from harness.limits import Stopwatch, patience, wait_until
from harness.moments import Moments
from harness.rig import Rig

pytestmark = pytest.mark.interpreted

TTL_MS = 60000  # its poll, a third of that, is later than all that is awaited here
GRANT = b"*2\r\n:"  # two numbers
ERRORS = {"Unsure", "Unreachable", "Cancelled", "Stale", "Held"}

# What a program calls, and the command whose reply it waits for.
CALLS = {
    "acquire": "ACQUIRE", "wait": "ACQUIRE", "acquire_all": "ACQUIREALL", "wait_all": "ACQUIREALL",
    "renew": "RENEW", "release": "RELEASE", "leave": "RELEASE", "put": "FENCEDALL", "multi": "EXEC",
    "sql": "FENCEDALL", "read": "GET", "revoke": "REVOKE", "bare": "INCR"}
WAITS = {"wait", "wait_all"}
ACQUIRES = {"acquire", "acquire_all"} | WAITS
# Its first word does not say that it changes something.
SALE = "WITH sale(key) AS (VALUES('{}')) INSERT INTO sales SELECT key FROM sale"
WRITES = {"put", "multi", "sql"}
ONCE = {"revoke", "bare"}  # carry no ID, and are not sent twice
# What a program of each language can cancel.
CANCELS = {"threads": CALLS, "asyncio": CALLS, "node": ACQUIRES, "java": CALLS, "library": CALLS}
LETS_GO_FIRST = {"java", "node"}  # what was asked is answered first
MAY_SAY = {"release": {"Unsure", "Unreachable"}, "renew": {"Unsure", "Unreachable"},
           "leave": {"done"}, "wait": {"Held", "Unreachable"}, "wait_all": {"Held", "Unreachable"}}
QUEUES = {"node", "java"}
numbers = itertools.count(1)


class Scene:
    """A program, its shop behind a relay of its own, and somebody who asks the daemon directly."""

    def __init__(self, program, daemon, relay):
        self.program, self.relay = program, relay
        self.other = daemon.client()
        self.key = f"{program.package}-{next(numbers)}"
        self.shop, self.lease = f"shop-{self.key}", f"lease-{self.key}"
        self.held = None  # the other's token
        self.closed = False
        program("open", self.shop, relay.uri)

    def acquire(self, ttl_ms=TTL_MS):
        return self.program("acquire", self.shop, self.lease, self.key, ttl_ms, 0)

    def prepare(self, call):
        """What has to be there before this call."""
        if call in {"renew", "release", "leave"} | WRITES:
            self.acquire()
        elif call in WAITS:
            self.held = self.other.token(self.key)
        elif call == "revoke":
            self.other.token(self.key)

    def begin(self, call, wait_ms=20000):
        if call in ACQUIRES:
            both = f",{self.key}-2" if call in {"acquire_all", "wait_all"} else ""
            words = [self.shop, self.lease, self.key + both, TTL_MS,
                     wait_ms if call in WAITS else 0]
        elif call in WRITES:
            words = [self.shop, self.lease, self.key]
            words += [quote(SALE.format(self.key))] if call == "sql" else []
        elif call in {"read", "revoke", "bare"}:
            words = [self.shop, self.key]
        else:
            words = [self.lease] + ([TTL_MS + 1] if call == "renew" else [])
        self.program.begin({"wait": "acquire", "wait_all": "acquire_all"}.get(call, call), *words)

    def stop(self, kind, call):
        more = [self.key] if call != "multi" else []
        more += [TTL_MS + 1] if call == "renew" else []
        begins = GRANT if call in ACQUIRES and kind == "reply" else b""
        return self.relay.stop(kind, CALLS[call], *more, begins=begins)

    def hand_over(self):
        if self.held:
            self.other.await_waiters(self.key, 1)
            self.other("RELEASE", self.key, self.held)
            self.held = None

    def applied(self, call):
        """How often."""
        if call in ACQUIRES | {"renew", "read"}:
            return 1
        if call in {"release", "leave", "revoke"}:
            return int(self.is_free())
        if call == "sql":
            return len(self.other("SQL", f"SELECT 1 FROM sales WHERE key = '{self.key}'")[3])
        return int(self.other("GET", self.key) or 0)

    def is_free(self):
        return (self.other("LEASE", self.key) or [b"state", b"free"])[1] == b"free"

    def has_no_waiters(self):
        return not self.other("WAITERS", self.key)

    def close(self):
        self.closed = True
        self.program("close", self.shop)

    def await_news(self, what):
        """Until it is on its way to the program, before the next reply on that connection."""
        said = [self.key.encode(), what]
        wait_until(lambda: any(all(word in b" ".join(each) for word in said)
                               for each in self.relay.news), f"{what} is told")

    def finish(self, call, said="done"):
        """The program lets go of what it has, and nothing is left."""
        if call in WRITES | {"renew"} or call in ACQUIRES and said == "done":
            self.program("leave", self.lease)
        elif call == "revoke":
            self.other("REVOKE", self.key)
        elif self.program.package == "library" and call in ACQUIRES:  # ends with its TTL
            for each in self.other("LEASES", "MATCH", f"{self.key}*"):
                self.other("REVOKE", each)
        wait_until(lambda: not self.other("LEASES", "MATCH", f"{self.key}*"), "no lease is held")
        wait_until(self.has_no_waiters, "nobody waits")
        self.close()
        self.relay.await_end()


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("replies"))
    rig.shared = rig.daemon("--unfenced-writes", "allow")
    rig.shared.client()("SQL", "CREATE TABLE sales(key)")
    rig.programs = {}
    yield rig
    rig.close()


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.xdist_group(f"package-{each}"))
                        for each in PACKAGES])
def scene(request, stage):
    package = request.param
    if package not in stage.programs:
        stage.programs[package] = Caller(stage, package)
    relay = Moments(stage.shared.address)
    scene = Scene(stage.programs[package], stage.shared, relay)
    yield scene
    if stage.programs[package].busy:  # with what a test gave up
        stage.programs.pop(package).kill()
    elif not scene.closed:
        scene.close()
    relay.close()


def told(scene):
    """What the program was told: the name of an error, or that it is done."""
    said = scene.program.end()
    return said if said in ERRORS else "done"


# A connection that ends.

@pytest.mark.parametrize("call", CALLS)
def test_an_end_while_idle_is_no_news(scene, call):
    """As all have after the daemon's restart."""
    scene.prepare(call)
    scene.relay.end_all()
    scene.begin(call)
    scene.hand_over()
    assert told(scene) == "done" and scene.applied(call) == 1
    scene.finish(call)


@pytest.mark.parametrize("where", ["before", "within", "behind"])
@pytest.mark.parametrize("call", CALLS)
def test_a_lost_request_is_sent_again_or_unsure(
        scene, call, where):
    scene.prepare(call)
    moment = scene.stop("request", call)
    scene.begin(call)
    moment.wait().cut(where)
    if where != "behind" or call not in ONCE:
        scene.hand_over()
    sure, said = call not in ONCE, told(scene)
    if call in ACQUIRES and where == "behind":  # the first grant may be on its way back
        assert said in {"done", "Held"}
    else:
        assert said == ("done" if sure else "Unsure")
    assert sure <= scene.applied(call) <= (sure or where == "behind")
    scene.finish(call, said)


@pytest.mark.parametrize("where", ["before", "within", "behind"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_reply_is_lost_counts_once(scene, call, where):
    scene.prepare(call)
    moment = scene.stop("reply", call)
    scene.begin(call)
    scene.hand_over()
    moment.wait().cut(where)
    assert told(scene) == ("Unsure" if call in ONCE and where != "behind" else "done")
    assert scene.applied(call) == 1
    scene.finish(call)


def test_who_waits_while_connections_end_is_served(scene):
    scene.prepare("wait")
    scene.begin("wait")
    scene.other.await_waiters(scene.key, 1)
    scene.relay.end_all()
    scene.other.await_waiters(scene.key, 1)
    scene.hand_over()
    assert told(scene) == "done"
    scene.finish("wait")


# A reply that does not come.

@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_a_reply_says_so(scene, call):
    scene.prepare(call)
    scene.program("timeout", scene.shop, 1000)
    moment = scene.stop("reply", call)
    scene.begin(call, wait_ms=2000)
    scene.hand_over()
    said = told(scene)
    assert said in MAY_SAY.get(
        call, {"Unsure"} if call in WRITES | ONCE else {"Unreachable"})
    assert scene.applied(call) == 1
    scene.program("timeout", scene.shop, 20000)
    moment.wait().go()
    if call in WRITES:
        assert scene.program("receipt", scene.shop, scene.lease, scene.key) == "yes"
    scene.finish(call, said)


def test_sql_under_a_lease_carries_an_id_whatever_it_says(scene):
    """Only the store knows what it does: SELECT f() changes rows on PostgreSQL."""
    scene.acquire()
    for statement in (SALE, "SELECT '{}'", "VALUES('{}')", "EXPLAIN SELECT '{}'"):
        for call in ("sql", "multi_sql"):
            scene.program(call, scene.shop, scene.lease, scene.key,
                          quote(statement.format(scene.key)))
    sent = scene.relay.requests("FENCEDALL", "SQL", scene.key)
    assert len(sent) == 8 and all(b"ID" in words for words in sent), sent
    scene.program("leave", scene.lease)


# A program that no longer wants it.

@pytest.mark.parametrize("call", [*sorted(ACQUIRES), "put", "release"])
def test_a_cancelled_call_leaves_nothing(scene, call):
    if call not in CANCELS[scene.program.package]:
        return
    scene.prepare(call)
    moment = scene.stop("reply", call)
    scene.begin(call)
    scene.hand_over()
    moment.wait()
    scene.program.cancel()
    if scene.program.package in LETS_GO_FIRST:
        moment.go()
    said = told(scene)
    assert said in {"Cancelled", "done", "Unsure"} and scene.applied(call) == 1
    if moment.line.stopped:
        moment.go()
    scene.finish(call, said)


def test_a_wait_that_is_cancelled_leaves_the_line(scene):
    scene.prepare("wait")
    scene.begin("wait")
    scene.other.await_waiters(scene.key, 1)
    scene.program.cancel()
    assert told(scene) == "Cancelled"
    scene.other.await_waiters(scene.key, 0)
    scene.other("RELEASE", scene.key, scene.held)
    scene.finish("wait", "Cancelled")


# A lease that is lost, or passed on, meanwhile.

@pytest.mark.parametrize("call", sorted(ACQUIRES | WRITES | {"renew"}))
def test_a_lease_revoked_before_the_reply_is_lost(scene, call):
    scene.prepare(call)
    moment = scene.stop("reply", call)
    scene.begin(call)
    scene.hand_over()
    moment.wait()
    scene.other("REVOKE", scene.key)
    moment.go()
    assert told(scene) == "done" and scene.applied(call) == 1
    assert scene.program("lost", scene.lease, timeout=5) == "yes"
    scene.finish(call)


def test_a_lease_renewed_before_its_keeper_is_lost(scene):
    """The keeper asks for news with its first renewal: the program's own does not put it off."""
    scene.relay.refuse()  # the keeper's connection
    scene.acquire()
    scene.program("renew", scene.lease, TTL_MS + 1)
    scene.relay.accept()
    scene.other("REVOKE", scene.key)
    assert scene.program("lost", scene.lease, timeout=5) == "yes"
    scene.finish("acquire")


@pytest.mark.parametrize("overtaken", [True, False])
def test_a_lease_revoked_while_renewed_is_lost(scene, overtaken):
    moment = scene.relay.stop("reply", "RENEW", scene.key, overtaken=overtaken)
    scene.acquire()
    moment.wait()
    scene.other("REVOKE", scene.key)
    if overtaken:
        scene.await_news(b"revoked")
        scene.program("read", scene.shop, scene.key)
    moment.go()
    assert scene.program("lost", scene.lease, timeout=5) == "yes"
    scene.finish("acquire")


@pytest.mark.parametrize("during", [True, False])
def test_a_lease_is_kept_for_its_new_ttl(scene, during):
    moment = scene.relay.stop("reply", "RENEW", scene.key)
    scene.acquire(3000 if during else TTL_MS)
    moment.wait()
    if not during:
        moment.go()
    scene.program("renew", scene.lease, 4000)
    if during:
        moment.go()
    renewed = len(scene.relay.requests("RENEW", scene.key, 4000))
    wait_until(lambda: len(scene.relay.requests("RENEW", scene.key, 4000)) > renewed,
               "it is renewed again", 10)
    scene.finish("acquire")


@pytest.mark.parametrize("nth", [1, 2])
def test_a_turn_that_is_told_before_its_place_is_taken(scene, nth):
    if scene.program.package not in QUEUES:
        return
    scene.prepare("wait")
    moments = [scene.relay.stop("reply", "ACQUIRE", scene.key, "QUEUE", overtaken=True)
               for _ in range(nth)]
    scene.begin("wait")
    for moment in moments[:-1]:
        moment.wait().go()
    moments[-1].wait()
    scene.hand_over()
    scene.await_news(b"turn")
    with Stopwatch() as watch:
        moments[-1].go()
        assert told(scene) == "done"
    assert watch.seconds < patience(2), "long before it would have asked by itself"
    scene.finish("wait")
