# SPDX-License-Identifier: Apache-2.0
"""--max-reply-memory: what clients ask for and do not read costs a bounded amount of memory, all
connections together. The others are served meanwhile."""

import re
import socket

import pytest

from harness.limits import REPO, sanitized, wait_until
from harness.resp import Client, ReplyError

MB = 1 << 20
LIMIT_MB = 128
VALUE_MB = 16
KERNEL_MB = 4  # so much of a reply goes to the kernel's buffers at most, though nobody reads it


class Unread(Client):
    """A client that takes next to nothing from the network until it reads."""

    def __init__(self, address, **options):
        super().__init__(address, **options)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)

    def read(self, timeout=None):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MB)
        return super().read(timeout)


@pytest.fixture
def crowded(rig):
    """A daemon with a value of 16 MiB under `big`, and a hash `hash` as large."""
    daemon = rig.daemon("--max-reply-memory", LIMIT_MB, "--unfenced-writes", "allow")
    client = daemon.client()
    client("SET", "big", b"v" * (VALUE_MB * MB))
    client("HSET", "hash", *(word for i in range(16) for word in (f"f{i}", b"v" * (MB - 1000))))
    return daemon


def crowd(daemon, *command, count=30):
    """Return so many connections that have asked and do not read, once all are answered: replies
    for which there was room wait to be read, the others are refusals."""
    observer = daemon.client()
    looks = []

    def answered():
        """Count the answers, but for those to this very question."""
        looks.append(int(observer.info("stats")["commands_processed"]))
        return looks[-1] - looks[0] - (len(looks) - 1)

    clients = [Unread(daemon.address) for _ in range(count)]
    daemon.clients += clients
    answered()
    for client in clients:
        client.send(*command)
    wait_until(lambda: answered() >= count, "all were answered")
    return clients


def fill(daemon):
    """Leave replies unread until one of 8 MiB finds no room."""
    crowd(daemon, "GET", "big", count=15)
    for _ in range(30):
        room = LIMIT_MB * MB - daemon.metric("reply_bytes")
        if room < 8 * MB:
            return
        crowd(daemon, "GETRANGE", "big", 0, min(10 * MB, room - MB), count=1)
    raise AssertionError(f"there is still room for {room} bytes")


@pytest.mark.parametrize("command", [
    "GET big", "HGETALL hash", "HMGET hash " + " ".join(f"f{i}" for i in range(16)),
    *(pytest.param(command, marks=pytest.mark.slow)
      for command in ("HVALS hash", "MGET big", "GETRANGE big 0 -1"))])
def test_unread_replies_take_no_more_than_the_limit(crowded, command):
    if sanitized():
        pytest.skip("sanitized builds are larger")
    before = crowded.rss_bytes()
    clients = crowd(crowded, *command.split())
    assert crowded.peak_rss_bytes() - before < (LIMIT_MB + 4 * VALUE_MB) * MB
    assert crowded.metric("reply_bytes") <= LIMIT_MB * MB
    assert crowded.client()("PING") == "PONG", "who asks for little is served"
    assert crowded.client()("SET", "k", "v") == "OK"
    replies = [client.read() for client in clients]
    refusals = [reply for reply in replies if isinstance(reply, ReplyError)]
    assert 30 - LIMIT_MB // (VALUE_MB - KERNEL_MB) <= len(refusals) < 30
    for refusal in refusals:
        assert re.match(r"BUSY replies that clients have not read take 1[0-9]{2} of 128 MiB "
                        r"\(--max-reply-memory\)", refusal.text), refusal.text
    wait_until(lambda: crowded.metric("reply_bytes") < MB, "what was read is forgotten")
    for client in clients:
        assert client("PING") == "PONG", "the connection lives on"
    assert not isinstance(clients[-1].ask(*command.split()), ReplyError), "there is room again"


def test_a_write_whose_reply_finds_no_room_changes_nothing(crowded):
    client = crowded.client()
    commands = (("GETDEL", "a"), ("GETSET", "b", "x"), ("SET", "c", "x", "GET"))
    for _, key, *_ in commands:
        client("SET", key, b"v" * (VALUE_MB * MB))
        client.token(key)
    fill(crowded)
    for words in commands:
        key = words[1]
        token = client.lease(key)["token"]
        client.refused("BUSY", "FENCED", token, *words, text="nothing was applied")
        client("MULTI")
        client("FENCED", token, "SETRANGE", key, 0, "!")
        client("FENCED", token, *words)
        client.refused("BUSY", "EXEC")
        assert client("STRLEN", key) == VALUE_MB * MB
        assert client("GETRANGE", key, 0, 1) == b"vv"


def test_sql_finds_no_room_either_and_changes_nothing(crowded):
    client = crowded.client()
    client("SQL", "CREATE TABLE t(k TEXT PRIMARY KEY, v BLOB)")
    token = client.token("r")
    insert = "INSERT INTO t VALUES (?, zeroblob(16000000))"
    client("FENCEDALL", 1, "r", token, "SQL", insert, "a")
    fill(crowded)
    client.refused("BUSY", "SQL", "SELECT v FROM t", text="--max-reply-memory")
    client.refused("BUSY", "FENCEDALL", 1, "r", token, "SQL", insert + " RETURNING v", "b",
                   text="--max-reply-memory")
    assert client("SQL", "SELECT k FROM t")[3] == [[b"a"]]


def test_what_the_daemon_shows_of_itself_is_counted_too(crowded):
    fill(crowded)
    client = crowded.client()
    client.refused("BUSY", "ECHO", "x" * (15 * MB), text="--max-reply-memory")
    for command in (("COMMAND", "DOCS"), ("UNSUBSCRIBE",)): # their bound is smaller than any limit
        client.refused("ERR", *command, *["GET"] * 300000, text="too many arguments")
    assert client("PING") == "PONG"
    assert b"cmd=" in client("CLIENT", "LIST"), "who looks for those that do not read, finds them"


def test_who_goes_away_leaves_its_room_to_others(crowded):
    clients = crowd(crowded, "GET", "big")
    assert crowded.metric("reply_bytes") > 64 * MB
    for client in clients:
        client.close()
    wait_until(lambda: crowded.metric("reply_bytes") == 0, "what they left unread is forgotten")
    assert len(crowded.client()("GET", "big")) == VALUE_MB * MB


@pytest.mark.slow  # ten seconds of a core
def test_many_small_replies_are_bounded_too(rig):
    """A connection that does not read starts nothing more; nobody is refused for it."""
    daemon = rig.daemon("--max-reply-memory", LIMIT_MB, "--unfenced-writes", "allow",
                        "--max-connections", 2000)
    client = daemon.client()
    client("SET", "k", b"v" * 16000)
    clients = [Unread(daemon.address) for _ in range(900)]
    daemon.clients += clients
    for unread in clients:
        unread.send_bytes(b"GET k\r\n" * 300)
    most = since = 0
    while since < 300:  # until it has not grown for so many questions, however busy the machine
        client("PING")
        now, since = daemon.metric("reply_bytes"), since + 1
        if now > most:
            most, since = now, 0
            assert most <= (LIMIT_MB + 40) * MB
    if not sanitized():  # growing buffers have holes and copies: some 250 MiB are usual
        assert daemon.peak_rss_bytes() < 3 * LIMIT_MB * MB
    for unread in clients[::300]:
        for _ in range(300):
            assert len(unread.read()) == 16000


def test_the_page_tells_the_option():
    assert "--max-reply-memory" in (REPO / "proxy/server/OPERATIONS.md").read_text()


@pytest.mark.skipif(sanitized(), reason="a sanitizer keeps what was freed")
@pytest.mark.parametrize("word", ["DOCS", "INFO"])
def test_command_about_a_million_names_is_refused_before_it_is_made(rig, word):
    client = rig.daemon("--max-reply-memory", LIMIT_MB).client()
    names = ["acquireall"] * 1000000
    client.refused("ERR", "ECHO", *names)
    before = int(client.info("memory")["used_memory_peak"])
    client.refused("ERR", "COMMAND", word, *names, text="too many arguments")
    assert int(client.info("memory")["used_memory_peak"]) - before < LIMIT_MB * MB
