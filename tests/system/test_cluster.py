# SPDX-License-Identifier: Apache-2.0
"""Leases on a Redis Cluster: slots that move, masters that fail, and resources of any name. (What
holds on every lease service holds here, too: test_lease_services.py.)"""

import threading

import pytest

from harness.cluster import Masters, slot_of
from harness.leases import await_news, line_up
from harness.limits import patience, wait_until
from harness.resp import ReplyError


@pytest.fixture(scope="module")
def masters(module_rig):
    return Masters(module_rig)


@pytest.fixture(scope="module")
def daemon(module_rig, masters):
    return module_rig.daemon(lease=masters.uri)


@pytest.fixture
def client(daemon):
    with_client = daemon.client()
    yield with_client
    daemon.close_clients()


def test_resources_are_leased_at_the_master_that_serves_their_slot(client, masters):
    for number in range(30):
        client.cycle(f"r:{number}")
        key = f"stockade:{{r:{number}}}:token"
        assert masters.serving(f"r:{number}")("GET", key) == b"1"


@pytest.mark.parametrize("key", ["}", "}x", "{", "{}", "{}x", "a}b", "a{b}c", "{a}b", "#", "\xff}",
                                 "}{#}", "x" * 512])
def test_a_resource_may_have_any_name(client, key):
    assert client.cycle(key) < client.cycle(key)


def test_a_slot_that_has_moved_is_found(client, masters):
    first = client.cycle("moved")
    held = client.token("moved")
    masters.move("moved", masters.other_than(masters.serving("moved")))
    assert client.lease("moved")["token"] == held
    assert client.renew("moved", held, 60000)
    assert client("RELEASE", "moved", held) == 0
    assert client.cycle("moved") > held > first


def test_a_slot_that_is_being_moved_is_served(client, masters):
    """All keys are gone from the source: ASK."""
    held = client.token("moving")
    to = masters.other_than(masters.serving("moving"))
    source = masters.begin_move("moving", to)
    assert client.renew("moving", held, 60000) # both keys are still there
    masters.move_keys(source, "moving", to)
    assert client.renew("moving", held, 60000) # both have gone
    assert client.lease("moving")["token"] == held
    masters.end_move("moving", to)
    assert client("RELEASE", "moving", held) == 0


def test_a_resource_whose_keys_are_on_both_sides_waits_for_them(rig, client, masters):
    """Redis answers TRYAGAIN as long as that lasts."""
    patient = rig.daemon(lease=masters.uri + "?timeout_ms=30000").client()
    before = client.cycle("split") # the lock is gone, the token's counter is there
    to = masters.other_than(masters.serving("split"))
    source = masters.begin_move("split", to)
    patient.send("ACQUIRE", "split", 60000)
    client.refused("LEASEDOWN", "ACQUIRE", "split", 60000, text="being moved")
    masters.move_keys(source, "split", to)
    masters.end_move("split", to)
    reply = patient.read()
    assert not isinstance(reply, ReplyError), reply.text
    assert reply[0] > before


def test_leases_while_slots_move_all_the_time(daemon, masters):
    """Nobody gets two leases, no token falls, and what fails says why."""
    names = [f"busy:{number}" for number in range(6)]
    ends, wrong, done = threading.Event(), [], [0]

    def work(name):
        client, newest = daemon.client(), 0
        while not ends.is_set():
            try:
                grant = client("ACQUIRE", name, 60000)
                if grant[0] <= newest:
                    wrong.append((name, grant, newest))
                newest = grant[0]
                client.fenced(newest, "SET", name, "v")
                client("RELEASE", name, newest)
                done[0] += 1
            except ReplyError as error:
                if error.code != "LEASEDOWN":
                    wrong.append((name, error.text))
    workers = [threading.Thread(target=work, args=(name,)) for name in names]
    for worker in workers:
        worker.start()
    for turn in range(8):
        for name in names:
            masters.move(name, masters.other_than(masters.serving(name)))
    ends.set()
    for worker in workers:
        worker.join(patience(20))
    assert not wrong and done[0] > 50
    daemon.close_clients()


def test_others_are_woken_across_daemons(rig, masters):
    one, two = (rig.daemon(lease=masters.uri) for _ in range(2))
    holder, watch = await_news(one), await_news(two)
    token = holder.token("woken")
    waiter, = line_up(two, "woken", 1)
    holder("RELEASE", "woken", token)
    assert waiter.read()[0] > token
    assert watch.counter("lease_service_news") >= 1


@pytest.mark.slow
def test_a_master_fails_and_its_replica_takes_over(rig):
    cluster = Masters(rig, replicas=True)
    daemon = rig.daemon(lease=cluster.uri)
    client = daemon.client()
    others = [name for name in (f"o:{n}" for n in range(40))
              if cluster.serving(name) is not cluster.serving("shop")]
    before = [client.cycle("shop") for _ in range(3)][-1]
    held = client.token("shop")
    cluster.fail_over("shop")
    assert client.fenced(held, "SET", "shop", "v") == "OK"
    for name in others[:5]:
        client.cycle(name)
    wait_until(lambda: not isinstance(client.ask("RENEW", "shop", held, 60000), ReplyError),
               "the replica answers")
    assert client("RELEASE", "shop", held) == 0
    assert client.cycle("shop") > held > before
    assert b"up" in daemon.get("/health")[2].encode()


@pytest.mark.slow
def test_a_part_of_the_cluster_that_is_down_is_named(rig):
    cluster = Masters(rig)
    daemon = rig.daemon(lease=cluster.uri + "?timeout_ms=300")
    client = daemon.client()
    gone = cluster.serving("shop")
    there = next(name for name in (f"o:{n}" for n in range(40))
                 if cluster.serving(name) is not gone)
    gone.kill()
    wait_until(lambda: client.ask("ACQUIRE", "shop", 1000) is not None and
               isinstance(client.ask("ACQUIRE", "shop", 1000), ReplyError), "it is noticed")
    client.refused("LEASEDOWN", "ACQUIRE", "shop", 1000)
    client.cycle(there)
    assert daemon.get("/ready")[0] == 503


@pytest.mark.slow
def test_the_daemon_starts_without_its_cluster_and_finds_it(rig):
    cluster = Masters(rig)
    cluster.down()
    daemon = rig.daemon(lease=cluster.uri)
    client = daemon.client()
    client.refused("LEASEDOWN", "ACQUIRE", "r", 1000)
    cluster.up()
    wait_until(lambda: not isinstance(client.ask("ACQUIRE", "r", 60000), ReplyError), "it is back")


def test_a_redis_that_is_no_cluster_is_named(rig, redis):
    daemon = rig.daemon(lease="redis+cluster://127.0.0.1:{}".format(redis.address[1]))
    daemon.client().refused("LEASEDOWN", "ACQUIRE", "r", 1000, text="cluster")


@pytest.mark.parametrize("key", ["r", "a{b}c"])
def test_python_and_stockade_agree_on_slots(client, masters, key):
    assert masters.masters[0]("CLUSTER", "KEYSLOT", f"stockade:{{{key}}}:lock") == slot_of(key)
