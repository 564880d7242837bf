# SPDX-License-Identifier: Apache-2.0
"""Election, the same for all packages: one leads, the next one follows when it steps down, dies or
is cut off; a leader is told that it leads no more before anybody else may lead, and what it writes
too late changes nothing; who stands waits through every outage, and who gives up leaves nothing.

A package takes part by a program of its language (harness/callers.py)."""

import asyncio
import contextlib
import itertools
import signal
import threading

import pytest

from harness.callers import Caller
from harness.library import fails
from harness.limits import LONG_TTL_MS, Late, Stopwatch, patience, wait_until, within
from harness.package import aio_connect, connect, stockade
from harness.resp import ReplyError
from harness.rig import Rig

pytestmark = pytest.mark.interpreted

PACKAGES = ["threads", "asyncio", "node", "java", "library"]
FOR_EVER = -1
numbers = itertools.count(1)


class Candidate:
    """A program that stands for one name, at one daemon or relay."""

    def __init__(self, program, name, where):
        self.program, self.name = program, name
        self.shop, self.term = f"shop-{next(numbers)}", f"term-{next(numbers)}"
        self.leads = False
        program("open", self.shop, where.uri)

    def stand(self, ttl_ms=LONG_TTL_MS, wait_ms=FOR_EVER):
        self.program.begin("lead", self.shop, self.term, self.name, int(ttl_ms), int(wait_ms))

    def led(self):
        """The token of its term, or the name of an error."""
        said = self.program.end(60)
        self.leads = isinstance(said, int)
        return said

    def lead(self, *args):
        self.stand(*args)
        return self.led()

    def put(self):
        return self.program("put", self.shop, self.term, self.name)

    def lost_at(self):
        return self.program("lost_at", self.term, timeout=60)

    def step_down(self):
        self.leads = False
        return self.program("leave", self.term)

    def close(self):
        if self.program.busy or not self.program.alive():
            return
        if self.leads:
            self.step_down()
        self.program("close", self.shop)


class Stage:
    """Programs, which serve one test after the other."""

    def __init__(self, rig):
        self.rig, self.idle = rig, {package: [] for package in PACKAGES}
        self.daemon = rig.daemon(lease=rig.redis().uri)

    def program(self, package):
        return self.idle[package].pop() if self.idle[package] else Caller(self.rig, package)

    def give(self, program):
        if program.busy and program.alive():
            program.kill()
        if program.alive():
            self.idle[program.package].append(program)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("election"))
    yield Stage(rig)
    rig.close()


class Scene:
    """An election, and somebody who asks the daemon."""

    def __init__(self, stage, package, rig):
        self.stage, self.package, self.rig = stage, package, rig
        self.name = f"leader-{package}-{next(numbers)}"
        self.daemon, self.candidates = stage.daemon, []
        self.other = self.daemon.client()

    def use(self, daemon):
        """From here on."""
        self.daemon, self.other = daemon, daemon.client()

    def candidate(self, where=None):
        self.candidates.append(Candidate(self.stage.program(self.package), self.name,
                                         where or self.daemon))
        return self.candidates[-1]

    def relay(self):
        return self.rig.relay(self.daemon.address)

    def lease(self):
        return self.other.lease(self.name)

    def await_waiters(self, count=1):
        self.other.await_waiters(self.name, count)

    def value(self):
        return int(self.other("GET", self.name) or 0)

    def granted_ms(self, token):
        for row in self.other("HISTORY", self.name):
            known = dict(zip(row[::2], row[1::2]))
            if known[b"token"] == token:
                return known[b"granted_ms"]
        raise AssertionError(f"nothing is known of token {token}")

    def finish(self):
        """Nothing is left."""
        for each in self.candidates:
            each.close()
            self.stage.give(each.program)
        wait_until(lambda: not self.other("LEASES", "MATCH", self.name), "no lease is held")
        wait_until(lambda: not self.other("WAITERS", self.name), "nobody waits")


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.xdist_group(f"election-{each}"))
                        for each in PACKAGES])
def scene(request, stage, rig):
    scene = Scene(stage, request.param, rig)
    yield scene
    scene.finish()


def stale(call, *words):
    with pytest.raises(ReplyError) as refused:
        call(*words)
    return refused.value.code == "STALE"


# Terms.

def test_one_leads_and_the_next_follows_when_it_steps_down(scene):
    first, second = scene.candidate(), scene.candidate()
    token = first.lead()
    assert first.put() == 1
    second.stand()
    scene.await_waiters()
    first.step_down()
    assert second.led() > token and second.put() == 2
    first.stand()
    scene.await_waiters()
    second.step_down()
    assert first.led() == token + 2, "it stands again, for a term of its own"


def test_a_leader_that_is_killed_is_followed_after_its_ttl(scene):
    first, second = scene.candidate(), scene.candidate()
    token = first.lead(patience(1) * 1000)
    second.stand()
    scene.await_waiters()
    first.program.kill()
    assert second.led() > token
    assert stale(scene.other, "FENCED", token, "INCR", scene.name) and scene.value() == 0


def test_a_leader_that_was_stopped_past_its_ttl_is_told_and_changes_nothing(scene):
    first, second = scene.candidate(), scene.candidate()
    first.lead(patience(1) * 1000)
    second.stand()
    scene.await_waiters()
    with first.program.frozen():
        token = second.led()
        assert second.put() == 1
    assert first.put() == "Stale" and scene.value() == 1
    assert first.lost_at() > scene.granted_ms(token), "it stood still until then"
    first.step_down()
    first.stand()
    scene.await_waiters()
    second.step_down()
    assert first.led() > token and first.put() == 2


def test_who_is_cut_off_is_told_before_anybody_else_may_lead(scene):
    """With a tenth of the TTL to go, of which this machine may take most."""
    relay, ttl_ms = scene.relay(), int(patience(5) * 1000)
    first, second = scene.candidate(relay), scene.candidate()
    first.lead(ttl_ms)
    second.stand()
    scene.await_waiters()
    for direction in ("up", "down"):
        relay.stall(direction)
    told = first.lost_at()
    with Stopwatch() as watch:
        token = second.led()
    early_ms = scene.granted_ms(token) - told
    if early_ms < ttl_ms / 50:
        raise Late(f"told {early_ms} ms before", watch.begun, ttl_ms / 12000)
    relay.cut()
    for direction in ("up", "down"):
        relay.let(direction)


def test_a_leader_whose_term_is_revoked_is_told_at_once(scene):
    first = scene.candidate()
    token = first.lead()
    scene.other("REVOKE", scene.name)
    first.lost_at()
    assert first.put() == "Stale"
    first.step_down()
    assert first.lead() == token + 1


# Outages, while it stands.

def test_connections_that_are_cut_while_it_stands_are_made_again(scene):
    relay = scene.relay()
    first, second = scene.candidate(), scene.candidate(relay)
    token = first.lead()
    second.stand()
    for _ in range(3):
        scene.await_waiters()
        relay.cut()
    scene.await_waiters()
    first.step_down()
    assert second.led() > token


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_stands_through_restarts_of_the_daemon(scene, how):
    scene.use(scene.rig.daemon())
    listen = ("{}:{}".format(*scene.daemon.address),)
    first, second = scene.candidate(), scene.candidate()
    token = first.lead()
    second.stand()
    scene.await_waiters()
    for _ in range(2):
        scene.daemon.close_clients()
        scene.daemon.kill() if how == signal.SIGKILL else scene.daemon.stop()
        scene.use(scene.rig.daemon(listen=listen))
        scene.await_waiters()
    assert first.put() == 1
    first.step_down()
    assert second.led() > token


def test_it_stands_while_the_daemon_is_away_for_longer_than_a_call_may_take(scene):
    relay = scene.relay()
    first = scene.candidate(relay)
    first.program("timeout", first.shop, 200)
    relay.refuse()
    relay.cut()
    first.stand()
    assert first.program.silent_for(1.5), "it goes on"
    relay.accept()
    assert first.led() > 0


def test_it_stands_while_the_lease_service_is_away(scene):
    redis = scene.rig.redis()
    scene.use(scene.rig.daemon(lease=redis.uri))
    first, second = scene.candidate(), scene.candidate()
    redis.kill()
    with pytest.raises(ReplyError):
        scene.other("ACQUIRE", scene.name, 1000)
    for each in (first, second):
        each.stand(patience(2) * 1000)
    assert first.program.silent_for(0.5), "it goes on"
    scene.rig.redis(port=redis.address[1])
    wait_until(lambda: scene.lease() and scene.lease()["state"] == "held", "somebody leads")
    tokens = []
    for _ in range(2):
        leader = wait_until(lambda: next(
            (each for each in (first, second)
             if each.program.busy and not each.program.silent_for(0)), None), "one is told")
        tokens.append(leader.led())
        leader.step_down()
    assert tokens == sorted(tokens) and tokens[0] > 0


def test_a_leader_outlives_a_lease_service_that_is_away_for_a_moment(scene):
    redis = scene.rig.redis()
    scene.use(scene.rig.daemon(lease=redis.uri))
    first = scene.candidate()
    first.lead(patience(20) * 1000)
    redis.kill()
    assert first.put() == 1
    scene.rig.redis(port=redis.address[1])
    assert first.put() == 2


# The end of a wait.

def test_a_candidate_with_a_limit_gives_up_then(scene):
    first, second = scene.candidate(), scene.candidate()
    first.lead()
    with Stopwatch() as watch:
        assert second.lead(1000, 300) == "Held"
    assert 0.29 < watch.seconds
    assert second.lead(1000, 0) == "Held"
    first.step_down()
    assert second.lead(LONG_TTL_MS, 0) > 0


def test_a_candidate_with_a_limit_says_what_was_the_matter(scene):
    redis = scene.rig.redis()
    scene.use(scene.rig.daemon(lease=redis.uri))
    first = scene.candidate()
    redis.kill()
    with Stopwatch() as watch:
        assert first.lead(1000, 500) == "LeaseDown"
    assert 0.49 < watch.seconds


def test_a_candidate_that_is_cancelled_leaves_the_line(scene):
    first, second = scene.candidate(), scene.candidate()
    first.lead()
    second.stand()
    scene.await_waiters()
    with within(patience(15)):  # a look at the line lasts 30 s
        second.program.cancel()
        assert second.led() == "Cancelled"
    scene.await_waiters(0)


def test_a_candidate_is_cancelled_during_an_outage(scene):
    relay = scene.relay()
    first = scene.candidate(relay)
    first.program("timeout", first.shop, 200)
    relay.refuse()
    relay.cut()
    first.stand()
    assert first.program.silent_for(0.5), "it goes on"
    first.program.cancel()
    assert first.led() == "Cancelled"
    relay.accept()


def test_a_candidate_is_cancelled_while_the_lease_service_is_away(scene):
    redis = scene.rig.redis()
    scene.use(scene.rig.daemon(lease=redis.uri))
    first = scene.candidate()
    redis.kill()
    first.stand()
    assert first.program.silent_for(0.5), "it goes on"
    first.program.cancel()
    assert first.led() == "Cancelled"


def test_what_makes_no_sense_is_told_and_not_tried_again(scene):
    first = scene.candidate()
    assert first.lead(1) == "Misuse"


# Python's own.

@pytest.fixture
def shop(stage):
    with connect(stage.daemon) as shop:
        yield shop


def test_threads_withdraw(stage, shop, key):
    with shop.lead(key):
        election = shop.lead(key)
        ends = []

        def stand():
            with pytest.raises(stockade.Withdrawn), election:
                pass
            ends.append(True)
        thread = threading.Thread(target=stand, daemon=True)
        thread.start()
        wait_until(lambda: shop.query(key)["waiters"] == 1, "it stands")
        election.withdraw()
        thread.join(patience(20))
        assert ends
        wait_until(lambda: shop.query(key)["waiters"] == 0, "it has left")
        with pytest.raises(stockade.Withdrawn), election:
            pass
    wait_until(lambda: shop.query(key)["state"] == "free", "what it may have got is given back")


def test_threads_withdraw_during_an_outage(rig, key):
    daemon = rig.daemon()
    with connect(daemon, timeout=0.2) as shop:
        daemon.stop()
        election = shop.lead(key)
        timer = threading.Timer(0.5, election.withdraw)
        timer.start()
        with pytest.raises(stockade.Withdrawn), election:
            pass


def test_threads_stand_for_longer_than_one_look(rig, key, monkeypatch):
    """Each look ends as any call does: with nobody there, with an answer that does not come, with
    another who leads."""
    monkeypatch.setattr(stockade._election, "LOOK", 0.2)
    daemon = rig.daemon()
    relay = rig.relay(daemon.address)
    other, terms = daemon.client(), []
    with connect(relay, timeout=0.1) as shop:
        relay.refuse()

        def stand():
            with shop.lead(key) as term:
                terms.append(term.token)
        thread = threading.Thread(target=stand, daemon=True)
        thread.start()
        thread.join(1)
        relay.stall("up")
        relay.accept()
        thread.join(1)
        token = other.token(key)
        relay.let("up")
        other.await_waiters(key)
        thread.join(1)
        assert thread.is_alive() and not terms
        other("RELEASE", key, token)
        thread.join(patience(20))
        assert terms and terms[0] > token


def test_candidates_take_no_turns_from_those_who_wait_for_leases(rig, key):
    daemon = rig.daemon()
    other = daemon.client()
    other.token(key)
    with connect(daemon, waiting_max=1) as shop, contextlib.ExitStack() as stack:
        elections = [shop.lead(key) for _ in range(3)]
        for each in elections:
            def stand(election=each):
                with contextlib.suppress(stockade.Withdrawn), election:
                    pass
            thread = threading.Thread(target=stand, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(each.withdraw)
        other.await_waiters(key, 3)
        token = other.token(key + "2", 300)
        with shop.lease(key + "2", wait=patience(20)) as lease:
            assert lease.token > token


def test_a_thread_that_would_wait_for_itself_is_told(shop, key):
    with shop.lead(key), pytest.raises(stockade.Deadlock), shop.lead(key):
        pass


def test_an_election_has_one_block_at_a_time(shop, key):
    election = shop.lead(key)
    with election as term:
        with pytest.raises(stockade.Misuse), election:
            pass
        assert term.valid
    with election as term:
        assert term.valid


def test_a_task_that_leads_is_cancelled_by_its_loss_and_stands_again(stage, key):
    async def lead():
        async with aio_connect(stage.daemon) as shop:
            election, tokens = shop.lead(key), []
            while len(tokens) < 2:
                with contextlib.suppress(stockade.Lost):
                    async with election as term:
                        tokens.append(term.token)
                        await shop.revoke(key)
                        await asyncio.sleep(patience(20))
                        raise AssertionError("it was not told")
            return tokens
    first, second = asyncio.run(lead())
    assert second == first + 1


def test_the_programs_own_error_is_not_hidden_and_steps_down(shop, key):
    with pytest.raises(KeyError), shop.lead(key):
        raise KeyError
    assert shop.query(key)["state"] == "free"


# The library's own.

def test_a_leader_of_the_library_is_kept_alive(library, local, key):
    with library.open(local.uri) as client:
        fails("MISUSE", client.lead, key, no_keep_alive=True)
        fails("MISUSE", client.lead, key, wait_ms=-1)
        term = client.lead(key)
        assert term.valid
        term.release()
