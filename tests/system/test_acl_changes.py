# SPDX-License-Identifier: Apache-2.0
"""A user that has changed: by every way in, in whatever it was doing, however the change comes.

The sets are lists, held against the sources: a new way in, a new route of the page or another way
by which users change fails here until it has a row. One daemon has a user for each cell; then all
of them change at once."""

import base64
import functools
import http.client
import itertools
import re
import signal
import subprocess

import pytest

from harness.limits import HANG_SECONDS, REPO, patience, wait_until
from harness.resp import Client, Closed, ReplyError
from harness.users import ROOT, login, with_users

RIGHTS = "~k* &other &mine +@all"
# A user's line before the change, and after it; None: there is none.
CHANGES = {"disabled": (f"on >pw {RIGHTS}", f"off >pw {RIGHTS}"),
           "deleted": (f"on >pw {RIGHTS}", None),
           "password": (f"on >pw {RIGHTS}", f"on >new {RIGHTS}"),
           "rights": (f"on >pw {RIGHTS}", "on >pw ~k* &other +@connection +@events"),
           "enabled": (f"off >pw {RIGHTS}", f"on >pw {RIGHTS}"),
           "added": (None, f"on >pw {RIGHTS}")}
GONE, COME = ("disabled", "deleted"), ("enabled", "added")

# By the address_kind of its listener; whether it is a certificate that names the user.
WAYS = {"plain": ("TCP", False), "unix": ("UNIX", False), "tls": ("TLS", False),
        "certificate": ("TLS", True)}
PAGE_WAYS = {"basic": False, "page certificate": True}
DOINGS = ("idle", "listening", "waiting", "in a transaction")
COMES = {"ACL LOAD": "load_acl", "SIGHUP": "take_users", "restart": None}

SOURCES = REPO / "proxy"
STREAM = "/api/stream"
ROUTES = re.findall(r'^    \{"(/api/\w+)", "', (SOURCES / "server/admin.c").read_text(), re.M)


def named(way, doing, change):
    return change if way == "certificate" else f"{way}.{doing}.{change}".replace(" ", "-")


# Each way, idle, and each doing, by one of them: what is behind a connection knows no way.
CELLS = [(way, doing, change) for way, doing in
         dict.fromkeys([*((way, "idle") for way in WAYS), *(("plain", each) for each in DOINGS)])
         for change in CHANGES if change not in COME or way == "certificate"]
PAGE_CELLS = [*itertools.product(PAGE_WAYS, CHANGES)]


@functools.cache
def hashed(password):
    return subprocess.run(["openssl", "passwd", "-6", password], capture_output=True, text=True,
                          check=True, timeout=patience(HANG_SECONDS)).stdout.strip()


def lines(changed):
    """The file of users, before the change or after it."""
    users = {named(*cell): cell[-1] for cell in CELLS}
    users |= {named(way, "idle", change): change for way in WAYS for change in CHANGES}
    users |= {f"page.{change}": change for change in CHANGES}
    found = [ROOT]
    for name, change in users.items():
        words = CHANGES[change][changed]
        if words is not None:
            found.append(f"user {name} {words}")
    for change in CHANGES:
        words = CHANGES[change][changed]
        if words is not None:
            slow = re.sub(r">(\w+)", lambda match: "crypt:" + hashed(match[1]), words)
            found.append(f"user slow.{change} {slow}")
    return found


class Users:
    """The daemon, and who is connected to it."""

    def __init__(self, rig, certs):
        self.rig, self.certs = rig, certs
        self.by_name = {name: certs.client(certs.issue(name)) for name in CHANGES}
        self.nameless = certs.client()
        cert = certs.server()
        self.options = {"args": ("--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca",
                                 certs.ca, "--tls-clients", "optional", "--tls-user", "cn"),
                        "listen": ["127.0.0.1:0", f"unix:{rig.folder}/s", "tls:127.0.0.1:0"],
                        "admin": "tls:127.0.0.1:0"}
        self.start(lines(changed=False))

    def start(self, users):
        self.daemon = with_users(self.rig, *users, **self.options)
        self.addresses = dict(zip(("TCP", "UNIX", "TLS"), self.daemon.listeners, strict=True))

    def connect(self, way, change):
        kind, by_certificate = WAYS[way]
        tls = None if kind != "TLS" else self.by_name[change] if by_certificate else self.nameless
        client = Client(self.addresses[kind], tls=tls)
        self.daemon.clients.append(client)
        return client

    def change(self, comes):
        if comes == "restart":
            self.daemon.close_clients()
            self.daemon.stop()
            self.start(lines(changed=True))
            return
        self.daemon.users.write_text("\n".join(lines(changed=True)) + "\n")
        if comes == "ACL LOAD":
            assert login(self.daemon, "root")("ACL", "LOAD") == "OK"
        else:
            self.daemon.signal(signal.SIGHUP)
            wait_until(lambda: "the options were read again" in self.daemon.stderr(), "SIGHUP")


class Visitor:
    """One connection to the page."""

    def __init__(self, users, way, change, password="pw"):
        self.connection = http.client.HTTPSConnection(
            *users.daemon.admin, timeout=patience(HANG_SECONDS),
            context=users.by_name[change] if PAGE_WAYS[way] else users.nameless)
        self.headers = {"Host": "localhost", "Content-Type": "application/json"}
        if not PAGE_WAYS[way]:
            word = base64.b64encode(f"page.{change}:{password}".encode()).decode()
            self.headers["Authorization"] = f"Basic {word}"

    def ask(self, path):
        """The answer, whose text is still to be read."""
        body = '{"resource":"k1","token":1}' if path == "/api/revoke" else None
        self.connection.request("GET" if body is None else "POST", path, body, self.headers)
        return self.connection.getresponse()

    def status(self, path):
        answer = self.ask(path)
        if path != STREAM or answer.status != 200:
            answer.read()
        return answer.status


def enter(client, way, name, password="pw"):
    """What it is told that comes as this user."""
    return client.ask("PING") if WAYS[way][1] else client.ask("AUTH", name, password)


def begin(client, doing, token):
    """Has it do that."""
    if doing == "listening":
        client("SUBSCRIBE", "other")
        client("SUBSCRIBE", "mine")
    elif doing == "waiting":
        client.send("ACQUIRE", "k1", 60000, "WAIT", 60000)
    elif doing == "in a transaction":
        client.multi(("FENCED", token, "SET", "k1", "v"))


def is_closed(client):
    try:
        client.ask("PING", timeout=5)
    except (Closed, ConnectionError):
        return True
    except TimeoutError: # it still waits
        pass
    return False


def what_is_wrong(client, doing, change):
    """With an open connection after the change; None: nothing."""
    # Who waits for, or listens to, what it may not any more is closed, too.
    if change in GONE or (change == "rights" and doing in ("listening", "waiting")):
        return None if is_closed(client) else "it is still connected"
    if doing == "waiting":
        return None # it is counted below
    told = client.ask(*{"idle": ("GET", "k1"), "listening": ("PING",),
                        "in a transaction": ("EXEC",)}[doing])
    denied = isinstance(told, ReplyError) and told.code == "NOPERM"
    return None if denied == (change == "rights") else f"it gets {told!r}"


def what_is_wrong_anew(users, way, name, change):
    """With those who come after the change."""
    told = enter(users.connect(way, change), way, name)
    if change in GONE or (change == "password" and not WAYS[way][1]):
        if not isinstance(told, ReplyError) or told.code not in ("WRONGPASS", "NOAUTH"):
            return f"it comes in with the old password, or none: {told!r}"
    elif isinstance(told, ReplyError):
        return f"it is kept out: {told.text}"
    if change == "password" and isinstance(
            enter(users.connect(way, change), way, name, "new"), ReplyError):
        return "it is kept out with the new password"
    return None


def page_status(way, change):
    if change in GONE:
        return 401
    if change == "password" and not PAGE_WAYS[way]:
        return 401
    return 403 if change == "rights" else 200


@pytest.mark.parametrize("comes", COMES)
def test_a_user_that_has_changed_is_another_one_wherever_it_is(rig, certs, comes):
    users = Users(rig, certs)
    root = login(users.daemon, "root")
    token = root.token("k1")
    open_ones = {}
    for way, doing, change in CELLS:
        client = open_ones[way, doing, change] = users.connect(way, change)
        told = enter(client, way, named(way, doing, change))
        assert isinstance(told, ReplyError) == (change in COME), (way, change, told)
        if change not in COME:
            begin(client, doing, token)
    streams = [Visitor(users, way, change).ask(STREAM) for way, change in PAGE_CELLS
               if change not in COME]
    assert {stream.status for stream in streams} == {200}
    root.await_waiters("k1", len(CHANGES) - len(COME))
    slow = {change: users.connect("plain", change) for change in CHANGES}
    for change, client in slow.items():
        client.send("AUTH", f"slow.{change}", "pw") # and the change comes upon it
    users.change(comes)

    wrong = {}
    if comes != "restart":
        wrong = {cell: what_is_wrong(client, *cell[1:]) for cell, client in open_ones.items()}
        for change in GONE:
            told = None
            try:
                told = slow[change].read()
            except (Closed, ConnectionError):
                pass
            if told == "OK" and not is_closed(slow[change]):
                wrong["logging in", change] = "it is in"
        root.await_waiters("k1", 1) # who has another password
        for stream in streams:
            stream.read() # each ends, for whoever may come back can
    for way, change in itertools.product(WAYS, CHANGES):
        wrong[way, "anew", change] = what_is_wrong_anew(users, way, named(way, "idle", change),
                                                        change)
    for way, change in PAGE_CELLS:
        visitor, wanted = Visitor(users, way, change), page_status(way, change)
        for path in sorted(ROUTES, key=STREAM.__eq__): # it does not end
            found = visitor.status(path)
            if found != wanted and (wanted != 200 or found in (401, 403)):
                wrong[way, change, path] = f"{found}, not {wanted}"
        visitor.connection.close()
    wrong = {cell: what for cell, what in wrong.items() if what}
    assert not wrong, "\n".join(f"{cell}: {what}" for cell, what in wrong.items())


def test_the_lists_are_those_of_the_sources():
    kinds = re.search(r"enum address_kind \{([^}]*)\}",
                      (SOURCES / "server/address.h").read_text())[1]
    assert set(re.findall(r"ADDRESS_(\w+)", kinds)) == {kind for kind, _ in WAYS.values()}
    setters = set()
    for path in SOURCES.rglob("*.c"):
        text = path.read_text()
        for call in re.finditer(r"^    .*engine_set_acl\(", text, re.M):
            function = re.findall(r"^\w[^;\n]*?(\w+)\([^;]*$\s*^\{", text[:call.start()], re.M)[-1]
            setters.add(function)
    assert setters == {name for name in COMES.values() if name}
    assert len(ROUTES) >= 6 and "/api/revoke" in ROUTES
