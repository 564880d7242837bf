# SPDX-License-Identifier: Apache-2.0
"""What is tortured: daemons, a Redis, clients, and a relay on every way between them.

          c0  c1  c2 ...            each client its own process
           │ relays │               one for each pair
          d0        d1              one store file for both, or one each ("apart")
           │ relays │
             Redis                  AOF, appendfsync always; not with local:. With "masters" a
                                    Redis Cluster, whose masters have no relays before them:
                                    they tell the daemons where they are

"replicated": the store is a PostgreSQL database with two synchronous standbys, and on every way
between daemons and servers, and from server to server, there is a relay, too.
"""

import contextlib
import json
import random
import shutil
import socket
import sys
import time

from harness.cluster import Masters
from harness.limits import BUILD, wait_until
from harness.process import Process
from harness.relay import Relay
from harness.replicated import Replicated
from harness.resp import ReplyError
from harness.rig import Rig

from torture import client as client_module
from torture.client import Caller, Lost

# leases, stores: the rounds of a run take turns.
LAYOUTS = (("redis", "shared"), ("local", "shared"), ("redis", "apart"), ("redis", "alone"),
           ("masters", "shared"), ("local", "replicated"))
CLIENTS = 6
REGISTERS = 3
OPENING = {"sku:0": 100_000, "sku:1": 150}  # one that lasts, one that is sold out soon
DAEMON_START_SECONDS = 20
HEALED_SECONDS = 60
LEASE_SECONDS_MAX = 5.0  # no client asks for more than 1.5 s


class TortureRelay(Relay):
    """Can also close one direction and leave the other open, as a machine half gone does."""

    def __init__(self, target):
        self.sinks = {"up": [], "down": []}
        super().__init__(target)

    def _pump(self, source, sink, gate):
        direction = "up" if gate is self.gates["up"] else "down"
        self.sinks[direction].append(sink)
        super()._pump(source, sink, gate)

    def half_close(self, direction):
        sinks, self.sinks[direction] = self.sinks[direction], []
        for sink in sinks:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)


class Cluster:
    def __init__(self, folder, seed, layout):
        folder.mkdir(parents=True)
        self.folder = folder
        self.rig = Rig(folder)
        self.chance = random.Random(f"{seed} cluster")
        self.seed = seed
        self.leases, self.stores = layout
        self.redis = None
        self.masters = None
        if self.leases == "masters":
            self.masters = Masters(self.rig, replicas=True, by_redis_cli=True)
        if self.leases == "redis":
            self.redis = self.rig.redis(appendonly=True)
        count = 1 if self.stores == "alone" else 2
        self.group = self.database = None
        self.doors = []
        if self.stores == "replicated":
            self.group = Replicated(self.rig)
            self.database = self.group.database()
            self.doors = [self.group.door(f"d{number}") for number in range(count)]
        self.prefixes = ["AB"[i] + "/" if self.stores == "apart" else "" for i in range(count)]
        self.ports = [self.rig.port() for _ in range(count)]
        self.redis_relays = [self.relay(self.redis.address) for _ in range(count)
                             if self.redis is not None]
        self.relays = [[self.relay(("127.0.0.1", port)) for port in self.ports]
                       for _ in range(CLIENTS)]
        self.redis_timeout_ms = self.chance.choice((300, 1000))
        self.daemons = [None] * count
        self.clients = [None] * CLIENTS
        self.incarnations = [0] * CLIENTS
        self.histories = []
        self.ended = []  # by SIGTERM
        self.until = 0.0
        try:
            for number in range(count):
                self.start_daemon(number)
        except BaseException:
            self.close()
            raise

    def relay(self, target):
        relay = TortureRelay(target)
        self.rig.relays.append(relay)
        return relay

    def start_daemon(self, number):
        lease = "local:" if self.masters is None else self.masters.uri
        if self.redis is not None:
            port = self.redis_relays[number].address[1]
            lease = f"redis://127.0.0.1:{port}?timeout_ms={self.redis_timeout_ms}"
        store = f"sqlite:{self.folder}/store{self.prefixes[number].strip('/')}.db"
        if self.group is not None:
            store = self.doors[number].uri(self.database)
        self.daemons[number] = self.rig.daemon(
            listen=(f"127.0.0.1:{self.ports[number]}",), store=store, lease=lease,
            timeout=DAEMON_START_SECONDS)

    def forget(self):
        """All leases and tokens."""
        if self.masters is not None:
            self.masters.lose_all()
        else:
            self.redis.client()("FLUSHALL")

    def start_redis(self, empty=False, truncate=False):
        folder = self.redis.folder
        if empty:
            shutil.rmtree(folder)
        if truncate:
            for path in folder.glob("appendonlydir/*.incr.aof"):
                size = path.stat().st_size
                with open(path, "r+b") as aof:
                    aof.truncate(size - min(size, self.chance.randint(1, 1 + size // 2)))
        self.redis = self.rig.redis(port=self.redis.address[1], appendonly=True, folder=folder)

    def start_client(self, number):
        self.incarnations[number] += 1
        name = f"c{number}.{self.incarnations[number]}"
        path = self.folder / f"{name}.history"
        path.touch()
        self.histories.append(path)
        config = {"client": name, "seed": f"{self.seed} {name}", "history": str(path),
                  "until": self.until, "registers": REGISTERS, "skus": len(OPENING),
                  "daemons": self.addresses([relay.address for relay in self.relays[number]])}
        process = Process(name, [sys.executable, client_module.__file__, json.dumps(config)],
                          self.folder / f"{name}.err", env={"STOCKADE_BUILD": str(BUILD)})
        self.rig.processes.append(process)
        self.clients[number] = process

    def addresses(self, addresses):
        return [{"address": list(address), "store": prefix}
                for address, prefix in zip(addresses, self.prefixes)]

    def keys(self):
        return [f"reg:{i}" for i in range(REGISTERS)] + list(OPENING)

    def direct(self, name):
        """A caller without relays, for before and after."""
        path = self.folder / f"{name}.history"
        path.touch()
        self.histories.append(path)
        caller = Caller(name, path, self.addresses([("127.0.0.1", port) for port in self.ports]))
        caller.timeout = 10.0
        return caller

    def open_stock(self):
        """Before anyone sells."""
        caller = self.direct("setup")
        for at in range(len(set(self.prefixes))):
            for key in OPENING:
                token = caller.acquire(at, key, 60000)
                caller.connect(at)("FENCED", token, "HSET", key, "stock", OPENING[key])
                caller.release(at, key, token)

    def begin(self, seconds):
        self.open_stock()
        self.until = time.monotonic() + seconds
        for number in range(CLIENTS):
            self.start_client(number)

    def dead(self):
        """Daemons and Redis servers that ended and were not ended by us."""
        nodes = self.masters.nodes if self.masters is not None else [self.redis]
        return [process for process in (*self.daemons, *nodes)
                if process is not None and not process.alive() and not process.killed
                and process not in self.ended]

    def end_daemon(self, number):
        """SIGTERM. One that does not end well counts as dead."""
        with contextlib.suppress(AssertionError):
            self.daemons[number].stop()
            self.ended.append(self.daemons[number])

    def heal(self):
        """Everyone runs, every way is open, the clients have come to their end."""
        for relay in self.rig.relays if self.group is None else sum(self.relays, []):
            relay.let("up")
            relay.let("down")
            relay.accept()
        nodes = self.masters.nodes if self.masters is not None else [self.redis]
        for process in (*self.daemons, *self.clients, *nodes):
            if process is not None and process.alive():
                process.thaw()
        if self.redis is not None and not self.redis.alive():
            self.start_redis()
        if self.masters is not None:
            self.masters.revive()
        for number, daemon in enumerate(self.daemons):
            if not daemon.alive():
                self.start_daemon(number)
        if self.group is not None:
            self.group.heal()
            for daemon in self.daemons:
                client = daemon.client(timeout=HEALED_SECONDS)
                wait_until(lambda c=client: not isinstance(c.ask("LEASE", "sku:0"), ReplyError),
                           "the daemon has found its database", HEALED_SECONDS)
        deadline = time.monotonic() + 20
        for process in self.clients:
            left = max(deadline - time.monotonic(), 0.1)
            with contextlib.suppress(AssertionError):
                process.wait(left)
            if process.alive():
                process.kill()
        for row in self.relays:
            for relay in row:
                relay.close()

    def failed_clients(self):
        """Names and words of clients that ended by an error of their own."""
        return [process for process in self.rig.processes if process.name.startswith("c")
                and not process.killed and process.popen.poll() not in (0, None)]

    def last_words(self, unresolved):
        """With everything healed: takes every lease once more, reads everything at every daemon,
        and asks about each sale whose outcome nobody knows; then takes every lease from a Redis
        that has forgotten all tokens. Returns the first lease that it waited for in vain, or
        None."""
        caller = self.direct("final")
        for at, prefix in enumerate(self.prefixes):
            for key in self.keys():
                token = self.take(caller, at, key)
                if token is None:
                    return f"{prefix}{key} at d{at}"
                caller.fget(at, key, token)
                for op in unresolved.pop(prefix + key, ()):
                    caller.receipt(at, key, op.token, op.id)
                for other, same in enumerate(self.prefixes):
                    if same == prefix:
                        caller.get(other, key)
                caller.release(at, key, token)
        if self.redis is not None or self.masters is not None:
            self.forget()
            for at, prefix in enumerate(self.prefixes):
                for key in self.keys():
                    token = self.take(caller, at, key)
                    if token is None:
                        return f"{prefix}{key} at d{at}, after a FLUSHALL"
                    caller.release(at, key, token)
        for at in range(len(self.prefixes)):
            caller.drop(at)
        return None

    @staticmethod
    def take(caller, at, key):
        """The token, or None where the lease is not to be had in time."""
        token = None
        deadline = time.monotonic() + LEASE_SECONDS_MAX
        while token is None and time.monotonic() < deadline:
            with contextlib.suppress(Lost):
                token = caller.acquire(at, key, 3000, 1000)
            time.sleep(0 if token is not None else 0.05)
        return token

    def close(self):
        """Ends everyone. Returns what went wrong at that."""
        for process in self.rig.processes:
            if process.alive():
                process.thaw()
            if process.name.startswith("c") and process.alive():
                process.kill()
        try:
            self.rig.close()
        except AssertionError as problem:
            return [] if self.dead() else [str(problem)]
        return []
