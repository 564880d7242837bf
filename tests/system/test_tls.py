# SPDX-License-Identifier: Apache-2.0
"""TLS between clients and the daemon, with clients that people have and peers that misbehave."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
import redis as redis_py

from harness.certs import Certs
from harness.library import StkError
from harness.limits import BUILD, HANG_SECONDS, patience, wait_until
from harness.programs import run, run_node
from harness.resp import Client, Closed, encode
from harness.rig import refusal


@pytest.fixture(scope="module")
def server_cert(certs):
    return certs.server()


@pytest.fixture
def daemon(rig, certs, server_cert):
    """A daemon that listens by TLS, and without it beside."""
    return tls_daemon(rig, certs, server_cert)


def tls_daemon(rig, certs, cert, *args):
    return rig.daemon("--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca, *args,
                      listen=["tls:127.0.0.1:0", "127.0.0.1:0"])


def connect(daemon, context, **options):
    client = Client(daemon.address, tls=context, **options)
    daemon.clients.append(client)
    return client


def raw(daemon):
    """A socket without TLS, to the TLS address."""
    return socket.create_connection(daemon.address, timeout=patience(HANG_SECONDS))


def await_end(sock):
    """Read until the daemon hangs up."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_lease_cycle_by_each_version(daemon, certs, key, version):
    context = certs.client()
    context.minimum_version = context.maximum_version = version
    client = connect(daemon, context)
    client.cycle(key)
    big = b"x" * 3_000_000  # many records, and more than a socket takes at once
    assert client.fenced(client.token(key), "SET", key, big) == "OK"
    client.send_all([("GET", key)] * 8)
    assert all(client.read() == big for _ in range(8))


def test_older_versions_are_refused(daemon, certs):
    context = certs.client()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        connect(daemon, context)
    wait_until(lambda: "the TLS handshake with 127.0.0.1:" in daemon.log(), "it is logged")


def test_redis_cli_and_redis_py(daemon, certs, key):
    host, port = daemon.address
    shown = run("redis-cli", "--tls", "--cacert", certs.ca, "-h", host, "-p", port, "ACQUIRE", key,
                60000)
    token = shown.split()[0]
    with redis_py.Redis(host=host, port=port, ssl=True, ssl_ca_certs=str(certs.ca),
                        ssl_check_hostname=True) as client:
        assert client.execute_command("FENCED", token, "SET", key, 5) == b"OK"
        assert client.get(key) == b"5"


@pytest.mark.parametrize("library", ["node_redis", "ioredis"])
def test_clients_of_node(daemon, certs, key, library):
    seen = run_node(library, "cycle", daemon, key, certs.ca)
    assert seen["wrote"] == "OK" and seen["sold"] == 9 and seen["stale"] == "STALE"
    assert seen["released"] == 0 and seen["piped"] == list(range(1, 51))


def test_a_session_is_resumed(daemon, certs, key):
    context = certs.client()
    first = connect(daemon, context)
    first.cycle(key)  # TLS 1.3 sends its ticket behind the handshake
    second = context.wrap_socket(raw(daemon), server_hostname="127.0.0.1",
                                 session=first.sock.session)
    assert second.session_reused
    second.close()


def test_certificates_of_clients(rig, certs, server_cert, key):
    known, stranger = certs.issue("anna"), Certs(certs.folder / "others").issue("anna")
    for asked, none, theirs in (("no", True, True), ("optional", True, False),
                                ("required", False, False)):
        daemon = tls_daemon(rig, certs, server_cert, "--tls-clients", asked)
        for cert, fine in ((None, none), (known, True), (stranger, theirs)):
            if fine:
                connect(daemon, certs.client(cert)).cycle(key)
            else:  # in TLS 1.3 a client believes that it is connected until it reads
                with pytest.raises((ssl.SSLError, Closed, ConnectionError)):
                    connect(daemon, certs.client(cert))("PING")
        daemon.close_clients()
        daemon.stop()


def user_of(client):
    """The user whom CLIENT LIST shows for this connection."""
    mine = f"id={client('CLIENT', 'ID')} "
    return next(line for line in client("CLIENT", "LIST").decode().splitlines()
                if line.startswith(mine)).rpartition("user=")[2]


@pytest.mark.parametrize("asked, names", [
    ("no", ["default"] * 4), ("cn", ["anna", "default", "bert", "default"]),
    ("uri", ["spiffe://shop/anna", "default", "default", "default"])])
def test_a_certificate_names_the_user_where_that_is_asked_for(rig, certs, server_cert, asked,
                                                              names):
    daemon = tls_daemon(rig, certs, server_cert, "--tls-clients", "optional", "--tls-user", asked)
    shown = [certs.issue("anna", "URI:spiffe://shop/anna"),
             certs.issue("anna user=root", "URI:spiffe://shop/\\ user=root"),
             certs.issue("bert", "URI:spiffe://shop/bert,URI:spiffe://shop/root"), None]
    contexts = [certs.client(cert) for cert in shown]
    clients = [connect(daemon, context) for context in contexts]
    assert [user_of(client) for client in clients] == names
    again = contexts[0].wrap_socket(raw(daemon), server_hostname="127.0.0.1",
                                    session=clients[0].sock.session)
    assert again.session_reused
    again.sendall(encode("CLIENT", "LIST"))
    wait_until(lambda: f"user={names[0]}\n" in again.recv(65536).decode(), "it is known again")
    again.close()


def test_handshakes_are_counted(daemon, certs):
    plain = Client(daemon.listeners[1])
    assert plain.counter("tls_handshakes") == plain.counter("tls_handshakes_failed") == 0
    for _ in range(3):
        connect(daemon, certs.client())("PING")
    for sent in (b"PING\r\n", b""):
        with raw(daemon) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            await_end(sock)
    wait_until(lambda: plain.counter("tls_handshakes_failed") == 2, "both failed")
    assert plain.counter("tls_handshakes") == 3
    plain.close()


def test_who_speaks_plainly_to_a_tls_address_is_told_so(daemon):
    with raw(daemon) as sock:
        sock.sendall(b"PING\r\n")
        assert sock.recv(4096).startswith(b"-ERR this address speaks TLS")
        await_end(sock)
    wait_until(lambda: "failed: it speaks no TLS" in daemon.log(), "it is logged")


def test_who_speaks_tls_to_a_plain_address_is_told_so_at_once(daemon, certs):
    with socket.create_connection(daemon.listeners[1], timeout=patience(HANG_SECONDS)) as sock:
        with pytest.raises(ssl.SSLError, match="(?i)protocol version"):
            certs.client().wrap_socket(sock, server_hostname="localhost")
    wait_until(lambda: "failed: this address speaks no TLS" in daemon.log(), "it is logged")


def test_what_is_not_tls_is_hung_up_on(daemon, certs, key):
    for sent in (b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70000, b"\0" * 100):
        with raw(daemon) as sock:
            sock.sendall(sent)
            await_end(sock)
    with raw(daemon) as sock:  # half a hello, and no more
        sock.sendall(b"\x16\x03\x01\x02\x00\x01")
        sock.shutdown(socket.SHUT_WR)
        await_end(sock)
    connect(daemon, certs.client()).cycle(key)


def test_a_record_that_was_changed_or_cut_does_nothing(daemon, certs, key):
    plain = Client(daemon.listeners[1])
    token = plain.token(key)
    for spoil in (lambda sealed: sealed[:-1] + bytes([sealed[-1] ^ 1]), lambda sealed: sealed[:-1]):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = certs.client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with raw(daemon) as sock:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(65536))
            sock.sendall(outgoing.read())
            tls.write(encode("FENCED", token, "SET", key, "spoiled"))
            sock.sendall(spoil(outgoing.read()))
            sock.shutdown(socket.SHUT_WR)
            await_end(sock)
    assert plain("GET", key) is None
    plain.close()


def test_what_was_sent_before_the_end_is_answered(daemon, certs, key):
    """A client that has no more to say says so, and reads on."""
    client = connect(daemon, certs.client())
    client.send_all([("PING",)] * 100)
    with socket.socket(fileno=os.dup(client.sock.fileno())) as below:  # Python's own unwrap()
        below.shutdown(socket.SHUT_WR)                  # throws away what comes after it
    assert [client.read() for _ in range(100)] == ["PONG"] * 100
    with pytest.raises(Closed):
        client.read()


@pytest.mark.slow  # the ten seconds
def test_a_slow_handshake_has_ten_seconds_and_keeps_nobody_waiting(daemon, certs, key):
    with raw(daemon) as slow:
        slow.sendall(b"\x16")
        connect(daemon, certs.client()).cycle(key)
        stop = threading.Event()

        def dribble():
            while not stop.wait(0.5):
                try:
                    slow.sendall(b"\x03")
                except OSError:
                    return

        slow.settimeout(patience(30))
        threading.Thread(target=dribble, daemon=True).start()
        await_end(slow)
        stop.set()


def test_more_handshakes_than_are_under_way_at_a_time(daemon, certs, key):
    """600 that hang: who comes after them waits, and nobody else does; they have ten seconds, but
    where others wait just one each."""
    plain = Client(daemon.listeners[1])
    with contextlib.ExitStack() as hanging:
        for _ in range(600):
            hanging.enter_context(raw(daemon))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            late = pool.submit(connect, daemon, certs.client())
            wait_until(lambda: len(plain("CLIENT", "LIST").splitlines()) == 602, "all are there")
            plain.cycle(key)
            assert not late.done()
            late.result(patience(HANG_SECONDS)).cycle(key)
    plain.close()


def test_replies_that_nobody_reads_are_bounded(daemon, certs):
    client = connect(daemon, certs.client())
    client.sock.settimeout(patience(1))
    with pytest.raises((TimeoutError, ssl.SSLError)):
        while True:
            client.sock.sendall(encode("ECHO", b"x" * 100_000) * 10)
    assert daemon.rss_bytes() < 100 << 20


@pytest.mark.slow
@pytest.mark.alone
def test_10000_idle_connections_take_40_kb_each(rig, certs, server_cert, key):
    count = 10000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + 200:
        pytest.skip("needs more open files than are allowed here")
    daemon = tls_daemon(rig, certs, server_cert, "--max-connections", count + 100)
    context = certs.client()
    connect(daemon, context).cycle(key)
    before, idle = daemon.rss_bytes(), []
    for _ in range(count):
        client = Client(daemon.address, tls=context)
        assert client("PING") == "PONG"
        idle.append(client)
    each = (daemon.rss_bytes() - before) / count
    print(f"{each / 1024:.1f} KB each")
    for client in idle:
        client.close()
    assert each < 40 * 1024


# The library and the command line.


def uri_of(daemon, *options):
    return "stockades://{}:{}?{}".format(*daemon.address, "&".join(options))


def test_the_library_by_tls(daemon, library, certs, key):
    with library.open(uri_of(daemon, f"tls_ca={certs.ca}")) as client:
        lease = client.acquire(key)
        big = "x" * 3_000_000
        client.set(lease, key, big)
        assert client.get(key) == big
        lease.release()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda n: client.command("ECHO", n), range(400)))
        assert replies == [str(n).encode() for n in range(400)]
    with library.open(uri_of(daemon, f"tls_ca={certs.ca}", "tls_name=localhost")) as client:
        assert client.get(key) == big


def test_a_forked_child_ends_no_connection_of_its_parent(daemon, library, certs, key):
    with library.open(uri_of(daemon, f"tls_ca={certs.ca}")) as client:
        lease = client.acquire(key, ttl_ms=60000, ephemeral=True)  # ends with its connection
        child = os.fork()
        if child == 0:
            client.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.set(lease, key, "parent's")
        assert lease.valid and client.query(key).held
        lease.release()


def test_the_library_refuses_who_is_not_the_one(daemon, library, certs, tmp_path):
    other = Certs(tmp_path / "other")
    for options, why in (((f"tls_ca={other.ca}",), "certificate is refused: "),
                         ((f"tls_ca={certs.ca}", "tls_name=b.example"), "hostname mismatch"),
                         (("tls_ca=/nowhere.pem",), "/nowhere.pem cannot be used: No such file")):
        with pytest.raises(StkError, match=why) as refused:
            library.open(uri_of(daemon, *options))
        assert refused.value.code == "UNREACHABLE"
    with pytest.raises(StkError, match="TLS: "):
        library.open("stockades://{}:{}".format(*daemon.listeners[1]), 3000)


@pytest.mark.parametrize("scheme", ["stockades", "stockade"])
def test_what_was_sent_in_part_is_sent_again_with_an_id_only(
        rig, library, certs, server_cert, key, scheme):
    """A relay stops reading in the middle of it, and cuts."""
    daemon = tls_daemon(rig, certs, server_cert, "--unfenced-writes", "allow")
    relay = rig.relay(daemon.listeners[scheme == "stockade"])
    option = f"?tls_ca={certs.ca}" if scheme == "stockades" else ""
    other = Client(daemon.listeners[1])
    daemon.clients.append(other)
    with library.open(relay.uri.replace("stockade:", scheme + ":") + option) as client:
        client.command("PING")
        relay.stall("up", after=1 << 16)  # the INCR, by TLS, too, and a part of the rest
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            sent = thread.submit(client.command_all, ("INCR", key),
                                 *[("SET", key + "big", b"x" * 3_000_000)] * 5)
            wait_until(lambda: other("GET", key) == b"1", "a part of it is applied")
            relay.cut()
            relay.let("up")
            with pytest.raises(StkError) as caught:
                sent.result(patience(20))
        assert caught.value.code == "UNSURE" and other("GET", key) == b"1"


def test_the_command_line_by_tls(rig, certs, server_cert, tool, key):
    mine, password = certs.issue("anna"), rig.folder / "password"
    password.write_text("secret\n")
    daemon = tls_daemon(rig, certs, server_cert, "--tls-clients", "required", "--password-file",
                        password)
    uri = uri_of(daemon, f"tls_ca={certs.ca}", f"tls_cert={mine.cert}", f"tls_key={mine.key}")
    assert tool.output("-u", uri, "--password-file", password, "set", key, 5) == "OK\n"
    assert tool.output("-u", uri, "--password-file", password, "get", key) == "5\n"
    done = tool.run("-u", uri_of(daemon, f"tls_ca={certs.ca}"), "get", key)
    assert done.returncode == 69 and "certificate required" in done.stderr


# The admin address.


@contextlib.contextmanager
def page(daemon, certs):
    """An HTTPS connection to the admin address."""
    connection = http.client.HTTPSConnection(*daemon.admin, context=certs.client(),
                                             timeout=patience(HANG_SECONDS))
    with contextlib.closing(connection):
        yield connection


def ask(connection, path, method="GET", body=None, **headers):
    connection.request(method, path, body, {name.replace("_", "-"): value
                                            for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def watched(rig, certs, server_cert):
    return rig.daemon("--tls-cert", server_cert.cert, "--tls-key", server_cert.key,
                      admin="tls:127.0.0.1:0")


def test_the_page_by_tls(watched, certs, key):
    client = watched.client()
    client.token(key, 60000, "OWNER", "ann")
    with page(watched, certs) as connection:
        assert ask(connection, "/health")[0] == 200
        assert ask(connection, "/")[1].startswith(b"<!doctype html>")
        leases = json.loads(ask(connection, "/api/leases")[1])["leases"]
        assert [lease["owner"] for lease in leases] == ["ann"]
        assert b"stockade_" in ask(connection, "/metrics")[1]


def test_who_asks_for_the_page_without_tls_is_told_so(watched, certs):
    plain = http.client.HTTPConnection(*watched.admin, timeout=patience(HANG_SECONDS))
    with contextlib.closing(plain):
        assert ask(plain, "/health") == (400, b"this address speaks TLS: ask by https://\n")
    wait_until(lambda: "admin: the TLS handshake with" in watched.log(), "it is logged")
    assert "failed: it speaks no TLS" in watched.log()
    with page(watched, certs) as connection:
        assert ask(connection, "/health")[0] == 200


def test_who_asks_for_the_page_finds_it_beside_silent_handshakes(watched, certs):
    """More than may be under way at a time: each has one second while others wait."""
    with contextlib.ExitStack() as hanging:
        for _ in range(300):
            hanging.enter_context(socket.create_connection(watched.admin, patience(HANG_SECONDS)))
        with page(watched, certs) as connection:
            assert ask(connection, "/health")[0] == 200
    with page(watched, certs) as connection:  # and none of those has kept its turn
        assert ask(connection, "/health")[0] == 200


def test_a_stream_by_tls_is_live(watched, certs, key):
    with certs.client().wrap_socket(socket.create_connection(watched.admin, patience(10)),
                                    server_hostname="127.0.0.1") as sock:
        sock.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = b""
        while b"event: state" not in seen:
            seen += sock.recv(65536)
        client = watched.client()
        client.refused("UNKNOWN", "FENCED", client.token(key) + 1, "SET", key, 1)
        while b"event: refused" not in seen:
            seen += sock.recv(65536)


def test_the_page_takes_its_password_by_tls(rig, certs, server_cert, key):
    password = rig.folder / "password"
    password.write_text("secret\n")
    daemon = rig.daemon("--tls-cert", server_cert.cert, "--tls-key", server_cert.key,
                        "--password-file", password, admin="tls:127.0.0.1:0")
    client = daemon.client()
    client("AUTH", "secret")
    body = json.dumps({"resource": key, "token": client.token(key), "reason": "test"})
    right = "Basic " + base64.b64encode(b"any:secret").decode()
    wrong = "Basic " + base64.b64encode(b"any:public").decode()
    with page(daemon, certs) as connection:
        assert ask(connection, "/api/state")[0] == 401
        assert ask(connection, "/api/state", Authorization=wrong)[0] == 401
        assert ask(connection, "/api/state", Authorization=right)[0] == 200
        assert ask(connection, "/api/state", Authorization=right, X_Forwarded_For="::1")[0] == 403
        assert ask(connection, "/api/revoke", "POST", body, Authorization=right,
                   Content_Type="application/json")[0] == 200
    assert client.lease(key)["state"] == "free"


def test_the_page_by_tls_revokes_and_no_other_sites_page_does(watched, certs, key):
    """Browsers name the page's origin with each POST."""
    client, own = watched.client(), "https://{}:{}".format(*watched.admin)
    body = json.dumps({"resource": key, "token": client.token(key), "reason": "test"})
    with page(watched, certs) as connection:
        connection.connect()
        connection.auto_open = 0
        for origin, status in ((own.replace("https", "http"), 403), ("https://evil.example", 403),
                               (own, 200)):
            assert ask(connection, "/api/revoke", "POST", body, Origin=origin,
                       Content_Type="application/json", Sec_Fetch_Site="same-origin")[0] == status
    assert client.lease(key)["state"] == "free"


@pytest.mark.slow
def test_who_leaves_the_page_leaves_nothing_behind(watched, certs):
    """Clients that hang up in the middle of a handshake, of a request, of a stream."""
    had, context = watched.open_files(), certs.client()
    for _ in range(3):
        with contextlib.ExitStack() as opened:
            for _ in range(10):
                opened.enter_context(socket.create_connection(watched.admin)).send(b"\x16")
                for request in (b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                b"GET / HTTP"):
                    sock = opened.enter_context(context.wrap_socket(
                        socket.create_connection(watched.admin), server_hostname="127.0.0.1"))
                    sock.sendall(request)
            assert watched.open_files() > had + 30
        # libmicrohttpd may miss the end of half a request, and notices it by its time limit, 10 s.
        wait_until(lambda: watched.open_files() == had, "all are closed")


def test_a_page_that_has_no_more_to_ask_is_answered(watched, certs):
    with certs.client().wrap_socket(socket.create_connection(watched.admin, patience(10)),
                                    server_hostname="127.0.0.1") as sock:
        os.kill(watched.pid, signal.SIGSTOP)  # so that it sees the request and the end at once
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with socket.socket(fileno=os.dup(sock.fileno())) as below:
            below.shutdown(socket.SHUT_WR)
        os.kill(watched.pid, signal.SIGCONT)
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_page_that_goes_on_after_it_was_cut_off_learns_why(watched, certs):
    for _ in range(20):
        with socket.create_connection(watched.admin, timeout=patience(HANG_SECONDS)) as low, \
                certs.client().wrap_socket(low, server_hostname="127.0.0.1") as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(b"no HTTP\r\n\r\n")
            for _ in range(30):
                sock.sendall(b"x")
            assert sock.recv(1000).startswith(b"HTTP/1.1 400")


def test_a_page_that_reads_slowly_gets_all_of_it(watched, certs):
    low = socket.socket()
    low.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    low.connect(watched.admin)
    with certs.client().wrap_socket(low, server_hostname="127.0.0.1") as sock:
        sock.settimeout(patience(20))
        sock.sendall(b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = b""
        while piece := sock.recv(500):  # up to the daemon's close_notify
            got += piece
    with page(watched, certs) as connection:
        assert got.endswith(b"\r\n\r\n" + ask(connection, "/page.js")[1])


@pytest.mark.slow  # the daemon waits half a minute
def test_a_page_by_tls_that_stops_reading_is_dropped(watched, certs):
    watched.client().pipeline([("ACQUIRE", b"\1" * 500 + b"%d" % i, 600000) for i in range(200)])
    had = watched.open_files()
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    deaf.connect(watched.admin)
    with certs.client().wrap_socket(deaf, server_hostname="127.0.0.1") as sock:
        sock.sendall(b"GET /api/leases?count=200 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 12)
        wait_until(lambda: watched.open_files() == had + 3, "it is served")
        wait_until(lambda: watched.open_files() == had, "it is dropped")


# New certificates.


def test_new_certificates_are_taken_while_it_runs(rig, tmp_path, key):
    """A hundred times, under load: no connection and no write is lost, and new ones see the new."""
    certs = Certs(tmp_path / "certs")
    cert = certs.server("live")
    new = [certs.server(f"new-{n}") for n in range(3)]
    daemon = tls_daemon(rig, certs, cert)
    done, failures = threading.Event(), []
    written = [0] * 4

    def write(number):
        try:
            client = Client(daemon.address, tls=certs.client())
            name = f"{key}:{number}"
            token = client.token(name)
            while not done.is_set():
                written[number] += 1
                assert client.fenced(token, "INCR", name) == written[number]
            client.close()
        except Exception as failure:  # told by the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(len(written))]
    for thread in threads:
        thread.start()
    for turn in range(100):
        for path, source in zip(cert, new[turn % 3]):
            os.replace(copy(source, tmp_path / "next"), path)
        os.kill(daemon.pid, signal.SIGHUP)
        wait_until(lambda: daemon.log().count("new TLS connections get") == turn + 1, "it is taken")
        with certs.client().wrap_socket(raw(daemon), server_hostname="127.0.0.1") as sock:
            names = dict(pair[0] for pair in sock.getpeercert()["subject"])
            assert names["commonName"] == f"new-{turn % 3}"
    done.set()
    for thread in threads:
        thread.join()
    assert not failures and min(written) > 0


def test_new_certificates_are_taken_at_each_door(rig, tmp_path):
    certs = Certs(tmp_path / "certs")
    cert, new = certs.server("live"), certs.server("new")
    daemon = rig.daemon("--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca,
                        listen=["tls:127.0.0.1:0", "tls:[::1]:0"], admin="tls:127.0.0.1:0")

    def shown():
        for address in (*daemon.listeners, daemon.admin):
            with (socket.create_connection(address, timeout=patience(HANG_SECONDS)) as bare,
                  certs.client().wrap_socket(bare, server_hostname=address[0]) as sock):
                yield dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"]

    assert list(shown()) == ["live"] * 3
    for path, source in zip(cert, new):
        os.replace(copy(source, tmp_path / "next"), path)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "new TLS connections get" in daemon.log(), "it is taken")
    assert list(shown()) == ["new"] * 3


def copy(source, path):
    path.write_bytes(source.read_bytes())
    return path


def test_a_certificate_that_cannot_be_read_leaves_the_old_one(rig, tmp_path, key):
    certs = Certs(tmp_path / "certs")
    cert = certs.server("live")
    daemon = tls_daemon(rig, certs, cert)
    cert.cert.write_text("no certificate")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: "live.pem cannot be used: there is no certificate in it; what was in force "
               "stays in force" in daemon.log(), "it is said")
    connect(daemon, certs.client()).cycle(key)


def test_a_certificate_that_ends_is_told_before_clients_refuse_it(rig, tmp_path):
    certs = Certs(tmp_path / "certs")
    cert = certs.server("live", days=3)
    daemon = tls_daemon(rig, certs, cert)
    assert f"certificate {cert.cert}, or one behind it in that file, expires on " in daemon.log()
    assert "ready, but the certificate for TLS expires in " in daemon.get("/ready")[2]
    certs.server("live", days=0)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "clients refuse it" in daemon.log(), "the log says that it expired")
    assert daemon.get("/ready")[:3:2] == (
        200, "ready, but the certificate for TLS has expired, and clients refuse it\n")
    check = subprocess.run([BUILD / "stockaded", "--check", "--listen", "tls:127.0.0.1:0",
                            "--admin", "off", "--tls-cert", cert.cert, "--tls-key", cert.key],
                           capture_output=True, text=True, check=True,
                           timeout=patience(HANG_SECONDS))
    assert "expired on" in check.stderr and "in order" in check.stdout
    certs.server("live")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: daemon.get("/ready")[2] == "ready\n", "the new one is good")
    left = daemon.metric("tls_certificate_ends_seconds") - time.time()
    assert 98 < left / 86400 < 100


def test_the_end_of_the_daemon_is_said(daemon, certs):
    client = connect(daemon, certs.client())
    assert client("PING") == "PONG"
    daemon.clients.clear()
    daemon.stop()
    assert client.sock.recv(1) == b""  # close_notify: OpenSSL would call anything else an error
    client.close()


@pytest.mark.parametrize("args, why", [
    ([], "a tls: address needs --tls-cert FILE"),
    (["--tls-cert", "/nowhere.pem"], "the certificate /nowhere.pem cannot be used: No such file"),
    (["--tls-cert", "{cert}"], "there is no private key in it"),
    (["--tls-cert", "{cert}", "--tls-key", "{key}", "--tls-clients", "required"],
     "needs a CA file"),
    (["--tls-cert", "{cert}", "--tls-key", "{key}", "--tls-user", "cn"],
     "--tls-user needs --tls-clients optional or required"),
])
def test_a_start_without_what_it_needs(rig, certs, server_cert, args, why):
    words = [word.format(cert=server_cert.cert, key=server_cert.key) for word in args]
    assert why in refusal(rig, *words, listen=["tls:127.0.0.1:0"])
