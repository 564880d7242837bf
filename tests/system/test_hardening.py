# SPDX-License-Identifier: Apache-2.0
"""Secrets are shown nowhere, and the daemon drops what it does not need."""

import base64
import re
import urllib.error
import urllib.request

import pytest

from harness.limits import HANG_SECONDS, patience, sanitized, wait_until
from harness.resp import ReplyError

PASSWORD, LEASE_PASSWORD, GUESS = "open-sesame-1", "redis-sesame-2", "guessed-sesame-3"
SECRETS = re.compile(f"{PASSWORD}|{LEASE_PASSWORD}|{GUESS}")


@pytest.fixture
def guarded(rig):
    """A daemon that has a password and gives one to its lease service."""
    password = rig.folder / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    redis = rig.redis()
    redis("CONFIG", "SET", "requirepass", LEASE_PASSWORD)
    redis.password = LEASE_PASSWORD
    return rig.daemon("--password-file", password, "--log-level", "debug",
                      "--audit", rig.folder / "audit.log",
                      lease=f"redis://:{LEASE_PASSWORD}@127.0.0.1:{redis.address[1]}")


def text_of(reply):
    if isinstance(reply, (list, tuple)):
        return " ".join(map(text_of, reply))
    if isinstance(reply, dict):
        return " ".join(text_of(each) for pair in reply.items() for each in pair)
    if isinstance(reply, ReplyError):
        return reply.text
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def shown(daemon, rig):
    """All that somebody may read of a daemon, by where it stands."""
    client = daemon.client()
    yield "a wrong AUTH", text_of(client.ask("AUTH", GUESS))
    yield "a wrong AUTH with a name", text_of(client.ask("AUTH", "till-3", GUESS))
    yield "a wrong HELLO", text_of(client.ask("HELLO", "3", "AUTH", "default", GUESS))
    yield "HELLO", text_of(client.ask("HELLO", "2", "AUTH", "default", PASSWORD))
    client.token("sku:1", 60000)
    for command in (("INFO", "everything"), ("CONFIG", "GET", "*"), ("CLIENT", "LIST"),
                    ("CLIENT", "INFO"), ("AUTH",), ("AUTH", "a", "b", GUESS), ("COMMAND",),
                    ("HISTORY", "sku:1"), ("REFUSALS",)):
        yield " ".join(command[:2]), text_of(client.ask(*command))
    login = base64.b64encode(f"ann:{GUESS}".encode()).decode()
    for path in ("/", "/health", "/ready", "/metrics", "/api/state", "/api/leases"):
        yield path, daemon.get(path)[2]
        asked = urllib.request.Request("http://{}:{}{}".format(*daemon.admin, path),
                                       headers={"Authorization": "Basic " + login})
        try:
            with urllib.request.urlopen(asked, timeout=patience(HANG_SECONDS)) as answer:
                yield path, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                yield path, refusal.read().decode()
    for name in ("cmdline", "comm", "status"):
        with open(f"/proc/{daemon.pid}/{name}", "rb") as file:
            yield name, file.read().decode()
    wait_until(lambda: '"user":"ann"' in (rig.folder / "audit.log").read_text(), "it is there")
    yield "the audit", (rig.folder / "audit.log").read_text()
    yield "the log", daemon.stderr()


def test_no_secret_is_shown_anywhere(guarded, rig):
    places = list(shown(guarded, rig))
    assert len(places) > 25
    for place, text in places:
        assert not SECRETS.search(text), f"{place} shows a secret"
    told = dict(places)
    assert told["HELLO"] and "redis://***@127.0.0.1" in told["cmdline"]
    assert '"user":"till-3"' in told["the audit"] and '"user":"ann"' in told["the audit"]


@pytest.mark.skipif(sanitized(), reason="a sanitizer's own memory is far too large to be read")
def test_a_wrong_password_does_not_stay_in_the_memory(guarded):
    client = guarded.client()
    for size in range(100, 300, 10):  # too long to be overwritten by what follows
        client.refused("WRONGPASS", "AUTH", GUESS * size)
    client("AUTH", PASSWORD)
    client.pipeline([("PING",)] * 1000)  # the sockets' buffer serves all connections
    with open(f"/proc/{guarded.pid}/maps", encoding="ascii") as maps, \
            open(f"/proc/{guarded.pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            first, last, flags = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if "rw" not in flags or "[v" in line:
                continue
            memory.seek(int(first, 16))
            assert GUESS.encode() not in memory.read(int(last, 16) - int(first, 16)), line


def limits_of(daemon):
    with open(f"/proc/{daemon.pid}/limits", encoding="ascii") as limits:
        return re.search(r"Max core file size\s+(\S+)", limits.read())[1]


def status_of(daemon, field):
    with open(f"/proc/{daemon.pid}/status", encoding="ascii") as status:
        return re.search(rf"^{field}:\s+(\S+)$", status.read(), re.M)[1]


def test_it_gains_no_rights_any_more_and_leaves_no_core_with_secrets(guarded, rig):
    wrapper = ("prlimit", "--core=1000000:unlimited")
    plain = rig.daemon(store=f"sqlite:{rig.folder}/plain.db", wrapper=wrapper)
    for daemon in (guarded, plain):
        assert status_of(daemon, "NoNewPrivs") == "1"
    assert limits_of(guarded) == "0"
    if not sanitized():  # a sanitizer has its own mind of cores
        assert limits_of(plain) == "1000000", "without a secret it is the system's choice"
