# SPDX-License-Identifier: Apache-2.0
"""The servers that are measured: Stockade, Redis, etcd, ZooKeeper, SQLite alone. (PostgreSQL has a
file of its own.) Each is as durable as its documentation advises."""

import contextlib
import pathlib
import re
import shutil
import socket
import sqlite3
import subprocess

from bench import clients, postgres
from bench.server import BUILD, BenchError, Server, free_port

CONNECTIONS_MAX = 15000

# The like-for-like peer: a write that is applied only under the key's token.
FENCED_SET = ("if redis.call('get', 'token:' .. KEYS[1]) == ARGV[1] then "
              "return redis.call('set', KEYS[1], ARGV[2]) end "
              "return redis.error_reply('STALE')")
FENCED_DECREMENT = ("if redis.call('get', 'token:' .. KEYS[1]) ~= ARGV[1] then "
                    "return redis.error_reply('STALE') end "
                    "local left = tonumber(redis.call('hget', KEYS[1], 'stock')) "
                    "if left < 1 then return redis.error_reply('RANGE') end "
                    "return redis.call('hincrby', KEYS[1], 'stock', -1)")
FENCED_EIGHT = ("for i = 1, #KEYS do if redis.call('get', 'token:' .. KEYS[i]) ~= ARGV[1] then "
                "return redis.error_reply('STALE') end end "
                "for i = 1, #KEYS do redis.call('set', KEYS[i], ARGV[i + 1]) end return #KEYS")
ACQUIRE = ("local token = redis.call('incr', 'token:' .. KEYS[1]) "
           "if redis.call('set', 'lock:' .. KEYS[1], token, 'NX', 'PX', ARGV[1]) then "
           "return {token, ARGV[1]} end return false")
UNLOCK = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"


def encode(*words):
    words = [str(word).encode() for word in words]
    return b"".join([b"*%d\r\n" % len(words)] +
                    [b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


class RespServer(Server):
    """It listens by TLS, too, at `tls_port`."""

    def __init__(self, folder):
        super().__init__(folder)
        self.tls_port = free_port()
        self.cert, self.key = self.folder / "tls.pem", self.folder / "tls.key"
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
             "-out", self.cert, "-keyout", self.key], capture_output=True, text=True, check=False)
        if made.returncode:
            raise BenchError(f"openssl makes no certificate: {made.stderr}")

    def ask(self, *words):
        """Send one command; its reply is one line or one bulk string."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            client.sendall(encode(*words))
            lines = client.makefile("rb")
            line = lines.readline().decode().rstrip()
            if line.startswith("-") or not line:
                raise BenchError(f"{self.tag} answered {words[0]} with {line!r}")
            return lines.read(int(line[1:])).decode() if line[0] == "$" else line[1:]

    def info(self, name):
        found = re.search(rf"^{name}:(.*)$", self.ask("INFO", "all"), re.M)
        return found[1].strip() if found else None


class Stockade(RespServer):
    """`redis`: its leases are there. `postgres`: its store is there. Their cost is part of ours.
    `fills`: what the names of its keys begin with; None: they are there, or it needs none."""

    def __init__(self, folder, redis=None, postgres=None, cache_mb=128, tag="stockade", options=(),
                 fills="key"):
        super().__init__(folder)
        self.tag = tag
        self.options = options
        self.cache_mb = cache_mb
        self.redis = redis
        self.behind = redis or postgres
        self.fills = fills
        self.store = self.folder / "stockade.db"
        self.store_uri = postgres.uri() if postgres else f"sqlite:{self.store}"
        self.start()

    def start(self):
        if self.behind and self.behind.process.poll() is not None:
            self.behind.start()
        self.spawn([BUILD / "stockaded", "--listen", f"127.0.0.1:{self.port}", "--admin", "off",
                    "--listen", f"tls:127.0.0.1:{self.tls_port}",
                    "--tls-cert", self.cert, "--tls-key", self.key,
                    "--log-level", "warn", "--max-connections", CONNECTIONS_MAX,
                    "--cache-size", self.cache_mb, "--store", self.store_uri,
                    "--lease", f"redis://127.0.0.1:{self.redis.port}" if self.redis else "local:",
                    *self.options])
        self.wait_for(self.listens)

    def fill(self, keys):
        """A lease under token 1 and a value for each key."""
        if self.fills:
            clients.fill(self, keys, f"ACQUIRE {self.fills}:{{next}} 86400000",
                         f"FENCED 1 SET {self.fills}:{{next}} {{value}}")

    def pids(self):
        return super().pids() + (self.behind.pids() if self.behind else [])

    def kill(self):
        super().kill()
        if self.behind:
            self.behind.kill()

    def counts(self):
        """Transactions committed in the store, and operations in them."""
        return int(self.info("store_commits") or 0), int(self.info("store_writes") or 0)


DISK = {  # what Redis does with its log
    "always": ("--appendonly", "yes", "--appendfsync", "always"),
    "everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "none": ("--appendonly", "no"),
}


class Redis(RespServer):
    """Durable as its documentation advises: each write is in the synced log before its reply. With
    less of a disk it serves for leases only, whose loss Stockade makes harmless."""

    tag = "redis"

    def __init__(self, folder, filled=True, disk="always"):
        super().__init__(folder)
        self.scripts = {}
        self.filled = filled
        self.disk = disk
        self.start()

    def start(self):
        self.spawn(["redis-server", "--port", self.port, "--bind", "127.0.0.1",
                    "--tls-port", self.tls_port, "--tls-cert-file", self.cert,
                    "--tls-key-file", self.key, "--tls-auth-clients", "no",
                    "--dir", self.folder, "--save", "", *DISK[self.disk],
                    "--maxclients", CONNECTIONS_MAX])
        self.wait_for(lambda: self.listens() and self.info("loading") == "0")
        self.scripts = {}

    def fill(self, keys):
        """A token and a value for each key."""
        if self.filled:
            clients.fill(self, keys, "SET token:key:{next} 1", "SET key:{next} {value}")

    def script(self, text):
        """Return its SHA1; load it once."""
        if text not in self.scripts:
            self.scripts[text] = self.ask("SCRIPT", "LOAD", text)
        return self.scripts[text]


# etcd and ZooKeeper, one server each. Both sync their log before they answer, as is their default.

LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m%n
"""
ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar"


def need(program, path=None):
    if not shutil.which(path or program):
        raise BenchError(f"there is no {program}; tools/setup --bench installs it")


class Etcd(Server):
    tag = "etcd"

    def __init__(self, folder):
        super().__init__(folder)
        need("etcd")
        self.peer_port = free_port()
        self.start()

    def start(self):
        here, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer_port))
        self.spawn(["etcd", "--name", "bench", "--data-dir", self.folder / "data",
                    "--listen-client-urls", here, "--advertise-client-urls", here,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", f"bench={peer}", "--log-level", "error",
                    "--quota-backend-bytes", 8 * 1024 ** 3])
        self.wait_for(lambda: b'"true"' in self.answer(b"GET /health HTTP/1.0\r\n\r\n"))

    def fill(self, keys):
        clients.load(self, "etcd-put", clients=50, pipeline=10, keys=keys, ops=keys // 10,
                     flags=["--sequential"])


class ZooKeeper(Server):
    tag = "zookeeper"

    def __init__(self, folder):
        super().__init__(folder)
        need("java")
        (self.folder / "log4j.properties").write_text(LOGGING)
        self.start()

    def start(self):
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=2000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n")
        self.spawn(["java", "-Xmx1g", "-cp", f"{self.folder}:{ZOOKEEPER_JAR}",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"])
        self.wait_for(lambda: b"Mode: standalone" in self.answer(b"srvr"))

    def fill(self, keys):
        clients.load(self, "zookeeper-make", clients=20, pipeline=50, keys=keys, ops=keys // 50)


class Sqlite(Server):
    """SQLite without anything in front of it, on a copy of Stockade's file: no server at all."""

    tag = "sqlite"

    def __init__(self, folder, stockade):
        super().__init__(folder)
        self.store = self.folder / "copy.db"
        with contextlib.closing(sqlite3.connect(stockade.store)) as source, \
                contextlib.closing(sqlite3.connect(self.store)) as copy:
            source.backup(copy)

    def pids(self):
        return []

    def memory_bytes(self):
        return 0


# The servers that the cases of one number of keys need: started, filled and stopped together.

def cache_mb(keys):
    """Return the daemon's own default, or more where that is too little."""
    return 128 if keys <= 1000000 else 2048


def on_redis(tag, redis="lease-redis"):
    return lambda folder, servers, keys: Stockade(folder, redis=servers[redis], tag=tag, fills=None)


def on_postgres(tag, postgres="postgres", fills=None):
    return lambda folder, servers, keys: Stockade(folder, postgres=servers[postgres], tag=tag,
                                                  fills=fills)


def far(round_trip_us):
    return lambda folder, servers, keys: postgres.Far(folder, servers["postgres"], round_trip_us)


MAKERS = {
    "stockade": lambda folder, servers, keys: Stockade(folder, cache_mb=cache_mb(keys)),
    "stockade-audit": lambda folder, servers, keys: Stockade(
        folder, tag="stockade-audit", options=("--audit", folder / "audit.log")),
    "stockade-audit-durable": lambda folder, servers, keys: Stockade(
        folder, tag="stockade-audit-durable",
        options=("--audit", folder / "audit.log", "--audit-durable", "all")),
    "redis": lambda folder, servers, keys: Redis(folder),
    "lease-redis": lambda folder, servers, keys: Redis(folder, filled=False),
    "lease-redis-everysec": lambda folder, servers, keys: Redis(folder, False, "everysec"),
    "lease-redis-none": lambda folder, servers, keys: Redis(folder, False, "none"),
    "stockade-redis": on_redis("stockade-redis"),
    "stockade-redis-everysec": on_redis("stockade-redis-everysec", "lease-redis-everysec"),
    "stockade-redis-none": on_redis("stockade-redis-none", "lease-redis-none"),
    "stockade-redis-2": on_redis("stockade-redis-2"),
    "postgres": lambda folder, servers, keys: postgres.Postgres(folder),
    "stockade-pg": on_postgres("stockade-pg", fills="key"),
    "stockade-pg-2": on_postgres("stockade-pg-2", fills="two"),
    "postgres-500us": far(500),
    "stockade-pg-500us": on_postgres("stockade-pg-500us", "postgres-500us"),
    "postgres-2000us": far(2000),
    "stockade-pg-2000us": on_postgres("stockade-pg-2000us", "postgres-2000us"),
    "etcd": lambda folder, servers, keys: Etcd(folder),
    "zookeeper": lambda folder, servers, keys: ZooKeeper(folder),
    "sqlite": lambda folder, servers, keys: Sqlite(folder, servers["stockade"]),
}
NEEDS = {  # tag: who has to run, too
    "stockade-redis": ("lease-redis", "stockade-redis-2"),
    "stockade-redis-everysec": ("lease-redis-everysec",),
    "stockade-redis-none": ("lease-redis-none",),
    "stockade-pg": ("postgres",),
    "stockade-pg-2": ("postgres", "stockade-pg"),
    "postgres-500us": ("postgres",),
    "stockade-pg-500us": ("postgres", "postgres-500us", "stockade-pg"),
    "postgres-2000us": ("postgres",),
    "stockade-pg-2000us": ("postgres", "postgres-2000us", "stockade-pg"),
}


@contextlib.contextmanager
def servers_for(tags, folder, keys, progress):
    """Yield tag: server, started in the order of MAKERS, since some need others."""
    servers = {}
    tags = {*tags, *(needed for tag in tags for needed in NEEDS.get(tag, ()))}
    try:
        for tag, make in MAKERS.items():
            if tag not in tags:
                continue
            progress.step(f"{tag} with {keys:,} keys", 0)
            servers[tag] = make(pathlib.Path(folder) / f"{tag}-{keys}", servers, keys)
            servers[tag].fill(keys)
        yield servers
    finally:
        for server in reversed(servers.values()):
            server.stop()
