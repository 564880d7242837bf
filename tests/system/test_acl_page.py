# SPDX-License-Identifier: Apache-2.0
"""The page with users: HTTP Basic and certificates, and what each of them may see and do."""

import base64
import contextlib
import http.client
import json
import socket
import struct
import subprocess

import pytest

from harness.certs import Certs
from harness.limits import HANG_SECONDS, patience
from harness.users import ROOT, change, login, with_users

SOME = "user some on >pw ~k* +@read"
REVOKER = "user revoker on >pw %W~k* %R~* +@read +@revoke"


def ask(daemon, path, user=None, password="pw", context=None, body=None):
    """Status and JSON, or text."""
    if context is not None:
        connection = http.client.HTTPSConnection(*daemon.admin, timeout=patience(HANG_SECONDS),
                                                 context=context)
    else:
        connection = http.client.HTTPConnection(*daemon.admin, timeout=patience(HANG_SECONDS))
    headers = {"Host": "localhost"}
    if user is not None:
        word = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {word}"
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(body)
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if text.startswith("{") else text


@pytest.fixture
def daemon(rig):
    daemon = with_users(rig, ROOT, SOME, REVOKER, "user none on >pw +@connection")
    root = login(daemon, "root")
    daemon.tokens = {name: root.token(name) for name in ("k1", "hidden")}
    for name in daemon.tokens:
        root.refused("NOTOKEN", "SET", name, "v")
    return daemon


def test_a_user_has_to_be_named(daemon):
    for path in ("/", "/api/state", "/api/leases"):
        assert ask(daemon, path)[0] == 401
        assert ask(daemon, path, "root", "wrong")[0] == 401
        assert ask(daemon, path, "nobody", "pw")[0] == 401
    assert ask(daemon, "/", "none")[0] == 200
    assert ask(daemon, "/api/leases", "none")[0] == 403
    assert ask(daemon, "/health")[0] == 200


def test_names_that_may_not_be_read_are_not_shown(daemon):
    everything = ask(daemon, "/api/leases", "root")[1]
    assert {lease["resource"] for lease in everything["leases"]} == {"k1", "hidden"}
    part = ask(daemon, "/api/leases", "some")[1]
    assert [lease["resource"] for lease in part["leases"]] == ["k1"] and part["matched"] == 1
    refusals = ask(daemon, "/api/refusals", "some")[1]
    assert {refusal["resource"] for refusal in refusals["refusals"]} == {"k1"}
    assert ask(daemon, "/api/resource?name=k1", "some")[0] == 200
    assert ask(daemon, "/api/resource?name=hidden", "some")[0] == 403
    waiter = login(daemon, "root")
    waiter.send("ACQUIRE", "hidden", 60000, "WAIT", 60000)
    login(daemon, "root").await_waiters("hidden")
    assert ask(daemon, "/api/state", "root")[1]["longest_wait_resource"] == "hidden"
    assert ask(daemon, "/api/state", "some")[1]["longest_wait_resource"] is None


def test_who_may_revoke_here_may_revoke_there(daemon):
    def revoke(user, name):
        return ask(daemon, "/api/revoke", user,
                   body={"resource": name, "token": daemon.tokens[name], "reason": "test"})[0]
    assert not ask(daemon, "/api/state", "some")[1]["may_revoke"]
    assert ask(daemon, "/api/state", "revoker")[1]["may_revoke"]
    assert revoke("some", "k1") == 403
    assert revoke("revoker", "hidden") == 403
    assert revoke("revoker", "k1") == 200
    assert revoke("root", "hidden") == 200


def test_a_stream_ends_when_the_users_change(daemon):
    connection = http.client.HTTPConnection(*daemon.admin, timeout=patience(HANG_SECONDS))
    word = base64.b64encode(b"some:pw").decode()
    connection.request("GET", "/api/stream", headers={"Authorization": f"Basic {word}"})
    answer = connection.getresponse()
    root = login(daemon, "root")
    assert answer.status == 200
    root.refused("NOTOKEN", "SET", "hidden", "v")
    root.refused("NOTOKEN", "SET", "k1", "v")
    lines = iter(answer.readline, b"")
    refused = next(line for line in lines if b'"code":"NOTOKEN"' in line)
    assert b'"resource":"k1"' in refused
    change(daemon, root, ROOT)
    assert b"".join(lines) is not None # it ends
    assert ask(daemon, "/api/state", "some")[0] == 401
    connection.close()


def test_logins_are_in_the_audit_once(rig):
    audit = rig.folder / "audit"
    daemon = with_users(rig, ROOT, args=("--audit", audit))
    connection = http.client.HTTPConnection(*daemon.admin, timeout=patience(HANG_SECONDS))
    for word in (b"root:wrong", b"root:pw", b"root:pw"):
        connection.request("GET", "/api/state", headers={
            "Authorization": f"Basic {base64.b64encode(word).decode()}"})
        connection.getresponse().read()
    connection.close()
    daemon.stop()
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [event["event"] for event in events if event["user"] == "root"] == [
        "login_failed", "login"], [(e["event"], e["address"]) for e in events]


def test_each_user_s_login_is_in_the_audit_from_each_address(rig):
    audit = rig.folder / "audit"
    daemon = with_users(rig, ROOT, SOME, args=("--audit", audit))
    cells = [(user, address) for user in ("root", "some") for address in ("127.0.0.1", "127.0.0.2")]
    for user, address in cells * 2:
        connection = http.client.HTTPConnection(*daemon.admin, timeout=patience(HANG_SECONDS),
                                                source_address=(address, 0))
        connection.request("GET", "/api/state", headers={
            "Host": "localhost",
            "Authorization": f"Basic {base64.b64encode(f'{user}:pw'.encode()).decode()}"})
        assert connection.getresponse().status == 200
        connection.close()
    daemon.stop()
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    told = [(event["user"], event["address"].partition(":")[0]) for event in events
            if event["event"] == "login"]
    assert told == cells


def test_crypt_is_asked_beside_the_loop(rig):
    crypted = subprocess.run(["openssl", "passwd", "-6", "pw"], capture_output=True, text=True,
                             check=True, timeout=patience(HANG_SECONDS)).stdout.strip()
    daemon = with_users(rig, ROOT, f"user slow on crypt:{crypted} ~* +@read")
    assert ask(daemon, "/api/state", "slow", "wrong")[0] == 401
    assert ask(daemon, "/api/state", "slow")[0] == 200
    assert ask(daemon, "/api/state", "slow")[0] == 200
    assert ask(daemon, "/api/state", "slow", "wrong")[0] == 401


def by_certificates(rig, certs, *users):
    cert = certs.server()
    return with_users(rig, ROOT, *users, args=(
        "--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca, "--tls-clients",
        "optional", "--tls-user", "cn"), admin="tls:127.0.0.1:0")


def test_a_crowd_of_named_users_may_leave_and_come_back(rig):
    """A stream that waits for news notices only later that its client has gone."""
    certs = Certs(rig.folder / "certs")
    daemon = by_certificates(rig, certs, SOME)
    some = certs.client(certs.issue("some"))

    def come(opened, count):
        for _ in range(count):
            sock = opened.enter_context(some.wrap_socket(
                socket.create_connection(daemon.admin, patience(20)), server_hostname="127.0.0.1"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(8) == b"HTTP/1.1"

    for _ in range(3):
        with contextlib.ExitStack() as opened:
            come(opened, 104)
        with contextlib.ExitStack() as opened:
            come(opened, 20)


def test_pages_over_tls_take_no_connection_from_those_who_watch(rig):
    certs = Certs(rig.folder / "certs")
    daemon = by_certificates(rig, certs, SOME)
    some = certs.client(certs.issue("some"))
    with contextlib.ExitStack() as opened:
        heads = []
        for _ in range(140):
            sock = opened.enter_context(some.wrap_socket(
                socket.create_connection(daemon.admin, patience(20)), server_hostname="127.0.0.1"))
            sock.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heads.append(sock.recv(12))
        assert heads[:128] == [b"HTTP/1.1 200"] * 128 and heads[-1] == b"HTTP/1.1 503"
        for _ in range(160):
            opened.enter_context(socket.create_connection(daemon.admin, patience(20)))
        assert ask(daemon, "/api/leases", context=some)[0] == 200
        assert ask(daemon, "/health", context=certs.client())[0] == 200


def test_a_certificate_names_the_user_of_the_page(rig):
    certs = Certs(rig.folder / "certs")
    daemon = by_certificates(rig, certs, SOME)
    login(daemon, "root").token("k1")
    some, nobody = (certs.client(certs.issue(name)) for name in ("some", "nobody"))
    assert ask(daemon, "/api/leases", context=some)[1]["matched"] == 1
    assert ask(daemon, "/api/leases", context=nobody)[0] == 401
    assert ask(daemon, "/api/leases", context=certs.client())[0] == 401
    assert ask(daemon, "/api/leases", "root", context=certs.client())[0] == 200
