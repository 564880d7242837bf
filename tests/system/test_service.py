# SPDX-License-Identifier: Apache-2.0
"""The daemon under a service manager, which the test plays: readiness, watchdog, reload, stop, and
sockets that are handed over."""

import contextlib
import os
import signal
import socket
import time

import pytest

from harness.certs import Certs
from harness.limits import patience, wait_until
from harness.manager import Manager, hand_over
from harness.resp import Client
from harness.rig import refusal

PERIOD_MS = 400  # of the watchdog; the daemon speaks four times in it


@pytest.fixture
def manager(rig):
    with contextlib.closing(Manager(rig.folder)) as manager:
        yield manager


def watched(manager, **variables):
    return {**manager.env, "WATCHDOG_USEC": str(PERIOD_MS * 1000), **variables}


def test_it_is_ready_once_clients_are_served_and_says_that_it_stops(rig, manager):
    daemon = rig.start(env=manager.env)
    assert manager.next() == {"READY": "1"}
    daemon.await_ready(timeout=0)
    assert daemon.client()("PING") == "PONG"
    daemon.signal(signal.SIGTERM)
    assert manager.next() == {"STOPPING": "1"} and daemon.wait() == 0
    assert not manager.hears(), "no watchdog was asked for"


def test_it_is_not_ready_before_it_knows_of_its_lease_service(rig, manager):
    redis = rig.redis()
    relay = rig.relay(redis.address)
    relay.hold("up")
    daemon = rig.start(env=manager.env, lease="redis://{}:{}".format(*relay.address))
    assert not manager.hears(0.2)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP" in daemon.stderr(), "it has read its options again")
    assert not manager.hears(0.2), "a reload makes nothing ready"
    relay.let("up")
    assert manager.next() == {"READY": "1"}


def test_what_is_wrong_is_told_with_readiness_and_when_it_is_over(rig, manager):
    redis = rig.redis()
    port = redis.address[1]
    redis.stop()
    daemon = rig.daemon(env=manager.env, lease=redis.uri)
    assert daemon.wrong == "no lease can be granted: the lease service is down"
    assert manager.next() == {"READY": "1"} and manager.status == daemon.wrong
    assert daemon.get("/ready")[2] == f"{daemon.wrong}\n"
    rig.redis(port=port)
    manager.await_status("")


def test_a_daemon_that_cannot_start_is_never_ready(rig, manager):
    refusal(rig, env=manager.env, store=f"sqlite:{rig.folder}/nosuch/folder.db")
    assert not manager.hears()


@pytest.mark.parametrize("text", ["max-waiters = 9\n", "nosuch = 9\n"])
def test_it_says_when_a_reload_begins_and_when_it_is_done(rig, manager, text):
    config = rig.folder / "stockaded.conf"
    config.write_text("")
    daemon = rig.daemon("--config", config, env=manager.env)
    assert manager.next() == {"READY": "1"}
    config.write_text(text)
    before = time.monotonic() * 1e6
    daemon.signal(signal.SIGHUP)
    message = manager.next()
    assert message.pop("RELOADING") == "1" and manager.next() == {"READY": "1"}
    assert before - 1 <= int(message["MONOTONIC_USEC"]) <= time.monotonic() * 1e6


def test_a_manager_that_has_gone_is_no_reason_to_stop(rig, manager):
    daemon = rig.daemon(env=watched(manager))
    manager.close()
    manager.path.unlink()
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "were read again" in daemon.stderr(), "the signal was handled")
    assert daemon.client()("PING") == "PONG"


def test_the_watchdog_hears_of_a_daemon_that_turns(rig, manager):
    daemon = rig.daemon(env=watched(manager))
    assert manager.next() == {"READY": "1"}
    for _ in range(6):
        assert manager.next() == {"WATCHDOG": "1"}
    with daemon.frozen():
        manager.await_silence(PERIOD_MS / 1000)
    assert manager.next() == {"WATCHDOG": "1"}


def test_the_watchdog_hears_nothing_while_the_writer_stands(rig, manager):
    daemon = rig.daemon(env={**rig.fault_env(), **watched(manager)})
    client, writer = daemon.client(), daemon.client()
    rig.faults.order("sync stall")
    writer.send("SQL", "CREATE TABLE t(x)")
    rig.faults.await_hit()
    manager.await_silence(PERIOD_MS / 1000)
    assert client("PING") == "PONG"
    rig.faults.clear()
    assert manager.next() == {"WATCHDOG": "1"} and writer.read() is not None


def test_a_full_disk_is_nothing_that_a_restart_would_help(rig, manager):
    daemon = rig.daemon(env={**rig.fault_env(), **watched(manager)})
    client = daemon.client()
    rig.faults.order("write ENOSPC")
    client.refused("STORE", "SQL", "CREATE TABLE t(x)")
    manager.await_silence(0)
    for _ in range(4):
        client.refused("STORE", "SQL", "CREATE TABLE t(x)")
        assert manager.next() == {"WATCHDOG": "1"}
    rig.faults.clear()


def test_a_watchdog_of_another_process_is_not_answered(rig, manager):
    rig.daemon(env=watched(manager, WATCHDOG_PID=str(os.getpid())))
    assert manager.next() == {"READY": "1"} and not manager.hears(3 * PERIOD_MS / 1000)


def listener(family=socket.AF_INET, address=("127.0.0.1", 0)):
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind(address)
    server.listen()
    return server


def test_handed_over_sockets_take_the_place_of_listen_and_admin(rig):
    path = str(rig.folder / "handed.sock")
    with listener() as tcp, listener(socket.AF_UNIX, path) as unix, listener() as admin:
        daemon = rig.daemon(**hand_over(stockade1=tcp, admin=admin, stockade2=unix),
                            listen=(f"unix:{rig.folder}/own.sock",), admin="off")
        assert daemon.listeners == [tcp.getsockname(), path]
        assert daemon.admin == admin.getsockname() and daemon.get("/health")[0] == 200
        assert daemon.client()("PING") == "PONG"
        with contextlib.closing(Client(path)) as client:
            assert client("CONFIG", "GET", "log-level")[1] == b"info", "an administrator's"
        assert not (rig.folder / "own.sock").exists()
        daemon.stop()
        assert os.path.exists(path), "the socket is the manager's"


def test_who_connects_before_the_start_and_between_two_daemons_waits_and_is_served(rig):
    with listener() as tcp:
        early = socket.create_connection(tcp.getsockname())
        for _ in range(2):
            early.sendall(b"PING\r\n")
            daemon = rig.daemon(**hand_over(stockade=tcp))
            early.settimeout(patience(10))
            assert early.recv(100) == b"+PONG\r\n"
            early.close()
            daemon.stop()
            early = socket.create_connection(tcp.getsockname())
        early.close()


def test_without_handed_over_ones_for_clients_the_options_say_where_to_listen(rig):
    with listener() as admin:
        daemon = rig.daemon(**hand_over(admin=admin))
        assert daemon.admin == admin.getsockname()
        assert daemon.address != admin.getsockname() and daemon.client()("PING") == "PONG"


def test_a_handed_over_admin_socket_with_tls_is_told_as_one(rig):
    cert = Certs(rig.folder / "certs").server()
    with listener() as admin:
        daemon = rig.start("--tls-cert", cert.cert, "--tls-key", cert.key, admin="tls:127.0.0.1:0",
                           **hand_over(admin=admin))
        line = daemon.first_line()
        assert " admin=tls:127.0.0.1:{}".format(admin.getsockname()[1]) in line


def test_an_open_address_that_was_handed_over_is_refused_as_any_other(rig):
    with listener(address=("0.0.0.0", 0)) as tcp:
        assert "other machines could connect to 0.0.0.0:" in refusal(rig, **hand_over(stockade=tcp))


@pytest.mark.parametrize("name, made, why", [
    ("stockade", lambda path: socket.socket(socket.AF_INET, socket.SOCK_DGRAM), "not a stream"),
    ("stockade", lambda path: socket.socket(socket.AF_INET, socket.SOCK_STREAM), "not a stream"),
    ("stockade", lambda path: open(path + ".txt", "w", encoding="ascii"), "not a stream"),
    ("admin", lambda path: listener(socket.AF_UNIX, path), "HTTP needs TCP"),
], ids=["datagram", "does not listen", "a file", "admin on a unix socket"])
def test_a_socket_that_cannot_be_used_is_one_clear_line(rig, name, made, why):
    with made(str(rig.folder / "given")) as given:
        line = refusal(rig, **hand_over(**{name: given}))
        assert f"inherited socket 3 ({name})" in line and why in line


def test_two_admin_sockets_are_one_too_many(rig):
    with listener() as one, listener() as other:
        assert "second one of that name" in refusal(rig, **hand_over(admin1=one, admin2=other))


def test_sockets_for_another_process_are_left_alone(rig):
    daemon = rig.daemon(env={"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
    assert daemon.client()("PING") == "PONG"
