# SPDX-License-Identifier: Apache-2.0
"""What the page asks the admin address for, as JSON, and the doors before it: no other site's page,
no rebound name and nobody from afar gets in."""

import base64
import contextlib
import http.client
import json
import pathlib
import select
import socket
import time
import urllib.parse

import pytest

from harness.limits import HANG_SECONDS, Seconds, patience, wait_until

JSON = {"Content-Type": "application/json"}
PASSWORD = "correct horse"
FILES = ["/", "/page.css", "/page.js"]
READS = ["/api/state", "/api/leases", "/api/resource?name=k", "/api/refusals", "/api/stream"]
PLAIN = ["/health", "/ready", "/metrics"]


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = b"" if "event-stream" in response.headers["Content-Type"] else response.read()

    @property
    def json(self):
        return json.loads(self.body)


def ask(daemon, path, method="GET", body=None, host=None, headers=()):
    """One request on a connection of its own, with these headers and no others."""
    connection = http.client.HTTPConnection(*daemon.admin, timeout=patience(HANG_SECONDS))
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if host != "":
            connection.putheader("Host", host or "{}:{}".format(*daemon.admin))
        for name, value in dict(headers).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Answer(connection.getresponse())


def get(daemon, path, **parameters):
    answer = ask(daemon, path + ("?" + urllib.parse.urlencode(parameters) if parameters else ""))
    assert answer.status == 200, answer.body
    return answer.json


def revoke(daemon, resource, token, reason="it hangs", headers=(), **options):
    body = json.dumps({"resource": resource, "token": token, "reason": reason}).encode()
    return ask(daemon, "/api/revoke", "POST", body, headers={**JSON, **dict(headers)}, **options)


def login(password, user="ann"):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@contextlib.contextmanager
def stream(daemon, buffer_bytes=None):
    """A socket that has asked for the stream."""
    listener = socket.socket()
    if buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    with listener:
        listener.settimeout(patience(10))
        listener.connect(daemon.admin)
        listener.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield listener


def hear(listener, kind, within=10):
    """The data of the next event of this kind."""
    begun, text = time.monotonic(), ""
    while f"event: {kind}\ndata: " not in text or "\n\n" not in text.split(f"event: {kind}\n")[1]:
        assert Seconds(begun) < patience(within)
        text += listener.recv(65536).decode()
    return json.loads(text.split(f"event: {kind}\ndata: ")[1].split("\n")[0])


# What it shows.


def test_the_state_says_how_all_is(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    client = daemon.client()
    token = client.token("k", 60000)
    client.fenced(token, "SET", "k", 1)
    client.refused("STALE", "FENCED", token - 1 or token + 1, "SET", "k", 1) if token > 1 else None
    state = get(daemon, "/api/state")
    assert state["status"] == "ok" and state["may_revoke"] is True
    assert state["service"]["status"] == "up" and state["store"]["status"] == "ok"
    assert state["leases"] == 1 and state["store"]["commit_p99_us"] > 0
    assert abs(state["time_ms"] - time.time() * 1000) < 60000
    assert state["history"]["entries"] >= 1
    redis.kill()
    wait_until(lambda: ask(daemon, "/ready").status == 503, "no lease can be granted")
    state = get(daemon, "/api/state")
    assert state["status"] != "ok" and state["service"]["status"] == "down"
    assert b"lease service" in ask(daemon, "/ready").body
    assert [trouble["name"] for trouble in state["troubles"]] == ["lease_service_down"]
    assert "/ready" in get(daemon, "/health")["tells"]


def test_a_password_of_the_lease_service_is_not_shown(rig):
    redis = rig.redis()
    redis("CONFIG", "SET", "requirepass", "hush")
    daemon = rig.daemon(lease="redis://:hush@{}:{}".format(*redis.address))
    state = get(daemon, "/api/state")
    assert state["service"]["status"] == "up" and "hush" not in json.dumps(state)


def test_leases_are_sorted_filtered_and_cut_into_windows(rig):
    daemon = rig.daemon()
    client = daemon.client(name="till-3")
    for i in range(30):
        client.token(f"order:{i:02}", 60000 + i, "OWNER", f"o{29 - i:02}")
    leases = get(daemon, "/api/leases", sort="resource", count=10)
    assert (leases["total"], leases["matched"], leases["from"]) == (30, 30, 0)
    assert [each["resource"] for each in leases["leases"]] == [f"order:{i:02}" for i in range(10)]
    first = leases["leases"][0]
    assert first["client"] == "till-3" and first["owner"] == "o29" and first["waiters"] == 0
    assert 0 < first["left_ms"] <= first["ttl_ms"] <= 60000 and first["longest_wait_ms"] is None
    leases = get(daemon, "/api/leases", sort="-owner", **{"from": 5, "count": 2})["leases"]
    assert [each["owner"] for each in leases] == ["o24", "o23"]
    assert get(daemon, "/api/leases", match="er:2")["matched"] == 10
    assert get(daemon, "/api/leases", match="order:?7")["matched"] == 3
    assert get(daemon, "/api/leases", **{"from": 1000})["leases"] == []
    for wrong in ({"sort": "colour"}, {"count": 201}, {"count": -1}, {"from": "x"},
                  {"match": "x" * 1025}):
        answer = ask(daemon, "/api/leases?" + urllib.parse.urlencode(wrong))
        assert answer.status == 400 and answer.json["error"]


COLUMNS = {
    "resource": lambda lease: lease["resource"],
    "owner": lambda lease: lease["owner"],
    "client": lambda lease: lease["client"],
    "token": lambda lease: lease["token"],
    "left": lambda lease: lease["left_ms"],
    "granted": lambda lease: lease["granted_ms"],
    "waiters": lambda lease: -lease["waiters"],
    "wait": lambda lease: -(lease["longest_wait_ms"] or 0),
}


def test_leases_are_sorted_by_each_column_either_way(rig):
    daemon = rig.daemon()
    clients = [daemon.client(name=f"till-{i}") for i in (2, 1, 0, 3)]
    for resource, owner, client, grants, ttl_ms, waiters in (
            ("b", "o2", 0, 1, 80000, 0), ("d", "o3", 1, 4, 90000, 2),
            ("a", "o0", 2, 2, 70000, 3), ("c", "o1", 3, 3, 60000, 1)):
        for _ in range(grants - 1):
            clients[client]("RELEASE", resource, clients[client].token(resource))
        clients[client].token(resource, ttl_ms, "OWNER", owner)
        for count in range(waiters):
            clients.append(daemon.client())
            clients[-1].send("ACQUIRE", resource, 60000, "WAIT", 60000)
            wait_until(lambda: get(daemon, "/api/resource", name=resource)["waiters_total"] > count,
                       "it waits")
    orders = set()
    for column, key in COLUMNS.items():
        for down in (False, True):
            leases = get(daemon, "/api/leases", sort="-" * down + column)["leases"]
            keys = [key(lease) for lease in leases]
            assert keys == sorted(keys, reverse=down), (column, leases)
            orders.add("".join(lease["resource"] for lease in leases))
    assert len(orders) == 2 * len(COLUMNS), "each in another order, or one could stand for another"


def test_many_leases_are_in_order_over_all_windows(rig):
    """They are sorted in parts, which a window merges as far as it goes."""
    daemon = rig.daemon()
    count = 4000
    daemon.client().pipeline([("ACQUIRE", f"order:{i * 2654435761 % 2**32}", 600000)
                              for i in range(count)])
    for sort, down in (("resource", False), ("-resource", True), ("owner", False)):
        names = []
        while len(names) < count:
            window = get(daemon, "/api/leases", sort=sort, count=200, **{"from": len(names)})
            assert (window["total"], window["matched"], window["cut"]) == (count, count, False)
            names += [lease[sort.strip("-")] for lease in window["leases"]]
        assert names == sorted(names, reverse=down) and len(set(names)) == count


def test_who_waits_no_more_is_not_shown_as_waiting(rig):
    daemon = rig.daemon()
    daemon.client().token("r")
    waiting = daemon.client()
    waiting.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    wait_until(lambda: get(daemon, "/api/leases")["leases"][0]["waiters"] == 1, "it waits")
    with stream(daemon) as listener:
        hear(listener, "state")
        waiting.reset()
        hear(listener, "leases")
    lease = get(daemon, "/api/leases")["leases"][0]
    assert (lease["waiters"], lease["longest_wait_ms"]) == (0, None)


def test_a_lease_whose_client_has_gone_is_shown_without_it(rig):
    daemon = rig.daemon()
    holder = daemon.client()
    holder.token("r")
    assert get(daemon, "/api/leases")["leases"][0]["address"] != ""
    holder.close()
    wait_until(lambda: get(daemon, "/api/leases")["leases"][0]["address"] == "", "it has gone")


def test_the_time_of_a_grant_is_always_told_as_the_same(rig):
    daemon = rig.daemon()
    daemon.client().token("r")
    told = {get(daemon, "/api/resource", name="r")["lease"]["granted_ms"] for _ in range(50)}
    assert len(told) == 1 and abs(told.pop() - time.time() * 1000) < 60000


def test_a_resource_is_told_with_its_line_and_its_history(rig):
    daemon = rig.daemon()
    one, other = daemon.client(name="ann"), daemon.client()
    first = one.token("k", 60000, "OWNER", "o1")
    one("RELEASE", "k", first)
    token = one.token("k", 60000, "OWNER", "o2")
    other.refused("STALE", "FENCED", first, "SET", "k", 1)
    other.send("ACQUIRE", "k", 60000, "WAIT", 60000, "OWNER", "o3")
    wait_until(lambda: get(daemon, "/api/resource", name="k")["waiters"], "it stands in line")
    told = get(daemon, "/api/resource", name="k")
    assert told["lease"]["token"] == told["newest"] == token and told["waiters_total"] == 1
    waiter = told["waiters"][0]
    assert (waiter["owner"], waiter["place"], waiter["way"]) == ("o3", 1, "wait")
    assert [grant["end"] for grant in told["history"]] == [None, "released"]
    assert told["refusals"][0]["token"] == first and told["refusals"][0]["late_ms"] >= 0
    assert "value" not in told
    nobody = get(daemon, "/api/resource", name="none")
    assert nobody["lease"] is None and nobody["newest"] is None and nobody["history"] == []
    assert ask(daemon, "/api/resource").status == 400
    assert get(daemon, "/api/refusals", match="k")["matched"] == 1
    assert get(daemon, "/api/refusals", match="nothing")["refusals"] == []
    assert ask(daemon, "/api/refusals?match=" + "x" * 1025).status == 400


def test_receipts_of_a_resource_are_told_the_newest_tokens_first(rig):
    daemon = rig.daemon("--lock-keys", "lock:*")
    client = daemon.client()
    assert client("SET", "lock:k", "worker-1-nonce", "NX", "PX", 60000) == "OK"
    first = client("LEASE", "k")[3]
    client("FENCED", first, "ID", "order-1", "SET", "k", "secret")
    assert client("DEL", "lock:k") == 1
    second = client.token("k")
    begun = time.time() * 1000 - 1
    client.pipeline([("FENCED", second, "ID", f"a{i:03}", "APPEND", "k", "s") for i in range(98)])
    told = get(daemon, "/api/resource", name="k")
    assert [(each["id"], each["token"]) for each in told["receipts"][97:]] == [
        ("a000", second), ("order-1", first)]  # and not the lock's value
    assert all(begun <= each["written_ms"] <= time.time() * 1000 and "reply" not in each
               for each in told["receipts"][:98])
    assert told["receipts_more"] is False
    client.pipeline([("FENCED", second, "ID", f"b{i}", "APPEND", "k", "s") for i in range(2)])
    told = get(daemon, "/api/resource", name="k")
    assert len(told["receipts"]) == 100 and told["receipts_more"] is True
    assert get(daemon, "/api/resource", name="none")["receipts"] == []


def test_receipts_behind_thousands_of_locks_are_not_searched_for(rig):
    daemon = rig.daemon("--lock-keys", "lock:*")
    client = daemon.client()
    token = client.token("k")
    client("FENCED", token, "ID", "order-1", "APPEND", "k", "s")
    client("RELEASE", "k", token)
    client.pipeline([command for i in range(1000) for command in (
        ("SET", "lock:k", f"worker-{i}-nonce", "NX", "PX", 60000), ("DEL", "lock:k"))])
    told = get(daemon, "/api/resource", name="k")
    assert (told["receipts"], told["receipts_more"]) == ([], True)


def test_values_are_shown_where_that_was_asked_for(rig):
    daemon = rig.daemon("--page-values", "show")
    client = daemon.client()
    client.fenced(client.token("k"), "SET", "k", "secret")
    client.fenced(client.token("h"), "HSET", "h", "f", "v")
    client("FENCED", client("LEASE", "k")[3], "ID", "order-1", "APPEND", "k", "s")
    told = get(daemon, "/api/resource", name="k")
    assert told["value"]["text"] == "secrets"
    assert [receipt["reply"] for receipt in told["receipts"]] == [":7\r\n"]
    assert get(daemon, "/api/resource", name="h")["value"]["fields"] == [["f", "v"]]


def newest_leases(daemon):
    return get(daemon, "/api/leases", sort="-granted", count=200)["leases"]


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", 'a"b\\c', "x" * 512,
                                  "\u05e9\u05dc\u05d5\u05dd", "a\u202etxt.exe", "tab\tnew\nline"])
def test_any_name_is_told_as_it_is(local, name):
    client = local.client()
    token = client.token(name, 60000)
    # Where there are many leases, a list is a moment old.
    wait_until(lambda: any(each["resource"] == name for each in newest_leases(local)),
               "it is in the list")
    assert get(local, "/api/resource", name=name)["resource"] == name
    assert revoke(local, name, token).json == {"revoked": token}


def test_a_name_of_any_bytes_is_found_by_what_was_shown_of_it(local):
    name = b"\xff\x00\xfe" + bytes(range(128, 256))
    token = local.client().token(name, 60000)
    [shown] = wait_until(lambda: [each["resource"] for each in newest_leases(local)
                                  if each["resource"].startswith("\xff\x00\xfe")],
                         "it is in the list")
    assert revoke(local, shown, token).json == {"revoked": token}


# The doors.


@pytest.mark.parametrize("host, status", [
    ("127.0.0.1:7380", 200), ("localhost", 200), ("[::1]:80", 200), ("10.0.0.7", 200),
    ("ops.shop.example:7380", 200), ("OPS.shop.example", 200),
    ("evil.example", 421), ("ops.shop.example.evil.example", 421), ("127.0.0.1.evil.example", 421),
    ("127.1", 421), ("2130706433", 421), ("127.0.0.01", 421), ("::1", 421), ("[::1]x", 421),
    ("[localhost]", 421), ("localhost@evil.example", 421), ("evil.ops.shop.example", 421),
    ("localhost.evil.example", 421), ("localhost:", 421), ("a" * 300, 421),
    ("localhost:port", 421), ("[::1", 421), ("[evil]", 421), (" ", 421), ("", 421)])
def test_only_names_of_this_server_are_answered(rig_of_names, host, status):
    daemon = rig_of_names
    for path in FILES + READS:
        assert ask(daemon, path, host=host).status == status, path
    if host:
        for path in PLAIN:
            assert ask(daemon, path, host=host).status == 200, path


@pytest.fixture(scope="module")
def rig_of_names(module_rig):
    return module_rig.daemon("--admin-name", "ops.shop.example", "--admin-name", "other")


@pytest.mark.parametrize("headers, reads, changes", [
    ({}, 200, 200),
    ({"Origin": "http://{}"}, 200, 200),
    ({"Origin": "http://evil.example"}, 403, 403),
    ({"Origin": "https://{}"}, 403, 403),
    ({"Origin": "null"}, 403, 403),
    ({"Origin": ""}, 403, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403, 403),
    ({"Origin": "http://{}.evil.example"}, 403, 403),
    ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 403, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 200, 200),
    ({"Sec-Fetch-Site": "none"}, 200, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403, 403),
    ({"Forwarded": "for=1.2.3.4"}, 200, 403),
    ({"X-Forwarded-For": "1.2.3.4"}, 200, 403),
    ({"x-forwarded-host": "a"}, 200, 403)])
def test_no_other_site_and_nobody_behind_a_proxy_changes_anything(local, key, headers, reads,
                                                                  changes):
    token = local.client().token(key, 60000)
    headers = {name: value.format("{}:{}".format(*local.admin)) for name, value in headers.items()}
    for path in READS:
        assert ask(local, path, headers=headers).status == reads, path
    assert ask(local, "/", headers=headers).status == 200
    answer = revoke(local, key, token, headers=headers)
    assert answer.status == changes, answer.body
    assert local.client()("LEASE", key)[1] == (b"free" if changes == 200 else b"held")


def test_with_a_password_it_is_asked_for_and_only_taken_on_this_machine(rig):
    path = rig.folder / "password"
    path.write_text(PASSWORD + "\n")
    daemon = rig.daemon("--password-file", str(path))
    for url in FILES + READS:
        answer = ask(daemon, url)
        assert answer.status == 401 and answer.headers["WWW-Authenticate"].startswith("Basic ")
        for wrong in ("wrong", "", PASSWORD[:-1], PASSWORD + "x", PASSWORD.upper()):
            assert ask(daemon, url, headers=login(wrong)).status == 401
        assert ask(daemon, url, headers=login(PASSWORD)).status == 200
        assert ask(daemon, url, headers={**login(PASSWORD), "Forwarded": "for=a"}).status == 403
    for url in PLAIN:
        assert ask(daemon, url).status == 200
    client = daemon.client()
    client("AUTH", PASSWORD)
    token = client.token("k", 60000)
    assert revoke(daemon, "k", token).status == 401
    assert revoke(daemon, "k", token, headers=login(PASSWORD)).status == 200


def test_what_is_sent_keeps_other_sites_out(local):
    for path in FILES + ["/api/state", "/api/nothing", "/health"]:
        headers = ask(local, path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


# Revoking.


@pytest.mark.parametrize("method, status", [("GET", 405), ("HEAD", 405), ("PUT", 405),
                                            ("DELETE", 405), ("OPTIONS", 405)])
def test_only_a_post_revokes(local, key, method, status):
    token = local.client().token(key, 60000)
    path = "/api/revoke?" + urllib.parse.urlencode({"resource": key, "token": token, "reason": "r"})
    answer = ask(local, path, method)
    assert answer.status == status and answer.headers["Allow"] == "POST"
    assert local.client()("LEASE", key)[1] == b"held"


@pytest.mark.parametrize("body, kind, status", [
    (b"{}", "application/json", 400), (b"", "application/json", 400),
    (b"[1]", "application/json", 400), (b'{"resource":', "application/json", 400),
    (b'{"resource":"k","token":"1","reason":"r"}', "application/json", 400),
    (b'{"resource":"k","token":0,"reason":"r"}', "application/json", 400),
    (b'{"resource":"k","token":1,"reason":""}', "application/json", 400),
    (b'{"resource":"","token":1,"reason":"r"}', "application/json", 400),
    (b'{"resource":"k","token":1,"reason":"' + b"r" * 201 + b'"}', "application/json", 400),
    (b'{"resource":"k","token":1,"reason":"r"} x', "application/json", 400),
    (b'{"resource":"\xff","token":1,"reason":"r"}', "application/json", 400),
    (b"[" * 4000, "application/json", 400),
    (b'{"resource":"k","token":1,"reason":"r"}', "text/plain", 415),
    (b'{"resource":"k","token":1,"reason":"r"}', "application/x-www-form-urlencoded", 415),
    (b'{"resource":"k","token":1,"reason":"r"}', "application/jsonp", 415)])
def test_a_body_that_says_something_else_is_refused(local, body, kind, status):
    answer = ask(local, "/api/revoke", "POST", body, headers={"Content-Type": kind})
    assert answer.status == status and answer.json["error"]


@pytest.mark.parametrize("path, origin, status", [
    ("/api/revoke", "https://evil.example", 403),
    ("/api/revoke", None, 400),
    ("/api/state", None, 405),
    ("/none", None, 404)])
def test_whoever_is_refused_sends_all_and_goes_on(local, path, origin, status):
    """To answer and close while the body is on its way would lose the answer, now and then."""
    connection = http.client.HTTPConnection(*local.admin, timeout=patience(HANG_SECONDS))
    headers = {**JSON, **({"Origin": origin} if origin else {})}
    with contextlib.closing(connection):
        connection.connect()
        connection.auto_open = 0
        for _ in range(2):
            connection.request("POST", path, b"[]", headers)
            answer = Answer(connection.getresponse())
            assert answer.status == status and answer.headers["Connection"] != "close"
        connection.request("GET", "/health")
        assert Answer(connection.getresponse()).status == 200


def test_a_body_that_is_too_large_is_refused_or_cut_off(local):
    answer = ask(local, "/api/revoke", "POST", b" " * 8192, headers=JSON)
    assert answer.status == 400, "it is read"
    for size in (8193, 1000000):
        answer = ask(local, "/api/revoke", "POST", b" " * size, headers=JSON)
        assert answer.status == 413 and "8192" in answer.json["error"]
    with contextlib.suppress(OSError, http.client.HTTPException):
        assert ask(local, "/api/revoke", "POST", b" " * 3000000, headers=JSON).status >= 400
    assert get(local, "/api/state")["status"] == "ok"


def test_a_lease_that_passed_on_meanwhile_is_left_alone(local, key):
    client = local.client()
    seen = client.token(key, 60000)
    client("RELEASE", key, seen)
    answer = revoke(local, key, seen)
    assert answer.status == 409 and answer.json["error"] == "that lease has ended already"
    token = client.token(key, 60000)
    answer = revoke(local, key, seen)
    assert answer.status == 409 and answer.json["newest"] == token
    assert revoke(local, key, token + 7).status == 409
    assert client("LEASE", key)[1] == b"held"
    assert revoke(local, key, token, "stuck since noon").json == {"revoked": token}
    client.refused("STALE", "FENCED", token, "SET", key, 1)
    wait_until(lambda: "stuck since noon" in local.stderr(), "the log has the reason")


def test_a_revoke_is_told_with_its_reason(local, key):
    client, listener = local.client(), local.client()
    listener("SUBSCRIBE", f"stockade:events:{key}")
    token = client.token(key)
    assert revoke(local, key, token, 'it "hangs"\n\u2713').status == 200
    events = [json.loads(listener.read()[2]) for _ in range(2)]
    assert [event["event"] for event in events] == ["granted", "revoked"]
    assert events[1]["reason"] == 'it "hangs"\n\u2713' and "reason" not in events[0]
    [grant] = get(local, "/api/resource", name=key)["history"]
    assert (grant["end"], grant["reason"]) == ("revoked", 'it "hangs"\n\u2713')
    assert dict(zip(*[iter(client("HISTORY", key)[0])] * 2))[b"reason"] == grant["reason"].encode()
    line = next(line for line in local.log().splitlines() if "REVOKE" in line and key in line)
    assert "hangs" in line and "127.0.0.1" in line


# The stream.


def test_what_happens_is_told_as_it_happens(local, key):
    client = local.client()
    with stream(local) as listener:
        assert hear(listener, "state")["may_revoke"] is True
        token = client.token(key, 60000)
        assert hear(listener, "leases")["changed"] >= 1
        client.refused("UNKNOWN", "FENCED", token + 1, "SET", key, 1)
        refused = hear(listener, "refused")
        assert (refused["resource"], refused["code"]) == (key, "UNKNOWN")
        for _ in range(100):
            client.send("FENCED", token + 1, "SET", key, 1)
        for _ in range(100):
            client.read()
        assert hear(listener, "more")["count"] >= 60


def test_streams_come_and_go(rig):
    daemon = rig.daemon()
    had = daemon.open_files()
    for _ in range(3):
        with contextlib.ExitStack() as pages:
            for _ in range(60):
                hear(pages.enter_context(stream(daemon)), "state")
        wait_until(lambda: daemon.open_files() == had, "all are closed")


@pytest.mark.slow  # its buffers have to fill, and then libmicrohttpd waits a while
def test_a_page_that_stops_reading_is_dropped(rig):
    daemon = rig.daemon()
    client = daemon.client()
    name = "k" * 400
    token = client.token(name, 600000)
    with stream(daemon, buffer_bytes=2048) as deaf, stream(daemon) as listener:
        hear(listener, "state")
        had, begun = daemon.open_files(), time.monotonic()
        while daemon.open_files() == had:
            client.pipeline([("FENCED", token + 1, "SET", name, 1)] * 50)
            hear(listener, "state")
            assert Seconds(begun) < patience(90)
        assert deaf.recv(10) == b"HTTP/1.1 2"
        assert hear(listener, "state")["leases"] == 1


def loop_seconds(daemon):
    """The CPU time of the daemon's first thread, its loop."""
    schedstat = pathlib.Path(f"/proc/{daemon.pid}/task/{daemon.pid}/schedstat")
    return int(schedstat.read_text().split()[0]) / 1e9


def loop_share(daemon, seconds, pages=()):
    """The share of its time that the loop works while a lease changes ten times a second. Each of
    the pages is a stream and a connection that asks for the first leases when they have changed.
    Returns how often they asked, too."""
    client, poll, asked = daemon.client(), select.epoll(), 0
    windows = {listener.fileno(): (listener, window) for listener, window in pages}
    answers = {window.fileno(): window for _, window in pages}
    for number in [*windows, *answers]:
        poll.register(number, select.EPOLLIN)
    begun, used = time.monotonic(), loop_seconds(daemon)
    while time.monotonic() < begun + seconds:
        client("RELEASE", "changes", client.token("changes"))
        until = time.monotonic() + 0.1
        while (left := until - time.monotonic()) > 0:
            for number, _ in poll.poll(left):
                if number in answers:
                    assert answers[number].recv(65536), "closed"
                elif b"event: leases" in windows[number][0].recv(65536):
                    windows[number][1].sendall(
                        b"GET /api/leases HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    asked += 1
    poll.close()
    return (loop_seconds(daemon) - used) / (time.monotonic() - begun), asked


@pytest.mark.slow
@pytest.mark.alone  # with other work on the machine the loop needs twice the time
@pytest.mark.parametrize("count", [1, 100000])
def test_a_hundred_pages_take_a_twentieth_of_the_loop_at_most(rig, count):
    daemon = rig.daemon()
    client = daemon.client()
    for begin in range(0, count, 1000):
        client.pipeline([("ACQUIRE", f"sku:{i}", 3600000)
                         for i in range(begin, min(count, begin + 1000))])
    alone, _ = loop_share(daemon, 5)
    with contextlib.ExitStack() as opened:
        pages = [(opened.enter_context(stream(daemon)),
                  opened.enter_context(socket.create_connection(daemon.admin)))
                 for _ in range(100)]
        watched, asked = loop_share(daemon, 8, pages)
    print(f"{count} leases: {alone:.2%} of the loop alone, {watched:.2%} with 100 pages")
    assert asked >= 200
    assert watched - alone < 0.05


def test_pages_take_no_connection_from_those_who_watch(rig):
    daemon = rig.daemon()
    with contextlib.ExitStack() as pages:
        streams = [pages.enter_context(stream(daemon)) for _ in range(128)]
        for listener in streams:
            hear(listener, "state")
        assert ask(daemon, "/api/stream").status == 503
        for _ in range(330):
            pages.enter_context(socket.create_connection(daemon.admin))
        assert all(ask(daemon, path).status == 200 for path in [*PLAIN, "/", "/api/state"])
        for listener in streams:
            hear(listener, "state")


HEAD = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n"


def crowd(daemon, opened, kind, context):
    """Take a connection of the admin address, and do no good with it. `context`: by TLS."""
    sock = opened.enter_context(socket.socket())
    sock.settimeout(patience(10))
    if kind == "deaf":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect(daemon.admin)
    if kind == "half a handshake":
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    elif kind != "silent":
        if context:
            sock = opened.enter_context(context.wrap_socket(sock, server_hostname="127.0.0.1"))
        sock.sendall({"silent with TLS": b"", "deaf": (HEAD + b"\r\n") * 20}.get(kind, HEAD))
    if kind == "half, and gone":
        sock.close()
    elif kind == "idle":
        sock.sendall(b"\r\n")
        assert sock.recv(12) == b"HTTP/1.1 200"
    return sock


@pytest.mark.parametrize("tls, kind", [
    *[(False, kind) for kind in ("silent", "half", "half, and gone", "deaf", "idle")],
    *[(True, kind) for kind in ("silent", "half a handshake", "silent with TLS", "half",
                                "half, and gone", "deaf")]])
def test_whoever_asks_finds_a_place_among_silent_and_slow_connections(rig, certs, tls, kind):
    """More of them than there are places, and as fast as they can be made."""
    cert = certs.server()
    daemon = rig.daemon("--tls-cert", cert.cert, "--tls-key", cert.key,
                        admin="tls:127.0.0.1:0" if tls else "127.0.0.1:0")
    context = certs.client() if tls else None
    connect = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    with contextlib.ExitStack() as opened:
        dribbling = [crowd(daemon, opened, kind, context) for _ in range(170 if tls else 330)]
        for _ in range(38):
            with contextlib.closing(connect(*daemon.admin, timeout=patience(HANG_SECONDS),
                                            **({"context": context} if tls else {}))) as probe:
                probe.connect()
                dribbling += [crowd(daemon, opened, kind, context) for _ in range(2)]
                for sock in dribbling[-150:]:
                    if kind == "half":
                        with contextlib.suppress(OSError):
                            sock.send(b"x")
                probe.request("GET", "/health")
                assert probe.getresponse().status == 200


def test_a_request_has_to_arrive_in_time(rig):
    """Also where there is room for it: or whoever sends a byte now and then stays for ever."""
    daemon = rig.daemon()
    with stream(daemon) as listener, socket.create_connection(daemon.admin) as slow:
        hear(listener, "state")
        slow.sendall(b"POST /api/revoke HTTP/1.1\r\nHost: localhost\r\nX: ")

        def ended():
            try:
                slow.sendall(b"x")
                return slow.recv(100, socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_until(ended, "it is ended")
        for _ in range(3):
            hear(listener, "state")


def test_a_daemon_that_stops_ends_its_streams_and_answers_what_is_asked(rig):
    daemon = rig.daemon()
    with stream(daemon) as listener:
        hear(listener, "state")
        daemon.stop()
        while listener.recv(65536):
            pass
