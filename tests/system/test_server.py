# SPDX-License-Identifier: Apache-2.0
"""Server commands, passwords, administrators, and the admin HTTP interface."""

import contextlib
import json
import re

import pytest

from harness.leases import line_up
from harness.limits import REPO, wait_until
from harness.netns import secluded
from harness.resp import Client, ReplyError, encode

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def guarded(module_rig):
    """A daemon with a password."""
    path = module_rig.folder / "password"
    path.write_text(PASSWORD + "\n")
    return module_rig.daemon("--password-file", path)


def test_without_auth_only_greetings_are_answered(guarded):
    client = guarded.client()
    for command in (("PING",), ("GET", "k"), ("ACQUIRE", "r", 1000), ("FENCED", 1, "SET", "k", "v"),
                    ("INFO",), ("COMMAND",), ("CLIENT", "LIST"), ("SHUTDOWN",), ("LEASES",)):
        client.refused("NOAUTH", *command)
    client.refused("NOAUTH", "HELLO", 3)
    assert client("RESET") == "RESET"
    assert client("QUIT") == "OK"
    assert client.is_closed()


def test_auth_opens_the_door_in_each_of_its_forms_and_reset_closes_it(guarded):
    for command in (("AUTH", PASSWORD), ("AUTH", "default", PASSWORD),
                    ("HELLO", 3, "AUTH", "default", PASSWORD),
                    ("HELLO", 2, "AUTH", "default", PASSWORD, "SETNAME", "me")):
        client = guarded.client()
        reply = client(*command)
        assert reply == "OK" or command[0] == "HELLO"
        assert client("PING") == "PONG"
    assert client("CLIENT", "GETNAME") == b"me"
    assert client("RESET") == "RESET"
    client.refused("NOAUTH", "PING")


def test_a_wrong_password_is_wrongpass_and_opens_nothing(guarded):
    client = guarded.client()
    for command in (("AUTH", "wrong"), ("AUTH", "nobody", PASSWORD), ("AUTH", ""),
                    ("AUTH", PASSWORD + "\n"), ("HELLO", 3, "AUTH", "default", "wrong")):
        client.refused("WRONGPASS", *command)
        client.refused("NOAUTH", "PING")


@pytest.mark.parametrize("data", [encode("AUTH", *["x"] * 10), encode("AUTH", "x" * 16385),
                                  b"*11\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"],
                         ids=["11 arguments", "16 KB", "11 announced", "16 KB announced"])
def test_before_auth_requests_are_small(guarded, data):
    client = guarded.client()
    client.send_bytes(data)
    assert client.read().code == "ERR"
    assert client.is_closed()


def test_after_auth_requests_may_be_large(guarded):
    client = guarded.client()
    client("AUTH", PASSWORD)
    assert client("ECHO", "x" * 100000) == b"x" * 100000
    assert len(client("MGET", *range(1, 100))) == 99


def test_who_is_authenticated_is_an_administrator(guarded):
    client, victim = guarded.client(), guarded.client()
    victim("AUTH", PASSWORD)
    client("AUTH", PASSWORD)
    assert client("CONFIG", "GET", "save") is not None
    assert client("CLIENT", "KILL", "ID", victim("CLIENT", "ID")) == 1
    assert victim.is_closed()


ADMIN_COMMANDS = ["SHUTDOWN", "CLIENT KILL ID 1", "CONFIG GET save", "FLUSHALL", "FLUSHDB",
                  "GUARD CREATE t k t:", "GUARD DROP t"]


def test_who_comes_from_elsewhere_is_no_administrator_without_a_password(rig):
    daemon, cli = secluded(rig, "--unfenced-writes", "allow")
    assert cli("10.9.8.7", "PING") == "PONG"
    for command in ADMIN_COMMANDS:
        assert cli("10.9.8.7", *command.split()).startswith("NOPERM "), command
    assert cli("10.9.8.7", "GUARD", "LIST") == ""
    token = cli("10.9.8.7", "ACQUIRE", "r", "60000").split()[0]
    assert cli("10.9.8.7", "REVOKE", "r") == token, "for anyone who may write"
    assert cli("127.0.0.1", "FLUSHALL") == "OK"
    cli("127.0.0.1", "SHUTDOWN")
    assert daemon.wait() == 0


@pytest.mark.parametrize("name", ["FLUSHALL", "FLUSHDB"])
def test_flushall_and_flushdb_need_unfenced_writes(client, token, key, name):
    client.fenced(token, "SET", key, "v")
    client.refused("NOPERM", name, text=f"^NOPERM {name} needs")
    assert client("GET", key) == b"v"


def test_shutdown_ends_the_daemon_with_status_0(rig, lease):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    token = client.token("r")
    waiter, = line_up(daemon, "r", 1)
    client.fenced(token, "SET", "r", "v")
    client.send("SHUTDOWN")
    assert client.is_closed()
    assert isinstance(waiter.read(), ReplyError)
    assert daemon.wait() == 0
    assert rig.daemon(lease=lease).client()("GET", "r") == b"v"


def test_clients_have_rising_ids_names_and_a_list(local):
    a, b = local.client(), local.client()
    first, second = a("CLIENT", "ID"), b("CLIENT", "ID")
    assert 0 < first < second
    assert a("CLIENT", "GETNAME") is None
    assert a("CLIENT", "SETNAME", "alpha") == "OK" and a("CLIENT", "GETNAME") == b"alpha"
    assert b("CLIENT", "SETINFO", "LIB-NAME", "tests") == "OK"
    assert b("CLIENT", "SETINFO", "lib-ver", "1.0") == "OK"
    lines = a("CLIENT", "LIST").decode().splitlines()
    mine = next(line for line in lines if f"id={first} " in line)
    assert "name=alpha" in mine and "addr=127.0.0.1:" in mine
    assert any(f"id={second} " in line and "lib-name=tests" in line for line in lines)


def test_client_kill_closes_that_connection_and_no_other(local):
    a, b, c = local.client(), local.client(), local.client()
    assert a("CLIENT", "KILL", "ID", b("CLIENT", "ID")) == 1
    assert b.is_closed()
    assert c("PING") == "PONG"
    host, port = c.sock.getsockname()
    assert a("CLIENT", "KILL", f"{host}:{port}") == "OK"
    assert c.is_closed()
    assert a("CLIENT", "KILL", "ID", 1 << 40) == 0
    a.refused("ERR", "CLIENT", "KILL", "127.0.0.1:1")


def test_quit_answers_what_was_sent_before_and_closes(client):
    client.send_bytes(encode("PING") + encode("QUIT") + encode("PING"))
    assert [client.read(), client.read()] == ["PONG", "OK"]
    assert client.is_closed()


def test_reset_goes_back_to_resp2_and_forgets_the_name(local):
    client = local.client(proto=3, name="me")
    assert client("RESET") == "RESET"
    assert client("CLIENT", "GETNAME") is None and client.reader.raw == b"$-1\r\n"


def test_config_get_answers_what_benchmarks_and_clients_ask(daemon, client):
    for name in ("save", "appendonly"):
        reply = client("CONFIG", "GET", name)
        assert reply[0] == name.encode() and len(reply) == 2
    assert client("CONFIG", "GET", "nosuch*") == []
    everything = client("CONFIG", "GET", "*")
    names = {word.decode() for word in everything[::2]}
    assert names >= {"listen", "store", "lease", "unfenced-writes", "log-level"}
    resp3 = daemon.client(proto=3)("CONFIG", "GET", "store")
    assert list(resp3) == [b"store"] and resp3[b"store"].startswith((b"sqlite:", b"postgresql:"))


def test_config_get_never_shows_a_password(guarded, rig):
    client = guarded.client()
    client("AUTH", PASSWORD)
    assert PASSWORD.encode() not in b" ".join(client("CONFIG", "GET", "*"))
    client = rig.daemon(lease="redis://:hunter2secret@127.0.0.1:1").client()
    text = b" ".join(client("CONFIG", "GET", "*")) + client("INFO")
    assert b"hunter2secret" not in text
    daemon = rig.daemon(store="postgresql://shop:hunter2secret@127.0.0.1:1/x?sslpassword=hunter3")
    text = b" ".join(daemon.client()("CONFIG", "GET", "*")) + daemon.log().encode()
    assert b"hunter2secret" not in text and b"hunter3" not in text and b"127.0.0.1:1/x" in text


def sections(client, *names):
    text = client("INFO", *names).decode()
    return [line[2:] for line in text.splitlines() if line.startswith("# ")]


@pytest.mark.parametrize("proto", [2, 3])
def test_info_has_sections_of_fields(local, proto):
    client = local.client(proto=proto)
    fields = client.info()
    assert fields["loading"] == "0", "ioredis waits for this"
    assert int(fields["process_id"]) == local.pid
    assert int(fields["connected_clients"]) >= 1
    assert len(sections(client)) >= 3
    for section in sections(client):
        assert sections(client, section.lower()) == [section]
    assert sections(client, "cpu", "MEMORY", "cpu") == ["Memory", "CPU"]
    assert {"used_cpu_user", "used_memory"} <= set(client.info("cpu", "MEMORY", "cpu"))
    assert client.info("nosuch") == {}
    assert client.info("nosuch", "all").keys() == fields.keys()
    assert client.info("REPLICATION").get("role") == "master", "valkey-glide needs it"


def test_info_has_the_fields_that_clients_test_suites_read(local, redis):
    """In the sections in which Redis has them, of the same kinds."""
    ours, theirs = local.client(), redis.client()
    for section, names in {"server": ("arch_bits", "process_id", "uptime_in_days"),
                           "memory": ("used_memory", "used_memory_human", "used_memory_rss",
                                      "used_memory_rss_human", "used_memory_peak",
                                      "used_memory_peak_human", "maxmemory"),
                           "cpu": ("used_cpu_user", "used_cpu_sys"),
                           "cluster": ("cluster_enabled",)}.items():
        mine, other = ours.info(section), theirs.info(section)
        for name in names:
            form = re.sub(r"\d+", "0", other[name])
            assert re.sub(r"\d+", "0", mine[name]) == form or "human" in name, (name, mine[name])
    fields = ours.info()
    assert fields["arch_bits"] == "64" and fields["cluster_enabled"] == "0"
    assert 1 << 18 < int(fields["used_memory"]) <= int(fields["used_memory_peak"])
    assert re.fullmatch(r"\d+\.\d\d[KMG]", fields["used_memory_human"])
    before = float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])
    wait_until(lambda: [ours("COMMAND") for _ in range(50)] and sum(
        float(ours.info("cpu")[name]) for name in ("used_cpu_user", "used_cpu_sys")) > before,
        "it counts what it uses")


def test_info_counts_what_happened(rig):
    client = rig.daemon().client()
    token = client.token("r")
    client.fenced(token, "SET", "r", "v")
    client("REVOKE", "r")
    client.ask("FENCED", token, "SET", "r", "v")
    client.ask("FENCED", token + 9, "SET", "r", "v")
    client.ask("SET", "r", "v")
    fields = client.info()
    assert fields["refused_stale"] == fields["refused_unknown"] == fields["refused_notoken"] == "1"
    assert fields["leases_granted"] == fields["leases_revoked"] == "1"


def test_every_field_of_info_is_explained_by_metrics_or_the_page(local):
    fields = local.client().info()
    metrics = local.get("/metrics")[2]
    page = (REPO / "proxy/server/OPERATIONS.md").read_text()
    explained = {name for helped in re.findall(r"^# HELP stockade_(\w+) \w", metrics, re.M)
                 for name in (helped, helped.removesuffix("_total"))}
    table = page[page.index("| other fields of `INFO` |"):].split("\n\n")[0]
    explained |= set(re.findall(r"`(\w+)`", table))
    assert set(fields) - explained == set()


def test_health_is_ok_while_the_store_takes_writes_whatever_the_lease_service_does(rig, redis):
    for lease in ("local:", redis.uri, "redis://127.0.0.1:1"):
        daemon = rig.daemon(lease=lease)
        daemon.client().ask("ACQUIRE", "r", 1000)
        status, kind, body = daemon.get("/health")
        assert status == 200 and kind.startswith("application/json")
        assert json.loads(body)["status"] == "ok"


def test_other_pages_of_the_admin_port_are_not_found(local):
    for path in ("/nosuch", "/api", "/page", "/metrics/x", "/health/../etc/passwd"):
        assert local.get(path)[0] == 404


def test_the_admin_port_serves_while_clients_are_served(daemon, client, token, key):
    for i in range(50):
        client.send("FENCED", token, "SET", key, i)
        assert daemon.get("/health")[0] == 200
        assert client.read() == "OK"


def test_the_admin_port_survives_bad_requests(local):
    for data in (b"\r\n\r\n", b"GET\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET /health HTTP/1.1\r\n",
                 b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nx",
                 b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
        client = Client(local.admin)
        with contextlib.suppress(AssertionError, OSError, ValueError):
            client.send_bytes(data)
            client.half_close()
            client.is_closed(0.2)
        client.close()
    assert local.get("/health")[0] == 200


def test_admin_off_opens_no_port(rig):
    daemon = rig.daemon(admin="off")
    assert daemon.admin is None
    assert daemon.client()("PING") == "PONG"


def test_several_listeners_serve_the_same_store(rig):
    path = rig.folder / "s.sock"
    daemon = rig.daemon(listen=("127.0.0.1:0", f"unix:{path}", "[::1]:0"))
    assert len(daemon.listeners) == 3 and str(path) in daemon.listeners
    token = Client(daemon.listeners[0]).token("r")
    Client(str(path)).fenced(token, "SET", "r", "v")
    for address in daemon.listeners:
        client = Client(address)
        assert client("GET", "r") == b"v"
        client.close()
    daemon.stop()
    assert not path.exists(), "it takes its socket away"


def test_more_connections_than_allowed_are_told_so(rig):
    daemon = rig.daemon("--max-connections", "4")
    clients = [daemon.client() for _ in range(4)]
    assert {client("PING") for client in clients} == {"PONG"}
    surplus = daemon.client()
    assert surplus.ask("PING").code == "ERR"
    clients[0].close()
    wait_until(lambda: clients[1]("CLIENT", "LIST").count(b"\n") < 4, "there is room again")
    assert daemon.client()("PING") == "PONG"
