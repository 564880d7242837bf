# SPDX-License-Identifier: Apache-2.0
"""The audit of a real daemon: what has a line, that the chain lasts through crashes, rotations and
full disks, and what `stockade audit verify` finds.

tests/unit/server/audit_chain_test.c changes a large chain in all ways; tests/unit/engine/
audit_test.c says which replies wait.
"""

import contextlib
import hashlib
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading

import pytest

from harness.limits import BUILD, REPO, patience, sanitized, wait_until
from harness.resp import Closed, ReplyError, encode
from test_page_api import revoke

FIELDS = ["time_ms", "event", "user", "address", "resource", "token", "code", "reason", "prev"]


EVENTS = re.findall(r'^    X\(\w+, "(\w+)"\)',
                    (REPO / "proxy/engine/audit.h").read_text(), re.M)


class Audit:
    """A daemon with an audit, and its files."""

    def __init__(self, rig, tool, *options, **how):
        self.rig, self.tool, self.options, self.how = rig, tool, options, how
        self.path = rig.folder / "audit.log"
        self.start()

    def start(self):
        self.daemon = self.rig.daemon("--audit", self.path, *self.options, **self.how)
        return self.daemon

    def stop(self):
        self.daemon.close_clients()
        self.daemon.stop()

    def kill(self):
        self.daemon.close_clients()
        self.daemon.kill()

    def files(self):
        """The oldest first."""
        return [*sorted(self.rig.folder.glob("audit.log.*")), self.path]

    def lines(self):
        return [json.loads(line) for file in self.files()
                for line in file.read_bytes().splitlines()]

    def events(self, *wanted):
        return [line for line in self.lines() if line["event"] in wanted]

    def await_event(self, *wanted, count=1):
        def there():
            return len(self.whole_lines(wanted)) >= count
        wait_until(there, f"{wanted} is in the audit")
        return self.whole_lines(wanted)

    def whole_lines(self, wanted):
        found = []
        texts = []
        for file in self.files():
            with contextlib.suppress(FileNotFoundError):  # between two files of a rotation
                texts.append(file.read_bytes())
        for line in b"".join(texts).splitlines():
            with contextlib.suppress(ValueError):
                if json.loads(line)["event"] in wanted:
                    found.append(json.loads(line))
        return found

    def verify(self, *more, files=None, store=True):
        words = ["audit", "verify", *(files or self.files()), *more]
        uri = self.how.get("store", f"sqlite:{self.rig.store}")
        return self.tool.run(*words, *(["--store", uri] if store else []))

    def assert_whole(self, **how):
        done = self.verify(**how)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        assert "whole: lines 1 to " in done.stdout
        return done.stdout


def assert_chained(lines):
    """By hand, as the documentation says it."""
    before = "0" * 64
    for line in lines:
        assert json.loads(line)["prev"] == before
        before = hashlib.sha256(line).hexdigest()


def test_each_event_is_a_line_of_the_chain(rig, tool):
    password = rig.folder / "password"
    password.write_text("sesame\n")
    password.chmod(0o600)
    audit = Audit(rig, tool, "--password-file", password)
    client = audit.daemon.client()
    client.refused("WRONGPASS", "AUTH", "wrong-guess")
    client("AUTH", "sesame")
    token = client.token("sku:1", 60000, "OWNER", "till-3")
    client("FENCED", token, "SET", "sku:1", "5")
    client("RELEASE", "sku:1", token)
    client.refused("STALE", "FENCED", token, "SET", "sku:1", "4")
    client.token("sku:1", 50)
    audit.await_event("release", count=2)
    client.token("sku:1", 60000)
    client("REVOKE", "sku:1")
    client("SQL", "CREATE TABLE stock(sku TEXT PRIMARY KEY, pieces)")
    client("GUARD", "CREATE", "stock", "sku", "sku:")
    client("CONFIG", "GET", "save")
    peer = "{}:{}".format(*client.sock.getsockname())
    audit.stop()

    lines = audit.lines()
    assert all(list(line) == FIELDS for line in lines)
    told = [(line["event"], line["resource"], line["token"], line["code"], line["reason"])
            for line in lines]
    assert told[2:] == [
        ("login_failed", None, None, "WRONGPASS", None),
        ("login", None, None, None, None),
        ("grant", "sku:1", token, None, "ttl_ms=60000 owner=till-3"),
        ("release", "sku:1", token, None, "released"),
        ("refused", "sku:1", token, "STALE", "SET"),
        ("grant", "sku:1", token + 1, None, lines[7]["reason"]),
        ("release", "sku:1", token + 1, None, "expired"),
        ("grant", "sku:1", token + 2, None, lines[9]["reason"]),
        ("revoke", "sku:1", token + 2, None, "revoked"),
        ("admin", None, None, None, "SQL"),
        ("guard", "stock", None, None, "CREATE stock sku sku:"),
        ("admin", None, None, None, "CONFIG GET"),
        ("stop", None, None, None, None)]
    assert [line["event"] for line in lines[:2]] == ["chain", "start"]
    assert {line["user"] for line in lines[2:-1]} == {"default"}
    assert {line["address"] for line in lines[2:-1]} == {peer}
    assert_chained(audit.path.read_bytes().splitlines())
    assert audit.path.stat().st_mode & 0o777 == 0o600
    assert f"lines 1 to {len(lines)} " in audit.assert_whole()


def test_every_event_that_the_source_names_is_told_and_of_each_user(rig, maintenance):
    """However many come from one address."""
    users = rig.folder / "users.acl"
    users.write_text("user a on >pw ~* +@all -echo\nuser b on >pw ~* +@all -echo\n")
    users.chmod(0o600)
    audit = Audit(rig, maintenance, "--acl-file", users,
                  env={**rig.fault_env(), "FAULT_SHIM_MATCH": "audit.log"})
    for count, user in enumerate("ab"):
        client, key = audit.daemon.client(), f"sku:{user}"
        client.refused("WRONGPASS", "AUTH", user, "wrong")
        client("AUTH", user, "pw")
        token = client.token(key, 50)
        audit.await_event("release", count=2 * count + 1)
        client.renew(key, token, 60000)
        client("RELEASE", key, token)
        client.refused("STALE", "FENCED", token, "SET", key, "v")
        client.token(key)
        client("REVOKE", key)
        client.refused("NOPERM", "ECHO", "m")
        client("SQL", f"CREATE TABLE {user} (sku TEXT PRIMARY KEY, pieces)")
        client("GUARD", "CREATE", user, "sku", "sku:")
    rig.faults.order("sync EIO")
    audit.daemon.signal(signal.SIGUSR1)
    rig.faults.await_hit()
    rig.faults.clear()
    audit.await_event("gap")
    maintenance.do("backup", maintenance.copy)
    audit.stop()
    maintenance.do("restore", maintenance.copy)
    audit.start()
    audit.await_event("restore")
    audit.kill()
    with open(audit.path, "ab") as file:
        file.write(b'{"time_ms":1')
    audit.start()
    audit.await_event("torn")
    audit.stop()
    audit.path.write_bytes(b"".join(audit.path.read_bytes().splitlines(True)[:-1]))
    audit.start()
    audit.stop()

    told = audit.whole_lines(EVENTS)
    assert {line["event"] for line in told} == set(EVENTS)
    for user in "ab":
        assert {line["event"] for line in told if line["user"] == user} == {
            "login", "login_failed", "grant", "release", "resume", "refused", "revoke", "denied",
            "admin", "guard"}


@pytest.mark.parametrize("leaves", ["closes", "resets"])
def test_who_leaves_at_once_is_told_as_who_did_it(rig, tool, leaves):
    users = rig.folder / "users.acl"
    users.write_text("user holder on >pw ~* +@all\nuser other on >pw ~* +@all\n")
    users.chmod(0o600)
    audit = Audit(rig, tool, "--acl-file", users)
    holder = audit.daemon.client()
    holder("AUTH", "holder", "pw")
    names = [f"sku:{i}" for i in range(250)]
    assert len(holder("ACQUIREALL", 60000, len(names), *names)) == len(names)
    other = audit.daemon.client()
    other("AUTH", "other", "pw")
    peer = "{}:{}".format(*other.sock.getsockname())
    # Nothing is done before that.
    with rig.store_locked():
        other.sock.sendall(b"".join(encode("REVOKE", name) for name in names) +
                           encode("RESET") * (leaves == "resets"))
        assert [holder("PING"), holder("PING")] == ["PONG"] * 2  # by now it has read them
        if leaves == "closes":  # without a FIN, after which the replies would still be sent
            other.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.sock.close()
            wait_until(lambda: holder.counter("connected_clients") == 1, "it is noticed")
    audit.await_event("revoke", count=1 if leaves == "closes" else len(names))
    audit.stop()
    told = audit.events("revoke")
    assert {(line["user"], line["address"]) for line in told} == {("other", peer)}


def test_a_page_s_revoke_is_told_with_its_address_and_reason(rig, tool):
    audit = Audit(rig, tool)
    token = audit.daemon.client().token("sku:1", 60000)
    assert revoke(audit.daemon, "sku:1", token, "till 3 hangs").status == 200
    line, = audit.await_event("revoke")
    assert (line["resource"], line["token"], line["reason"]) == ("sku:1", token, "till 3 hangs")
    assert line["address"].startswith("127.0.0.1")


def test_without_a_store_the_end_is_not_checked_and_that_is_said(rig, tool):
    audit = Audit(rig, tool)
    for i in range(20):
        audit.daemon.client().token(f"r:{i}")
    audit.stop()
    assert "the end was not checked" in audit.assert_whole(store=False)
    assert "the end was not checked" not in audit.assert_whole()
    whole = audit.path.read_bytes().splitlines(True)
    cut = rig.folder / "cut.log"
    cut.write_bytes(b"".join(whole[:-3]))
    assert audit.verify(files=[cut], store=False).returncode == 0
    done = audit.verify(files=[cut])
    assert done.returncode == 1 and "the end is missing" in done.stdout
    cut.write_bytes(b"".join(whole[:5] + whole[6:]))
    done = audit.verify(files=[cut], store=False)
    assert done.returncode == 1 and f"{cut}:6: the chain breaks" in done.stdout
    report = json.loads(audit.verify("--json", files=[cut]).stdout)
    assert report["ok"] is False and f"{cut}:6:" in report["chains"][0]["why"]
    forged = cut.read_bytes().replace(b"chain ", b"chain 0", 1)
    cut.write_bytes(forged[:-1])
    assert audit.verify(files=[cut]).returncode == 1
    assert audit.verify(files=[rig.folder / "missing"]).returncode == 1
    assert audit.verify(files=[rig.store]).returncode == 1


@pytest.mark.xdist_group("postgresql")
def test_a_store_in_postgresql_knows_the_end_of_each_chain(rig, tool, database):
    audit = Audit(rig, tool, store=database.uri)
    audit.daemon.client().token("r")
    audit.stop()
    audit.start()
    assert "begins a new chain" not in audit.daemon.stderr()
    audit.daemon.client().token("r2")
    audit.stop()
    assert "the end was not checked" not in audit.assert_whole()
    whole = audit.path.read_bytes().splitlines(True)
    audit.path.write_bytes(b"".join(whole[:-1]))
    done = audit.verify()
    assert done.returncode == 1 and "the end is missing" in done.stdout
    audit.path.unlink()
    audit.start()
    assert "begins a new chain" in audit.daemon.stderr()
    audit.stop()
    assert "of which no file was given" in audit.assert_whole()


def test_a_chain_that_the_store_has_never_seen_is_not_whole(rig, tool):
    audit = Audit(rig, tool)
    audit.daemon.client().token("r")
    audit.stop()
    audit.path.rename(rig.folder / "taken-away")
    audit.start()
    assert "begins a new chain" in audit.daemon.stderr()
    audit.stop()
    told = audit.assert_whole()
    assert "of which no file was given" in told
    audit.path.write_bytes((rig.folder / "taken-away").read_bytes())
    other = rig.folder / "other.db"
    rig.daemon(store=f"sqlite:{other}").stop()
    done = tool.run("audit", "verify", audit.path, "--store", f"sqlite:{other}")
    assert done.returncode == 1 and "has never seen this chain" in done.stdout


class Cycles:
    """Clients that take and give leases until they are stopped, or the daemon is."""

    def __init__(self, daemon, clients=4):
        self.done, self.ended, self.failure = 0, threading.Event(), None
        self.threads = [threading.Thread(target=self._run, args=(daemon.client(), i))
                        for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self, client, number):
        with contextlib.suppress(OSError, Closed):
            while not self.ended.is_set():
                token = client.token(f"load:{number}", 60000, "OWNER", f"load:{number}")
                client("RELEASE", f"load:{number}", token)
                self.done += 1

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def test_kill_9_under_load_leaves_a_chain_that_goes_on(rig, tool):
    audit = Audit(rig, tool)
    for starts in range(1, 4):
        cycles = Cycles(audit.daemon)
        wait_until(lambda: cycles.done >= 200, "some cycles are done")
        audit.await_event("start", count=starts)
        audit.kill()
        cycles.stop()
        done = audit.verify(files=[audit.path])
        assert done.returncode == 0, done.stdout
        audit.start()
    audit.stop()
    audit.assert_whole()
    assert len(audit.events("start")) == 4


def test_what_is_durable_is_in_the_file_before_its_reply(rig, tool):
    audit = Audit(rig, tool, "--audit-durable", "grant")
    client = audit.daemon.client()
    for i in range(30):
        client.token(f"r:{i}", 60000)
        assert f'"r:{i}"' in audit.path.read_text().splitlines()[-1]
    info = client.info("audit")
    assert int(info["audit_syncs"]) >= 30 and info["audit_up"] == "1"
    audit.kill()
    audit.start()
    audit.stop()
    assert len(audit.events("grant")) == 30


def test_replies_of_durable_events_wait_for_the_disk_and_no_others(rig, tool):
    env = {**rig.fault_env(), "FAULT_SHIM_MATCH": "audit.log"}
    audit = Audit(rig, tool, "--audit-durable", "grant,release", env=env)
    waits, other = audit.daemon.client(), audit.daemon.client()
    token = other.token("other", 60000)
    rig.faults.order("sync stall")
    waits.send("ACQUIRE", "r", 60000)
    rig.faults.await_hit()
    assert other("FENCED", token, "SET", "other", "v") == "OK"
    with pytest.raises(TimeoutError):
        waits.sock.settimeout(0.05)
        waits.sock.recv(1)
    rig.faults.clear()
    waits.sock.settimeout(patience(10))
    assert waits.read()[0] == 1
    groups = int(other.info("audit")["audit_syncs"])
    clients = [audit.daemon.client() for _ in range(20)]
    rig.faults.order("sync stall")
    for i, client in enumerate(clients):
        client.send("ACQUIRE", f"many:{i}", 60000)
    rig.faults.await_hit()
    wait_until(lambda: int(other.info("stats")["leases_granted"]) == 22, "all are granted")
    rig.faults.clear()
    for client in clients:
        assert client.read()[0] == 1
    assert int(other.info("audit")["audit_syncs"]) - groups <= 3, "one sync for a group of replies"


def test_the_page_is_answered_when_its_line_is_on_the_disk(rig, tool):
    env = {**rig.fault_env(), "FAULT_SHIM_MATCH": "audit.log"}
    audit = Audit(rig, tool, "--audit-durable", "revoke", env=env)
    client = audit.daemon.client()
    token = client.token("r", 60000)
    rig.faults.order("sync stall")
    answers = []
    page = threading.Thread(target=lambda: answers.append(revoke(audit.daemon, "r", token)))
    page.start()
    rig.faults.await_hit()
    wait_until(lambda: client.info("stats")["leases_revoked"] == "1", "it is revoked")
    assert client("FENCED", client.token("other", 60000), "SET", "other", "v") == "OK"
    assert not answers
    rig.faults.clear()
    page.join(patience(10))
    assert [answer.status for answer in answers] == [200]
    assert '"revoke"' in audit.path.read_text()


def test_a_page_that_has_waited_too_long_is_told_no_more_than_others(rig, tool):
    env = {**rig.fault_env(), "FAULT_SHIM_MATCH": "audit.log"}
    audit = Audit(rig, tool, "--audit-durable", "revoke", env=env)
    client = audit.daemon.client()
    token = client.token("r", 60000)
    rig.faults.order("sync stall")
    answer = revoke(audit.daemon, "r", token)
    assert answer.status == 503 and "look again" in answer.json["error"]
    rig.faults.clear()
    audit.await_event("revoke")
    assert revoke(audit.daemon, "r", token).status == 409, "it has ended already"


def test_heads_are_of_synced_lines_only(rig, tool):
    """Or a loss of power would look like a forgery."""
    audit, client, token = failing(rig, tool, "sync EIO")
    client("RELEASE", "held", token)
    audit.await_event("release")  # written, and not synced
    lines = len(audit.path.read_bytes().splitlines())
    client.token("other", 60000)
    audit.await_event("grant", count=2)
    assert int(client.info("audit")["audit_lines"]) < lines
    rig.faults.clear()
    audit.daemon.signal(signal.SIGUSR1)  # a file that is done with is synced
    wait_until(lambda: int(client.info("audit")["audit_lines"]) > lines, "it is synced again")


def test_a_disk_that_hangs_does_not_keep_a_stop_from_being_cut_short(rig, tool):
    env = {**rig.fault_env(), "FAULT_SHIM_MATCH": "audit.log"}
    audit = Audit(rig, tool, env=env)
    client = audit.daemon.client()
    client.token("r", 60000)
    audit.await_event("grant")
    rig.faults.order("sync stall")
    audit.daemon.signal(signal.SIGTERM)
    rig.faults.await_hit()
    audit.daemon.signal(signal.SIGTERM)
    audit.daemon.expected_status = 1
    assert audit.daemon.wait() == 1
    assert "second signal" in audit.daemon.stderr()


def failing(rig, tool, order, *options):
    env = {**rig.fault_env(), "FAULT_SHIM_MATCH": "audit.log"}
    audit = Audit(rig, tool, *options, env=env)
    client = audit.daemon.client()
    token = client.token("held", 60000)
    audit.await_event("grant")
    rig.faults.order(order)
    return audit, client, token


@pytest.mark.parametrize("order, said", [("write ENOSPC", "No space left on device"),
                                         ("sync EIO", "Input/output error")])
def test_durable_events_are_refused_while_the_disk_fails(rig, tool, order, said):
    audit, client, token = failing(rig, tool, order, "--audit-durable", "grant,release,revoke")
    first = audit.daemon.client()
    with pytest.raises((Closed, ConnectionError)):  # granted, but nobody is told
        first("ACQUIRE", "first", 60000)
    wait_until(lambda: client.info("audit")["audit_up"] == "0", "the daemon has noticed")
    assert said in client.info("audit")["audit_detail"]
    client.refused("STORE", "ACQUIRE", "second", 60000, text="the audit cannot be written")
    client.refused("STORE", "RELEASE", "held", token, text=said)
    assert revoke(audit.daemon, "held", token).status == 503
    assert client("FENCED", token, "SET", "held", "v") == "OK", "what is not durable goes on"
    assert client.renew("held", token, 60000)
    assert audit.daemon.metric("audit_up") == 0
    health = json.loads(audit.daemon.get("/health")[2])
    assert health["audit"]["up"] is False and said in health["audit"]["detail"]
    assert audit.daemon.get("/ready")[0] == 503
    assert said in audit.daemon.stderr()
    rig.faults.clear()
    wait_until(lambda: client.info("audit")["audit_up"] == "1", "it is written again")
    client.token("second", 60000)
    audit.stop()
    audit.assert_whole()
    assert [line["resource"] for line in audit.events("grant")] == ["held", "first", "second"]
    assert len(audit.events("gap")) == (1 if order.startswith("sync") else 0)


def test_a_full_disk_tears_no_line(rig, tool):
    """A real limit on the file's size, which takes half of a write."""
    audit = Audit(rig, tool)
    client = audit.daemon.client()
    audit.await_event("start")
    limit = audit.path.stat().st_size + 333
    resource.prlimit(audit.daemon.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for i in range(20):
        client.ask("AUTH", f"no password {i}")
    wait_until(lambda: client.info("audit")["audit_up"] == "0", "the disk is full")
    assert audit.path.stat().st_size == limit, "half a line was taken"
    assert client("PING") == "PONG"
    resource.prlimit(audit.daemon.pid, resource.RLIMIT_FSIZE,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_until(lambda: client.info("audit")["audit_up"] == "1", "there is room again")
    assert len(audit.await_event("login_failed", count=20)) == 20
    audit.stop()
    told = audit.assert_whole()
    assert "tore" not in told


@pytest.mark.slow
def test_events_beyond_the_queue_are_dropped_counted_and_told(rig, tool):
    audit, client, _ = failing(rig, tool, "write ENOSPC")
    user = "u" * 120
    while int(client.info("audit")["audit_lost"]) < 100:
        client.pipeline([("AUTH", user, "x")] * 1000)
    rig.faults.clear()
    wait_until(lambda: client.info("audit")["audit_up"] == "1", "there is room again")
    gap, = audit.await_event("gap")
    audit.stop()
    lost = int(re.match(r"(\d+) events are missing here", gap["reason"])[1])
    assert lost >= 100
    assert "events that could not be written: 1" in audit.assert_whole()


def test_a_torn_line_is_told_and_the_chain_goes_on(rig, tool):
    audit = Audit(rig, tool)
    audit.daemon.client().token("r", 60000)
    audit.await_event("grant")
    audit.kill()
    with open(audit.path, "ab") as file:  # as a crash within a write leaves it
        file.write(b'{"time_ms":1795598566499,"event":"gra')
    assert "the last line has no end" in audit.verify(store=False).stdout
    audit.start()
    assert "torn bytes" in audit.daemon.stderr()
    audit.stop()
    assert "a crash tore a line: 1" in audit.assert_whole()
    audit.path.write_bytes(audit.path.read_bytes().replace(b'"event":"gra\n', b'"event":"grA\n'))
    assert audit.verify().returncode == 1, "nor can the torn bytes be changed"


@pytest.mark.parametrize("store, said", [
    ("postgresql://nobody@127.0.0.1:1/none", "connection to server"),
    ("sqlite:/nowhere/stockade.db", "/nowhere/stockade.db")])
def test_verify_says_why_a_store_tells_it_no_heads(tool, tmp_path, store, said):
    (tmp_path / "audit").write_text("")
    done = tool.run("audit", "verify", tmp_path / "audit", "--store", store)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("stockade audit verify: ") and said in done.stderr


def test_a_last_line_without_its_end_is_a_line_for_verify_and_for_the_next_start(rig, tool):
    audit = Audit(rig, tool)
    audit.daemon.client().token("r", 60000)
    audit.await_event("grant")
    audit.kill()
    whole = audit.path.read_bytes()
    told = audit.assert_whole()
    os.truncate(audit.path, len(whole) - 1)
    assert audit.assert_whole() == told
    audit.start()
    assert "torn bytes" not in audit.daemon.stderr()
    audit.stop()
    assert audit.path.read_bytes().startswith(whole)
    assert "a crash tore a line" not in audit.assert_whole()


def test_a_first_line_without_its_end_belongs_to_its_chain(rig, tool):
    audit = Audit(rig, tool)
    audit.daemon.signal(signal.SIGUSR1)
    wait_until(lambda: len(audit.files()) == 2, "the audit goes on in a new file")
    audit.stop()
    audit.path.write_bytes(audit.path.read_bytes().splitlines()[0])
    assert "in 2 files" in audit.assert_whole(store=False)


def test_a_file_whose_first_line_was_torn_begins_anew(rig, tool):
    audit = Audit(rig, tool)
    audit.stop()
    audit.path.write_bytes(audit.path.read_bytes()[:40])
    audit.start()
    audit.stop()
    audit.assert_whole()


def test_a_file_that_was_cut_while_the_daemon_was_down_is_told_for_ever(rig, tool):
    audit = Audit(rig, tool)
    for i in range(5):
        audit.daemon.client().token(f"r:{i}")
    audit.stop()
    whole = audit.path.read_bytes().splitlines(True)
    audit.path.write_bytes(b"".join(whole[:-3]))
    audit.start()
    assert "is not as the store has seen it" in audit.daemon.stderr()
    for i in range(5):
        audit.daemon.client().token(f"s:{i}")
    audit.stop()
    for how in ({}, {"store": False}):
        done = audit.verify(**how)
        assert done.returncode == 1 and "lines 7 to 9 were here" not in done.stdout.split(":", 1)[0]
        assert "found here that the file had been changed" in done.stdout


def test_rotation_by_size_under_load_carries_the_chain_on(rig, tool):
    audit = Audit(rig, tool, "--audit-max-size", "1")
    cycles = Cycles(audit.daemon, clients=8)
    wait_until(lambda: len(audit.files()) >= 3, "two files were full")
    cycles.stop()
    done = cycles.done
    audit.stop()
    audit.assert_whole()
    assert len(audit.events("grant")) == len(audit.events("release")) == done
    assert audit.verify(files=[audit.files()[0], *audit.files()[2:]]).returncode == 1
    told = audit.verify(files=audit.files()[1:])
    assert told.returncode == 0 and "are in files that were not given" in told.stdout


def test_sigusr1_and_logrotate_carry_the_chain_on(rig, tool):
    audit = Audit(rig, tool, "--audit-durable", "grant")
    client = audit.daemon.client()
    client.token("a", 60000)
    audit.daemon.signal(signal.SIGUSR1)  # alone: the daemon names the old file itself
    wait_until(lambda: len(audit.files()) == 2, "it was rotated")
    client.token("b", 60000)
    moved = rig.folder / "audit.log.old"
    audit.path.rename(moved)
    client.token("c", 60000)  # still there
    audit.path.touch(mode=0o600)  # logrotate's `create`
    audit.daemon.signal(signal.SIGUSR1)
    wait_until(lambda: audit.path.stat().st_size > 0, "it goes on there")
    client.token("d", 60000)
    first, = rig.folder.glob("audit.log.0*")
    assert '"c"' in moved.read_text() and '"d"' in audit.path.read_text()
    audit.stop()
    audit.assert_whole(files=[moved, audit.path, first])
    assert first.name == "audit.log.000000000001"


def test_a_sync_that_fails_before_a_rotation_is_told(rig, tool):
    audit, client, _ = failing(rig, tool, "sync EIO")
    client.token("other", 60000)
    audit.await_event("grant", count=2)
    audit.daemon.signal(signal.SIGUSR1)
    rig.faults.await_hit()
    rig.faults.clear()
    gap, = audit.await_event("gap")
    assert "a sync failed" in gap["reason"]
    wait_until(lambda: len(audit.files()) == 2, "it was rotated all the same")
    audit.stop()
    audit.assert_whole()


@pytest.mark.parametrize("content", [b"a secret without an end", b"\0" * 5000])
def test_a_file_that_was_never_an_audit_is_left_as_it_is(rig, content):
    path = rig.folder / "file"
    path.write_bytes(content)
    daemon = rig.start("--audit", path)
    daemon.expected_status = 1
    assert daemon.wait() == 1
    assert "is not an audit" in daemon.stderr()
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"{", b"\0" * 100])
def test_a_file_in_which_a_crash_left_no_line_is_begun(rig, tool, content):
    path = rig.folder / "audit.log"
    path.write_bytes(content)
    audit = Audit(rig, tool)
    audit.stop()
    audit.assert_whole()


def test_a_file_with_something_else_in_it_is_not_gone_on_in(rig, tool):
    audit = Audit(rig, tool, "--audit-durable", "grant")
    audit.path.rename(rig.folder / "audit.log.1")
    audit.path.write_text("notes\n")
    audit.daemon.signal(signal.SIGUSR1)
    wait_until(lambda: "has something in it already" in audit.daemon.stderr(), "it is told")
    audit.daemon.client().token("a", 60000)
    assert audit.path.read_text() == "notes\n"
    assert '"a"' in (rig.folder / "audit.log.1").read_text()
    audit.stop()
    daemon = rig.start("--audit", audit.path)
    assert daemon.wait() == 1
    daemon.expected_status = 1
    assert "is not an audit" in daemon.stderr()


def test_one_process_has_an_audit(rig, tool):
    audit = Audit(rig, tool)
    second = rig.start("--audit", audit.path, store=f"sqlite:{rig.folder}/other.db")
    second.expected_status = 1
    assert second.wait() == 1
    assert "is another process's audit" in second.stderr()


def test_wrong_events_are_a_wrong_option(rig):
    daemon = rig.start("--audit", rig.folder / "a", "--audit-durable", "grant,granted")
    daemon.expected_status = 2
    assert daemon.wait() == 2
    assert '"granted" is no event; expected all, or some of login,login_failed,grant' in (
        daemon.stderr())


def test_a_restore_is_told_and_takes_no_head_back(rig, maintenance):
    audit = Audit(rig, maintenance)
    audit.daemon.client().token("r", 60000)
    maintenance.do("backup", maintenance.copy)
    for i in range(10):
        audit.daemon.client().token(f"r:{i}", 60000)
    audit.stop()
    whole = audit.path.read_bytes()
    maintenance.do("restore", maintenance.copy)
    audit.assert_whole()
    audit.path.write_bytes(b"".join(whole.splitlines(True)[:8]))
    assert audit.verify().returncode == 1, "the restored store knows the head of today"
    audit.path.write_bytes(whole)
    audit.start()
    audit.await_event("restore")
    audit.stop()
    audit.assert_whole()
    audit.start()
    audit.stop()
    assert len(audit.events("restore")) == 1, "told once"


def test_why_reads_a_past_night_and_tells_what_the_daemon_would_have(rig, tool):
    audit = Audit(rig, tool)
    ann, ben = audit.daemon.client(), audit.daemon.client()
    first = ann.token("sku:42", 200, "OWNER", "ann")
    ann("FENCED", first, "SET", "sku:42", "5")
    second = ben.token("sku:42", 60000, "OWNER", "ben", "WAIT", 10000)
    ann.refused("STALE", "FENCED", first, "SET", "sku:42", "4")
    ben("REVOKE", "sku:42")
    ben.token("other", 60000)
    ben.refused("NOTOKEN", "SET", "other", "v")
    told = json.loads(tool.output("-u", audit.daemon.uri, "why", "sku:42", "--json"))
    audit.stop()
    night = json.loads(tool.output("why", "sku:42", "--audit", audit.path, "--json"))
    for now, then in zip(told["history"], night["history"], strict=True):
        for field in ("token", "owner", "user", "address", "ttl_ms", "end", "refused"):
            assert then[field] == now[field], field
        assert then["writes"] is None
        for field in ("granted_ms", "ended_ms"):
            assert abs(then[field] - now[field]) < 2000, field
    for now, then in zip(told["refusals"], night["refusals"], strict=True):
        for field in ("token", "code", "command", "address", "ended", "newest", "newest_owner"):
            assert then[field] == now[field], field
        assert then["late_ms"] is not None
    text = tool.output("why", "sku:42", "--audit", audit.path)
    assert '"sku:42": 2 leases and 1 refused command' in text
    assert f'got token {first} for 200 ms, it expired after ' in text
    assert f'Token {second} of "ben"' in text
    assert "writes" not in text
    both = tool.output("why", "--audit", audit.path)
    assert 'SET of "sku:42"' in both and 'SET of "other"' in both
    assert tool.run("why", "nothing", "--audit", audit.path).returncode == 3
    assert tool.run("why", "r", "--audit", audit.path, "--log", audit.path).returncode == 2


@pytest.mark.skipif(sanitized(), reason="a sanitizer needs more memory than that")
def test_of_one_resource_why_keeps_nothing_of_the_others(tmp_path):
    """However many there are: the grants of 60,000 would not fit into the memory that it gets."""
    path = tmp_path / "audit"
    line = ('{"time_ms": %d, "event": "grant", "resource": "r:%d", "token": 1,'
            ' "reason": "ttl_ms=100 owner=ann"}\n')
    path.write_text("".join(line % (1700000000000 + n, n) for n in range(60000)))
    bytes_max = 60 << 20
    done = subprocess.run(
        [BUILD / "stockade", "why", "r:7", "--audit", path, "--json"], capture_output=True,
        text=True, timeout=60, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (bytes_max, bytes_max)))
    assert done.returncode == 0, done
    assert [hold["owner"] for hold in json.loads(done.stdout)["history"]] == ["ann"]


def test_sql_sees_no_heads(rig, tool):
    audit = Audit(rig, tool)
    client = audit.daemon.client()
    for statement in ("SELECT * FROM stockade_audit", "DELETE FROM stockade_audit",
                      "DROP TABLE stockade_audit", "UPDATE stockade_audit SET lines = 1"):
        assert isinstance(client.ask("SQL", statement), ReplyError)


def test_the_head_is_in_info_and_in_the_metrics(rig, tool):
    audit = Audit(rig, tool, "--audit-durable", "all")
    client = audit.daemon.client()
    client.token("r", 60000)
    last = audit.path.read_bytes().splitlines()
    info = client.info("audit")
    assert info["audit"] == "1" and info["audit_detail"] == "ok"
    assert int(info["audit_lines"]) == len(last)
    assert info["audit_head"] == hashlib.sha256(last[-1]).hexdigest()
    metrics = audit.daemon.get("/metrics")[2]
    assert (f'stockade_audit_head{{chain="{info["audit_chain"]}",hash="{info["audit_head"]}"}} '
            f"{len(last)}") in metrics
    audit.stop()
    assert f"head {hashlib.sha256(audit.path.read_bytes().splitlines()[-1]).hexdigest()}" in (
        audit.daemon.stderr())


@pytest.mark.slow
def test_a_thousand_random_changes_are_found():
    env = {**os.environ, "STOCKADE_AUDIT_CHANGES": "1000"}
    done = subprocess.run([BUILD / "tests/unit/server/audit_chain_test"], env=env, text=True,
                          capture_output=True, timeout=patience(600), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
