# SPDX-License-Identifier: Apache-2.0
"""The protocol itself: RESP2, RESP3, inline, pipelines; malformed, oversized, cut off, dribbled."""

import contextlib
import random
import select
import socket
import time

import pytest

from harness.limits import patience, wait_until, within
from harness.resp import Closed, ReplyError, encode, tcp
from harness.threads import Beside

BROKEN = [
    b"*1\r\n:5\r\n", b"*3\r\n$3\r\nSET\r\n+k\r\n", b"*abc\r\n", b"*1x\r\n", b"*\r\n",
    b"*99999999999999999999\r\n", b"*1\r\n$abc\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$\r\n",
    b"*1\r\n$99999999999999999999\r\n", b"*1\r\n$4294967296\r\n", b'SET k "abc\r\n',
    b"SET k 'abc\r\n", b'SET k "a"b\r\n', b"*" + b"1" * 70000, b"x" * 70000,
    b"*1\r\n$" + b"1" * 70000,
]
PASSED_OVER = [b"*0\r\n", b"*-1\r\n", b"\r\n", b"\n", b"   \r\n", b"*0\r\n*0\r\n\r\n"]
INLINE = [b"SET %s inline\r\n", b"set  %s   spaced  \r\n", b"SET %s newline\n",
          b'SET %s "quoted \\x41\\n\\"\\\\"\r\n', b"SET %s 'single \\' \\n'\r\n",
          b'SET %s ""\r\n', b'"SET" "%s" v\r\n', b"SET %s \xff\xfe\r\n"]


@pytest.fixture(scope="module")
def redis(shared_unfenced):
    return shared_unfenced.rig.redis()


def last_words(client):
    """Return the replies until the server closes."""
    replies = []
    with pytest.raises(Closed):
        while True:
            replies.append(client.read(3))
    return replies


@pytest.mark.parametrize("data", BROKEN, ids=lambda d: repr(d)[:40])
def test_a_broken_request_gets_redis_error_and_the_connection_is_closed(unfenced, redis, data):
    ours, theirs = unfenced.client(), redis.client()
    for client in (ours, theirs):
        client.send_bytes(encode("ECHO", "before") + data)
    words, others = last_words(ours), last_words(theirs)
    assert words[0] == b"before"
    assert [word.text for word in words[1:]] == [word.text for word in others[1:]]
    assert words[1].code == "ERR"
    assert unfenced.client()("PING") == "PONG"


@pytest.mark.parametrize("data", [b"*100000000\r\n", b"*2000000000\r\n",
                                  b"*2\r\n$4\r\nECHO\r\n$536870912\r\n", b"*1\r\n$17000000\r\n"])
def test_a_huge_announcement_takes_no_memory(unfenced, data):
    before = unfenced.peak_rss_bytes()
    clients = [unfenced.client() for _ in range(20)]
    for client in clients:
        client.send_bytes(data)
    assert unfenced.client()("PING") == "PONG"
    for client in clients:
        with contextlib.suppress(TimeoutError, Closed):
            assert client.read(0.05 / patience(1)).code == "ERR"
    assert unfenced.peak_rss_bytes() - before < 8 << 20


def test_a_bulk_string_without_its_end_is_refused(unfenced, key):
    """Redis takes this; a parser that lost its place must not."""
    client = unfenced.client()
    client.send_bytes(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$3\r\nabcXY*1\r\n$4\r\nPING\r\n" %
                      (len(key), key.encode()))
    words = last_words(client)
    assert len(words) == 1 and words[0].code == "ERR"
    assert unfenced.client()("EXISTS", key) == 0


@pytest.mark.parametrize("data", PASSED_OVER, ids=repr)
def test_empty_requests_are_passed_over(unfenced, data):
    client = unfenced.client()
    client.send_bytes(data + encode("PING") + data + encode("ECHO", "x"))
    assert [client.read(), client.read()] == ["PONG", b"x"]


@pytest.mark.parametrize("line", INLINE, ids=repr)
def test_inline_commands_are_taken_as_redis_takes_them(unfenced, redis, key, line):
    values = []
    for server in (unfenced, redis):
        client = server.client()
        client.send_bytes(line % key.encode())
        assert client.read() == "OK"
        values.append(client("GET", key))
    assert values[0] == values[1]


def test_inline_and_resp_requests_mix_in_one_pipeline(unfenced):
    client = unfenced.client()
    client.send_bytes(b"PING\r\n" + encode("ECHO", "a") + b"ECHO b\n" + encode("PING", "c"))
    assert [client.read() for _ in range(4)] == ["PONG", b"a", b"b", b"c"]


@pytest.mark.parametrize("stop_at", [1, 4, 9, 20, 33])
def test_a_truncated_request_changes_nothing(unfenced, key, stop_at):
    data = encode("SET", key, "value")[:-2]
    client = unfenced.client()
    client.send_bytes(data[:stop_at] if stop_at < 33 else data)
    client.close()
    assert unfenced.client()("EXISTS", key) == 0


def test_a_request_that_arrives_byte_by_byte_is_taken(client, token, key):
    client.dribble(encode("FENCED", token, "SET", key, "a\r\nb") + b"GET " + key.encode() + b"\r\n")
    assert [client.read(), client.read()] == ["OK", b"a\r\nb"]


def test_slow_dribblers_do_not_hold_up_others(local):
    dribblers = [local.client() for _ in range(30)]
    for client in dribblers:
        client.send_bytes(b"*2\r\n$4\r\nEC")
    client = local.client()
    with within(patience(5)):
        for _ in range(100):
            assert client("PING") == "PONG"
    for dribbler in dribblers:
        dribbler.send_bytes(b"HO\r\n$1\r\nx\r\n")
        assert dribbler.read() == b"x"


def test_pipelined_replies_come_in_order_whatever_they_need(client, token, key):
    commands, expected = [], []
    for i in range(300):
        commands += [("FENCED", token, "SET", key, i), ("GET", key), ("ECHO", i), ("NOSUCH",),
                     ("FENCED", token, "INCR", key), ("RENEW", key, token, 50000),
                     ("FENCED", token + 1, "SET", key, "x"), ("LEASE", key), ("SET", key, "bare")]
        number = b"%d" % i
        expected += ["OK", number, number, "ERR", i + 1, int, "UNKNOWN", list, "NOTOKEN"]
    replies = client.pipeline(commands)
    assert all(0 < left_ms <= 50000 for left_ms in replies[5::9])
    replies[5::9] = [type(left_ms) for left_ms in replies[5::9]]
    got = [reply.code if isinstance(reply, ReplyError) else
           list if isinstance(reply, list) else reply for reply in replies]
    assert got == expected


def test_every_connection_reads_writes_that_were_acknowledged_before(daemon, key):
    writer, reader = daemon.client(), daemon.client()
    token = writer.token(key)
    for i in range(300):
        writer.fenced(token, "SET", key, i)
        assert reader("GET", key) == b"%d" % i


def test_random_splits_of_a_stream_give_the_same_replies(unfenced, key):
    chance = random.Random(7)
    stream = b"".join(encode("APPEND", key, "x" * (i % 7)) for i in range(200)) + b"STRLEN " + \
        key.encode() + b"\r\n"
    client = unfenced.client()
    while stream:
        size = chance.choice((1, 2, 3, 10, 100, 1000))
        client.send_bytes(stream[:size])
        stream = stream[size:]
    replies = [client.read() for _ in range(201)]
    assert replies[-1] == replies[-2] == sum(i % 7 for i in range(200))


def test_random_bytes_do_no_harm(unfenced):
    chance = random.Random(42)
    for _ in range(150):
        sock = tcp(unfenced.address)
        data = bytes(chance.choice(b"*$:+-\r\n0123456789 \"'abc\x00\xff")
                     for _ in range(chance.randint(1, 400)))
        with sock, contextlib.suppress(OSError):
            sock.sendall(data)
            sock.sendall(b"\r\n")
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.02)
            sock.recv(65536)
    assert unfenced.client()("PING") == "PONG"


@pytest.mark.parametrize("size", [0, 1, 65536, 1 << 20, 8 << 20])
def test_values_of_any_size_come_back_whole(unfenced, key, size):
    client = unfenced.client()
    value = random.Random(size).randbytes(size)
    assert client("SET", key, value) == "OK"
    assert client("GET", key) == value
    assert client("STRLEN", key) == size
    client("DEL", key)


VALUE_MAX = 16 << 20
REQUEST_MAX = 17 << 20


def test_a_value_has_exactly_16_mib_at_most(unfenced, key):
    """To the byte, however much else the request carries."""
    client = unfenced.client()
    value = b"v" * VALUE_MAX
    name, field = key.ljust(512, "k"), "f" * 512
    assert client("SET", name, value) == "OK"
    assert client("STRLEN", name) == VALUE_MAX and client("GET", name) == value
    assert client("HSET", "h" + key, field, value) == 1
    assert client("HSTRLEN", "h" + key, field) == VALUE_MAX
    assert client("SET", name, value[1:]) == "OK" and client("APPEND", name, "w") == VALUE_MAX
    client.refused("ERR", "APPEND", name, "w", text="maximum allowed size")
    token = client.token(name)
    names = [f"{key}{i}".ljust(512, "r") for i in range(1023)]
    tokens = [grant[0] for grant in client.pipeline([("ACQUIRE", n, 60000) for n in names])]
    claims = [word for claim in zip(names, tokens) for word in claim]
    assert client("FENCED", token, "ID", "i" * 512, "SET", name, value) == "OK"
    assert client("FENCEDALL", 1024, name, token, *claims, "ID", "i" * 511,
                  "SET", name, value) == "OK"
    client("MULTI")
    assert client("FENCED", token, "SET", name, value) == "QUEUED"
    assert client("EXEC") == ["OK"]
    client("FENCED", token, "DEL", name), client("DEL", "h" + key)
    client.send_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (VALUE_MAX + 1))
    words = last_words(client)
    assert [word.text for word in words] == \
        [f"ERR Protocol error: an argument has at most {VALUE_MAX} bytes"]


def test_a_request_has_exactly_17_mib_of_arguments_at_most(unfenced, key):
    client = unfenced.client()
    rest = len("MSET") + 2 * len(key) + 1
    half = b"v" * (REQUEST_MAX // 2)
    other = b"v" * (REQUEST_MAX - rest - len(half))
    assert client("MSET", key, half, key + "b", other) == "OK"
    assert client("STRLEN", key + "b") == len(other)
    client("DEL", key, key + "b")
    client.send_bytes(encode("MSET", key, half, key + "b").replace(b"*4", b"*5", 1) +
                      b"$%d\r\n" % (len(other) + 1))
    words = last_words(client)
    assert [word.text for word in words] == \
        [f"ERR Protocol error: the arguments of a request have at most {REQUEST_MAX} bytes"]


def test_a_transaction_has_17_mib_at_most(unfenced, key):
    """Each argument takes 16 bytes more than its length."""
    client = unfenced.client()
    first = b"v" * (8 << 20)
    used = sum(len(word) + 16 for word in (b"SET", key.encode(), first))
    fits = REQUEST_MAX - used - sum(len(word) + 16 for word in (b"SET", key.encode(), b""))
    for size, answers in ((fits, ("QUEUED", ["OK", "OK"])), (fits + 1, ("ERR", "EXECABORT"))):
        client("MULTI")
        assert client("SET", key, first) == "QUEUED"
        queued, done = client.ask("SET", key, b"v" * size), client.ask("EXEC")
        assert (getattr(queued, "code", queued), getattr(done, "code", done)) == answers
    assert queued.text == "ERR a transaction has at most 4096 commands and 17 MiB of arguments"
    client("DEL", key)


def test_a_half_closed_connection_still_gets_the_replies_to_what_it_sent(client):
    client.send_bytes((encode("PING") + encode("GET", "none")) * 100)
    client.half_close()
    for _ in range(100):
        assert client.read(3) == "PONG"
        assert client.read(3) is None
    with pytest.raises(Closed):
        client.read(3)


def send_without_reading(sock, data, seconds):
    """Send until the peer takes no more for a while; return how many bytes were sent."""
    sock.setblocking(False)
    sent, deadline = 0, time.monotonic() + patience(seconds)
    while sent < len(data) and time.monotonic() < deadline:
        if not select.select([], [sock], [], 0.5)[1]:
            break
        sent += sock.send(data[sent:sent + 65536])
    return sent


def test_a_client_that_never_reads_does_not_make_memory_grow(rig, key):
    daemon = rig.daemon("--unfenced-writes", "allow")  # whose peak no other test has raised
    client = daemon.client()
    client("SET", key, b"v" * (256 << 10))
    daemon.client()("GET", key)
    before = daemon.rss_bytes()
    slow = tcp(daemon.address)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = encode("GET", key)
    sent = send_without_reading(slow, request * 20000, 5)
    assert sent >= len(request) * 200, "enough to fill 50 MB of replies"
    for _ in range(100):
        assert client("PING") == "PONG"
    assert daemon.peak_rss_bytes() - before < 48 << 20
    slow.settimeout(patience(5))
    assert slow.recv(5).startswith(b"$"), "and what it asked for is there"
    slow.close()


@pytest.mark.slow  # ten seconds of a core
def test_a_client_that_sends_writes_and_never_reads_does_not_make_memory_grow(rig, key):
    daemon = rig.daemon("--unfenced-writes", "allow")  # whose peak no other test has raised
    before = daemon.rss_bytes()
    slow = tcp(daemon.address)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    send_without_reading(slow, encode("ECHO", b"x" * 60000) * 2000, 5)
    assert daemon.client()("PING") == "PONG"
    assert daemon.peak_rss_bytes() - before < 64 << 20
    slow.close()


def test_a_slow_reader_gets_every_reply_in_order(unfenced):
    client = unfenced.client()
    count = 3000
    data = b"".join(encode("ECHO", b"%06d" % i + b"x" * 5000) for i in range(count))
    client.sock.settimeout(patience(30))
    sender = Beside(client.sock.sendall, data)
    wait_until(lambda: select.select([client.sock], [], [], 0)[0], "replies flow")
    for i in range(count):
        assert client.read()[:6] == b"%06d" % i
    sender.end(5)


def test_200_connections_at_once_are_served(daemon, key):
    clients = [daemon.client() for _ in range(200)]
    for i, client in enumerate(clients):
        client.send("ACQUIRE", f"{key}/{i}", 60000)
    tokens = [client.read()[0] for client in clients]
    for i, client in enumerate(clients):
        client.send("FENCED", tokens[i], "SET", f"{key}/{i}", i)
    assert {client.read() for client in clients} == {"OK"}


def test_connections_that_come_and_go_leave_nothing_behind(local):
    before = local.rss_bytes()
    for _ in range(300):
        client = local.client()
        client.send("PING")
        client.close()
    local.close_clients()
    client = local.client()
    wait_until(lambda: client("CLIENT", "LIST").count(b"\n") <= 2, "the others are gone")
    assert local.rss_bytes() - before < 16 << 20


def test_a_bare_write_is_refused_without_unfenced_writes(local, key):
    client = local.client()
    writes = [("SET", key, "v"), ("SETNX", key, "v"), ("GETSET", key, "v"), ("GETDEL", key),
              ("APPEND", key, "v"), ("INCR", key), ("INCRBY", key, 1), ("DECR", key),
              ("DECRBY", key, 1), ("DEL", key), ("UNLINK", key), ("HSET", key, "f", "v"),
              ("HSETNX", key, "f", "v"), ("HMSET", key, "f", "v"), ("HDEL", key, "f"),
              ("HINCRBY", key, "f", 1), ("INCRBYFLOAT", key, 1), ("HINCRBYFLOAT", key, "f", 1),
              ("SETRANGE", key, 0, "v")]
    for state in ("never granted", "held", "released"):
        if state == "held":
            token = client.token(key)
        if state == "released":
            client("RELEASE", key, token)
        for write in writes:
            client.refused("NOTOKEN", *write)
    assert client("EXISTS", key) == 0
