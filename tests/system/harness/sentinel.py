# SPDX-License-Identifier: Apache-2.0
"""A master, its replicas and the sentinels that watch over them, all of them real.

    cluster = Sentinels(rig)             one replica, three sentinels, ready for a failover
    rig.daemon(lease=cluster.uri)
    cluster.stop_replication()           the replicas get nothing any more
    cluster.fail_over()                  kill -9 to the master; returns when the next one is
    cluster.rejoin()                     the old master is a replica of the new one

Sentinel waits for seconds at each step; `SENTINEL DEBUG` shortens that, as Redis's own tests do.
All of them write logs: on stdout, which nobody reads, they would stand still after a while.
"""

import collections
import re

from harness.limits import wait_until
from harness.process import Process
from harness.rig import RedisServer
from harness.services import Service

NAME = "shop"
FAILOVER_SECONDS = 30.0
NEVER_MS = 600000
# What a replica said of itself counts for five ping periods, and it is asked every second.
HASTE = ("ping-period", 400, "info-period", 200, "publish-period", 200, "ask-period", 100,
         "tilt-period", 1000, "min-link-reconnect-period", 200)


def pairs(reply):
    texts = [part.decode() for part in reply]
    return dict(zip(texts[::2], texts[1::2]))


class SentinelServer(RedisServer):
    def __init__(self, port, folder, lines, stderr_path, certs=None):
        self.address = ("127.0.0.1", port)
        self.folder = folder
        self.certs = certs
        options = certs.redis(port) if certs else {"port": port}
        self.config = folder / f"sentinel-{port}.conf"
        log = folder / f"sentinel-{port}.log"
        if lines is not None:  # else it goes on with what it wrote there itself
            self.config.write_text("\n".join(
                [*(f"{name} {value}" for name, value in options.items()), "bind 127.0.0.1",
                 f"dir {folder}", f"logfile {log}", *lines, ""]))
        Process.__init__(self, "redis-sentinel", ["redis-server", self.config, "--sentinel"],
                         stderr_path)


class Sentinels(Service):
    """`password` is that of the master and the replicas, `sentinel_password` that of sentinels."""

    def __init__(self, rig, replicas=1, sentinels=3, down_after_ms=800, password="",
                 sentinel_password="", quorum=None):
        super().__init__(rig)
        self.password = password
        self.sentinel_password = sentinel_password
        self.down_after_ms = down_after_ms
        self.quorum = quorum or sentinels // 2 + 1
        self.folder = rig.folder / f"sentinels-{next(rig.number)}"
        self.folder.mkdir()
        self.master = self._redis()
        self.replicas = [self._redis("--replicaof", *self.master.address)
                         for _ in range(replicas)]
        self.sentinels = [self._sentinel() for _ in range(sentinels)]
        self.await_settled()

    def _redis(self, *args, port=None):
        secret = ["--requirepass", self.password, "--masterauth", self.password]
        server = self.rig.redis(port=port, certs=self.certs, args=[
            *args, "--repl-diskless-sync-delay", 0, "--logfile", self.folder / "redis.log",
            *(secret if self.password else [])])
        server.password = self.password
        return server

    def _sentinel(self, port=None):
        lines = [f"sentinel monitor {NAME} 127.0.0.1 {self.master.address[1]} {self.quorum}",
                 f"sentinel down-after-milliseconds {NAME} {self.down_after_ms}",
                 f"sentinel failover-timeout {NAME} 2000"]
        if self.password:
            lines.append(f"sentinel auth-pass {NAME} {self.password}")
        if self.sentinel_password:
            lines += [f"requirepass {self.sentinel_password}",
                      f"sentinel sentinel-pass {self.sentinel_password}"]
        server = self.rig.start_server(SentinelServer(
            port or self.rig.port(), self.folder, None if port else lines,
            self.rig.stderr_path("sentinel"), self.certs))
        server.password = self.sentinel_password
        server("SENTINEL", "DEBUG", *HASTE)
        return server

    @property
    def uri(self):
        return self.uri_with()

    def uri_with(self, options="", name=NAME, password=None, sentinel_password=None, hosts=None):
        """The URI with something else in it."""
        password = self.password if password is None else password
        words = [*([options] if options else []), *self.tls_options]
        if sentinel_password is None:
            sentinel_password = self.sentinel_password
        if sentinel_password:
            words.append(f"sentinel_password={sentinel_password}")
        hosts = hosts or [f"127.0.0.1:{s.address[1]}" for s in self.sentinels]
        login = f":{password}@" if password else ""
        return (f"{'rediss' if self.tls else 'redis'}+sentinel://{login}{','.join(hosts)}/{name}"
                + ("?" + "&".join(words) if words else ""))

    def role(self, server):
        return server("ROLE")[0].decode()

    def named(self, sentinel):
        """The master's address as this sentinel names it."""
        host, port = sentinel("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return host.decode(), int(port)

    def _follow(self):
        """On a machine that stood still for a while there was a failover that nobody asked for."""
        named = collections.Counter(self.named(sentinel) for sentinel in self.sentinels)
        for replica in self.replicas:
            if 2 * named[replica.address] > len(self.sentinels):
                self.replicas[self.replicas.index(replica)] = self.master
                self.master = replica
                return

    def _settled(self, sentinel):
        self._follow()
        master = pairs(sentinel("SENTINEL", "MASTER", NAME))
        replicas = [pairs(one) for one in sentinel("SENTINEL", "REPLICAS", NAME)]
        return (self.named(sentinel) == self.master.address and master["flags"] == "master" and
                int(master["num-other-sentinels"]) == len(self.sentinels) - 1 and
                len(replicas) == len(self.replicas) and
                all(one["flags"] == "slave" and one["master-link-status"] == "ok"
                    for one in replicas))

    def _replicas_online(self):
        text = self.master("INFO", "replication")
        return text.count(b"state=online") == len(self.replicas)

    def await_settled(self):
        """The sentinels know each other and the replicas, and these are in step with the master:
        ready for a failover."""
        for sentinel in self.sentinels:
            wait_until(lambda s=sentinel: self._settled(s), "the sentinels have settled")
        wait_until(self._replicas_online, "the replicas are in step with the master")

    def await_replica(self):
        """The master hears of a replica what it has; a new one says so once a second."""
        wait_until(lambda: re.search(rb"state=online,offset=[1-9]",
                                     self.master("INFO", "replication")),
                   "the master has a replica", FAILOVER_SECONDS)

    def stop_replication(self):
        """The replicas have what they have, and can log in at no master any more."""
        for replica in self.replicas:
            replica("CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
        self.master("CLIENT", "KILL", "TYPE", "replica")
        wait_until(lambda: b"connected_slaves:0" in self.master("INFO", "replication"),
                   "no replica is connected")

    def _let_replicate(self):
        for server in [self.master, *self.replicas]:
            server("CONFIG", "SET", "masteruser", "", "masterauth", self.password)

    def await_promotion(self, old):
        """Returns when most sentinels name another master than `old`, and it is one; that is the
        service's own recovery. The replica it was made of is `master` then."""
        def promoted():
            for replica in self.replicas:
                if (2 * sum(self.named(s) == replica.address for s in self.sentinels) >
                        len(self.sentinels) and self.role(replica) == "master"):
                    return replica
            return None
        self.master = wait_until(promoted, "a replica was promoted", FAILOVER_SECONDS)
        self.replicas.remove(self.master)
        self._let_replicate()
        self.old = old

    def fail_over(self):
        """kill -9 to the master."""
        old = self.master
        old.kill()
        self.await_promotion(old)

    def _switched(self, sentinel):
        master = pairs(sentinel("SENTINEL", "MASTER", NAME))
        return int(master["port"]) != self.old.address[1] and master["flags"] == "master"

    def rejoin(self):
        """The old master comes back, as a replica, and all is as before the failover."""
        for sentinel in self.sentinels:  # it would be taken for the master that is up again
            wait_until(lambda s=sentinel: self._switched(s), "the failover has ended")
        self.rig.processes.remove(self.old)
        self.replicas.append(self._redis("--replicaof", *self.master.address,
                                         port=self.old.address[1]))
        self.await_settled()

    def down(self):
        """kill -9 to all; to the sentinels first, so that they have no time to do anything."""
        for process in [*self.sentinels, self.master, *self.replicas]:
            process.kill()
            self.rig.processes.remove(process)

    def up(self):
        self.master = self._redis(port=self.master.address[1])
        self.replicas = [self._redis("--replicaof", *self.master.address, port=r.address[1])
                         for r in self.replicas]
        self.sentinels = [self._sentinel(port=s.address[1]) for s in self.sentinels]

    def lose_all(self):
        self.master("FLUSHALL")


class Sentinel(Sentinels):
    """For the tests that hold for all lease services. Its master is never failed over: they have
    no replica that would do."""

    name = "sentinel"
    programs = ("redis-server",)

    def __init__(self, rig):
        super().__init__(rig, down_after_ms=NEVER_MS)


class SentinelTls(Sentinel):
    tls = True
