# SPDX-License-Identifier: Apache-2.0
"""The servers that speak RESP."""

import re
import socket

from bench import clients
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
    def ask(self, *words):
        """One command; a reply of one line or one bulk string."""
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
    """Leases in its own store, or on a Redis, whose cost is then part of ours."""

    def __init__(self, folder, redis=None, cache_mb=128):
        super().__init__(folder)
        self.tag = "stockade-redis" if redis else "stockade"
        self.cache_mb = cache_mb
        self.redis = redis
        self.store = self.folder / "stockade.db"
        self.start()

    def start(self):
        self.port = self.port or free_port()
        self.spawn([BUILD / "stockaded", "--listen", f"127.0.0.1:{self.port}", "--admin", "off",
                    "--log-level", "warn", "--max-connections", CONNECTIONS_MAX,
                    "--cache-size", self.cache_mb, "--store", f"sqlite:{self.store}",
                    "--lease", f"redis://127.0.0.1:{self.redis.port}" if self.redis else "local:"])
        self.wait_for(self.listens)

    def fill(self, keys):
        """A lease under token 1 and a value for each key."""
        if not self.redis:
            clients.fill(self, keys, "ACQUIRE key:{next} 86400000",
                         "FENCED 1 SET key:{next} {value}")

    def pids(self):
        return super().pids() + (self.redis.pids() if self.redis else [])

    def counts(self):
        """Transactions committed in the store, and operations in them."""
        return int(self.info("store_commits") or 0), int(self.info("store_writes") or 0)


class Redis(RespServer):
    """Durable as its documentation advises: each write is in the synced log before its reply."""

    tag = "redis"

    def __init__(self, folder, filled=True):
        super().__init__(folder)
        self.scripts = {}
        self.filled = filled
        self.start()

    def start(self):
        self.port = self.port or free_port()
        self.spawn(["redis-server", "--port", self.port, "--bind", "127.0.0.1",
                    "--dir", self.folder, "--save", "", "--appendonly", "yes",
                    "--appendfsync", "always", "--maxclients", CONNECTIONS_MAX])
        self.wait_for(lambda: self.listens() and self.info("loading") == "0")
        self.scripts = {}

    def fill(self, keys):
        """A token and a value for each key."""
        if self.filled:
            clients.fill(self, keys, "SET token:key:{next} 1", "SET key:{next} {value}")

    def script(self, text):
        """Its SHA1, loaded once."""
        if text not in self.scripts:
            self.scripts[text] = self.ask("SCRIPT", "LOAD", text)
        return self.scripts[text]
