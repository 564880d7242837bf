# SPDX-License-Identifier: Apache-2.0
"""Builds what a test needs in one temporary folder, and takes it down again, checking each exit.

    rig.daemon(lease="local:")   a stockaded on ports of its own, ready
    rig.redis(appendonly=True)   a redis-server on a free port, ready
    rig.relay(redis.address)     a relay in front of it

A process that the test ended by force is not expected to exit with 0; every other one is.
"""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import sqlite3
import urllib.error
import urllib.request

from harness import postgres
from harness.limits import (BUILD, DAEMON, HANG_SECONDS, REPO, Late, Stopwatch, Wait, patience,
                            wait_until)
from harness.ports import free_port, release
from harness.process import Process
from harness.relay import Relay
from harness.resp import Client, ReplyError

# What has to be nought once all clients have gone.
COUNTS = re.findall(r"^    X\((\w+),", (REPO / "proxy/engine/counts.h").read_text(), re.M)
READY = re.compile(r"stockaded ready:((?: (?:listen|admin)=\S+)+)(?: \(but (.+)\))?$")


def parse_address(text):
    """'127.0.0.1:7379', '[::1]:7379' or 'tls:127.0.0.1:7379' as (host, port), 'unix:PATH' as the
    path."""
    text = text.removeprefix("tls:")
    if text.startswith("unix:"):
        return text[len("unix:"):]
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Stockaded(Process):
    """A running daemon: `address` is its first listener, `admin` the admin address or None."""

    def __init__(self, args, stderr_path, env=None, cwd=None, wrapper=(), pass_fds=()):
        super().__init__("stockaded", [*wrapper, DAEMON, *args], stderr_path, env,
                         cwd, pass_fds=pass_fds)
        self.clients = []
        self.listeners = []
        self.admin = None
        self.wrong = None  # what the ready line says is wrong

    def await_ready(self, timeout=HANG_SECONDS):
        line = self.first_line(timeout)
        match = READY.match(line)
        assert match, f"no ready line but {line!r}:\n{self.describe()}"
        self.wrong = match[2]
        for word in match[1].split():
            kind, _, text = word.partition("=")
            if kind == "listen":
                self.listeners.append(parse_address(text))
            else:
                self.admin = parse_address(text)
        return self

    @property
    def address(self):
        return self.listeners[0]

    @property
    def uri(self):
        if isinstance(self.address, str):
            return f"stockade+unix:{self.address}"
        return "stockade://{}:{}".format(*self.address)

    def log(self):
        """What it has logged, but for the line that each new store has."""
        return "".join(line for line in self.stderr().splitlines(True) if " is new: " not in line)

    def client(self, **options):
        client = Client(self.address, **options)
        self.clients.append(client)
        return client

    def close_clients(self):
        for client in self.clients:
            client.close()
        self.clients.clear()

    def metric(self, name):
        return int(re.search(rf"^stockade_{name} (\d+)$", self.get("/metrics")[2], re.M)[1])

    def left(self):
        """What it counts of clients, where that is not nought. Connections have to agree only: a
        server of another test may look here for one that had this port before."""
        shown = dict(re.findall(r"^stockade_(\w+) (\d+)$", self.get("/metrics")[2], re.M))
        found = {name: int(shown[name]) for name in COUNTS if shown[name] != "0"}
        if found.get("connections") == found.get("connections_counted"):
            found.pop("connections", None)
            found.pop("connections_counted", None)
        return found

    def await_nothing_left(self):
        """Its clients go, and leave nothing behind. (One that ends says so by itself: counts.h.)"""
        self.close_clients()
        wait = Wait()
        while left := self.left():
            wait.check(f"what clients had is given back, and {left} are left")

    def get(self, path):
        """An admin HTTP request: (status, content type, body)."""
        url = "http://{}:{}{}".format(*self.admin, path)
        try:
            with urllib.request.urlopen(url, timeout=patience(HANG_SECONDS)) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.headers["Content-Type"], refusal.read().decode()


class RedisServer(Process):
    password = ""

    def __init__(self, port, folder, args, stderr_path, certs=None):
        """`certs`: it speaks TLS."""
        self.address = ("127.0.0.1", port)
        self.folder = folder
        self.certs = certs
        if certs:
            args = [*args, *(word for name, value in certs.redis(port).items()
                             for word in (f"--{name}", value))]
        super().__init__("redis-server", [
            "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", folder,
            "--save", "", "--appendfsync", "always", "--daemonize", "no",
            "--logfile", folder / "redis.log",  # on a pipe that nobody reads it would stand still
            *args], stderr_path)

    @property
    def uri(self):
        return "{}://{}:{}".format("rediss" if self.certs else "redis", *self.address)

    def client(self, **options):
        return Client(self.address, tls=self.certs and self.certs.client(), **options)

    def __call__(self, *command, timeout=HANG_SECONDS):
        """One command on a connection of its own."""
        with contextlib.closing(self.client(timeout=timeout)) as client:
            if self.password:
                client("AUTH", self.password)
            return client(*command)

    def answers(self):
        try:
            return self("PING", timeout=1) == "PONG"
        except ReplyError as refusal:
            return refusal.code == "NOAUTH"
        except OSError:
            return False


class Rig:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.number = itertools.count()
        self.processes = []
        self.relays = []
        self.ports = []  # held until all of them have ended
        self.ends = []  # what is called then
        self.faults = Faults(self.folder / "faults")

    def stderr_path(self, name):
        return self.folder / f"{name}-{next(self.number)}.err"

    @property
    def store(self):
        return self.folder / "stockade.db"

    @property
    def store_uri(self):
        """Of the kind that the suite is about."""
        server = os.environ.get("STOCKADE_TEST_POSTGRESQL")
        return postgres.store_uri(server, self.store) if server else f"sqlite:{self.store}"

    def port(self):
        """For a server of this rig, also while it is down."""
        self.ports.append(free_port())
        return self.ports[-1]

    def start(self, *args, listen=("127.0.0.1:0",), admin="127.0.0.1:0", store=None,
              lease="local:", env=None, cwd=None, wrapper=(), pass_fds=()):
        """A daemon that was started and nothing more. None leaves an option out. Where it listens
        on any port, that is one which another may listen on when it has ended."""
        words = [word for address in listen or () for word in (
            "--listen", re.sub("(?<=127.0.0.1:)0$", lambda _: str(self.port()), address))]
        words += ["--admin", admin] if admin else []
        words += ["--lease", lease] if lease else []
        words += ["--store", postgres.patient(store or self.store_uri)] if store != "" else []
        daemon = Stockaded([*words, *args], self.stderr_path("stockaded"), env, cwd, wrapper,
                           pass_fds)
        self.processes.append(daemon)
        return daemon

    def daemon(self, *args, timeout=HANG_SECONDS, **options):
        """A daemon that is ready."""
        return self.start(*args, **options).await_ready(timeout)

    @contextlib.contextmanager
    def store_locked(self):
        """Another program is writing to the store's file, and changes nothing in the end."""
        with contextlib.closing(sqlite3.connect(self.store, timeout=patience(HANG_SECONDS),
                                                isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")

    def fault_env(self):
        """The environment that puts a daemon under the fault shim; `faults` takes the orders."""
        shim = BUILD / "fault_shim.so"
        assert shim.exists(), f"{shim} is missing"
        asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": str(shim), "FAULT_SHIM": str(self.faults.path),
                "ASAN_OPTIONS": asan}

    def faulty_daemon(self, *args, **options):
        """A daemon whose disk fails when `faults` says so."""
        return self.daemon(*args, env=self.fault_env(), **options)

    def booted(self, boot):
        """The environment of a daemon for which this is another boot of the machine, by name."""
        path = self.folder / f"boot-{boot}"
        path.write_text(f"{boot}\n")
        return {**self.fault_env(), "FAULT_SHIM_BOOT": str(path)}

    def redis(self, port=None, appendonly=False, args=(), folder=None, certs=None):
        """A redis-server that answers. A given port serves to start it again where it was."""
        folder = folder or self.folder / f"redis-{next(self.number)}"
        folder.mkdir(exist_ok=True)
        args = ["--appendonly", "yes" if appendonly else "no", *args]
        return self.start_server(RedisServer(
            port or self.port(), folder, args, self.stderr_path("redis"), certs))

    def start_server(self, server):
        """The server, once it answers."""
        self.processes.append(server)
        wait_until(lambda: not server.alive() or server.answers(), f"{server.name} answers")
        assert server.alive(), server.describe()
        return server

    def relay(self, target, port=0):
        relay = Relay(target, port)
        self.relays.append(relay)
        return relay

    def close(self):
        """Ends everything, daemons first. Raises the first failure that no stall excuses, or else
        the first of all."""
        failures = []
        for relay in self.relays:
            relay.let("up")
            relay.let("down")
        for process in sorted(self.processes, key=lambda p: p.name != "stockaded"):
            try:
                if isinstance(process, Stockaded):
                    process.close_clients()
                process.stop()
            except Exception as failure:  # the others have to end, too
                failures.append(failure)
        for relay in self.relays:
            relay.close()
        for end in reversed(self.ends):
            try:
                end()
            except Exception as failure:  # pylint: disable=broad-except
                failures.append(failure)
        while self.ports:
            release(self.ports.pop())
        if failures:
            raise min(failures, key=lambda failure: isinstance(failure, Late))


class Faults:
    """The orders of tests/support/fault_shim.c."""

    def __init__(self, path):
        self.path = path
        self.hits_path = path.with_name(path.name + ".hits")

    def order(self, text):
        """Replaces all orders at once."""
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_text(text + "\n")
        fresh.rename(self.path)

    def clear(self):
        self.path.unlink(missing_ok=True)
        self.hits_path.unlink(missing_ok=True)

    def await_hit(self, timeout=HANG_SECONDS):
        wait_until(self.hits_path.exists, "a fault was dealt out", timeout)


def restart(rig, daemon, how=signal.SIGTERM, **options):
    """Ends the daemon and starts another on the same store."""
    daemon.close_clients()
    if how == signal.SIGKILL:
        daemon.kill()
    else:
        daemon.stop()
    return rig.daemon(**options)


def refusal(rig, *args, **options):
    """Starts a daemon, which must refuse to start; its one line on stderr."""
    daemon = rig.start(*args, **options)
    with Stopwatch() as watch:
        status = daemon.wait()
    daemon.expected_status = status
    assert status > 0, daemon.describe()
    assert watch.seconds < patience(5)
    # A store that was made before something else failed has a line of its own.
    lines = [line for line in daemon.stderr().splitlines() if " is new: " not in line]
    assert len(lines) == 1 and len(lines[0]) > 10, f"one clear line:\n{daemon.describe()}"
    return lines[0]
