# SPDX-License-Identifier: Apache-2.0
"""A Redis Cluster: masters, and where a test wants them, a replica of each, all of them real.

    cluster = Masters(rig, replicas=True)
    rig.daemon(lease=cluster.uri)
    cluster.serving("sku:1")             the master that serves the resource's slot
    cluster.move("sku:1", to)            its slot goes to another one, step by step
    cluster.fail_over("sku:1")           kill -9 to its master; returns when its replica serves

The nodes are put together by CLUSTER commands: redis-cli --cluster create does the same, and waits
for seconds in between.
"""

import contextlib
import re
import subprocess

from harness.limits import patience, wait_until
from harness.resp import ReplyError
from harness.services import Service

SLOTS = 16384
NODE_TIMEOUT_MS = 1000


def crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc


def slot_of(resource):
    tag = resource.encode().split(b"}")[0] or b"#"
    return crc16(tag) % SLOTS


class Masters(Service):
    def __init__(self, rig, masters=3, replicas=False, password="", by_redis_cli=False):
        super().__init__(rig)
        self.password = password
        self.bus = {}
        self.owners = {} # of slots that have moved, by number
        self.masters = [self._redis() for _ in range(masters)]
        self.replicas = []
        if by_redis_cli:
            self._create(replicas)
            return
        for number, node in enumerate(self.masters):
            node("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // masters,
                 SLOTS * (number + 1) // masters - 1)
            node("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        self._meet(self.masters[1:])
        self.await_settled()
        if replicas:
            self.replicas = [self._redis() for _ in self.masters]
            self._meet(self.replicas)
            for replica, master in zip(self.replicas, self.masters):
                wait_until(lambda m=master, r=replica: self._knows(r, m), "they have met")
                replica("CLUSTER", "REPLICATE", self.id_of(master))
            for replica in self.replicas:
                wait_until(lambda r=replica: b"master_link_status:up" in r("INFO", "replication"),
                           "the replica follows")
            self.await_settled()

    def _redis(self, port=None, folder=None):
        if port is None:
            port = self.rig.port()
            self.bus[port] = self.rig.port()
        secret = ["--requirepass", self.password, "--masterauth", self.password]
        server = self.rig.redis(port=port, folder=folder, certs=self.certs, args=[
            "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
            "--cluster-port", self.bus[port], "--cluster-node-timeout",
            int(patience(NODE_TIMEOUT_MS)), "--cluster-require-full-coverage", "no",
            "--repl-diskless-sync-delay", 0,
            *(["--tls-cluster", "yes"] if self.certs else []), *(secret if self.password else [])])
        server.password = self.password
        return server

    def _create(self, replicas):
        self.replicas = [self._redis() for _ in self.masters] if replicas else []
        hosts = ["{}:{}@{}".format(*node.address, self.bus[node.address[1]])
                 for node in self.nodes]
        subprocess.run(["redis-cli", "--cluster", "create", *hosts, "--cluster-replicas",
                        "1" if replicas else "0", "--cluster-yes"], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        self.await_settled()

    def _meet(self, nodes):
        for node in nodes:
            self.masters[0]("CLUSTER", "MEET", *node.address, self.bus[node.address[1]])

    def id_of(self, node):
        return node("CLUSTER", "MYID").decode()

    def _knows(self, node, other):
        return self.id_of(other).encode() in node("CLUSTER", "NODES")

    @property
    def nodes(self):
        return [*self.masters, *self.replicas]

    def await_settled(self):
        """All nodes know who serves each slot."""
        for node in self.nodes:
            wait_until(lambda n=node: self._settled(n), "the cluster has settled")

    def _settled(self, node):
        with contextlib.suppress(OSError, ReplyError):
            info = node("CLUSTER", "INFO")
            return (b"cluster_state:ok" in info and b"cluster_slots_ok:16384" in info and
                    f"cluster_known_nodes:{len(self.nodes)}".encode() in info)
        return False

    @property
    def uri(self):
        hosts = ",".join("{}:{}".format(*node.address) for node in self.masters)
        login = f":{self.password}@" if self.password else ""
        options = "?" + "&".join(self.tls_options) if self.tls else ""
        return f"{'rediss' if self.tls else 'redis'}+cluster://{login}{hosts}{options}"

    def serving(self, resource):
        """The one master that all agree upon."""
        slot = slot_of(resource)
        if slot in self.owners:
            self._await_owner(slot)
        port, = self._named_by_all(slot)
        return next(node for node in self.masters if node.address[1] == port)

    def _epoch(self, node):
        return int(re.search(rb"cluster_my_epoch:(\d+)", node("CLUSTER", "INFO"))[1])

    def _named_by_all(self, slot):
        """The ports that the masters say the slot is served at."""
        return {next((master[1] for first, last, master, *_ in node("CLUSTER", "SLOTS")
                      if first <= slot <= last), None) for node in self.masters}

    def begin_move(self, resource, to):
        """The slot is on its way, and no key has gone yet."""
        source = self.serving(resource)
        to("CLUSTER", "SETSLOT", slot_of(resource), "IMPORTING", self.id_of(source))
        source("CLUSTER", "SETSLOT", slot_of(resource), "MIGRATING", self.id_of(to))
        return source

    def move_keys(self, source, resource, to):
        slot = slot_of(resource)
        while keys := source("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source("MIGRATE", *to.address, "", 0, 5000, "REPLACE",
                   *(["AUTH", self.password] if self.password else []), "KEYS", *keys)

    def end_move(self, resource, to):
        self.owners[slot_of(resource)] = to
        self._await_owner(slot_of(resource))

    def _await_owner(self, slot):
        """All masters agree on who it is. With an epoch above all others, and told again where that
        does not last: old news that the nodes tell each other may undo it."""
        to = self.owners[slot]
        others = [node for node in self.masters if node is not to]

        def agreed():
            if self._named_by_all(slot) == {to.address[1]}:
                return True
            to("CLUSTER", "BUMPEPOCH")
            if all(self._epoch(to) > self._epoch(node) for node in others):
                for node in (to, *others):
                    node("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))
            return False
        wait_until(agreed, "all agree on who serves the slot")

    def move(self, resource, to):
        source = self.begin_move(resource, to)
        self.move_keys(source, resource, to)
        self.end_move(resource, to)

    def other_than(self, node):
        return next(master for master in self.masters if master is not node)

    def fail_over(self, resource):
        """kill -9 to its master."""
        old = self.serving(resource)
        replica = self.replicas[self.masters.index(old)]
        old.kill()
        wait_until(lambda: replica("ROLE")[0] == b"master", "the replica was promoted")
        self.masters[self.masters.index(old)] = replica
        self.replicas.remove(replica)
        self.owners.clear()
        for node in self.masters:
            wait_until(lambda n=node: b"cluster_state:ok" in n("CLUSTER", "INFO"),
                       "the cluster serves again")

    def try_move(self, resource, random):
        """Begin to move the slot to another master, as far as the masters answer; returns how to
        end it, or None."""
        trouble = (OSError, ReplyError, AssertionError, StopIteration)
        try:
            ports = {self._role(node) and node.address[1] for node in self.nodes} - {False, None}
            masters = [node for node in self.nodes if node.address[1] in ports]
            slot = slot_of(resource)
            source = next(node for node in masters if self._serves(node, slot))
            to = next(node for node in sorted(masters, key=lambda _: random())
                      if node is not source)
            to("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source), timeout=1)
            source("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to), timeout=1)
        except trouble:
            return None

        def end():
            with contextlib.suppress(*trouble):
                self.move_keys(source, resource, to)
                to("CLUSTER", "BUMPEPOCH", timeout=1)
                for node in (to, source, *masters):
                    node("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to), timeout=1)
        return end

    def _role(self, node):
        with contextlib.suppress(OSError, ReplyError):
            return node.alive() and node("ROLE", timeout=1)[0] == b"master"
        return None

    def _serves(self, node, slot):
        return any(first <= slot <= last and master[1] == node.address[1]
                   for first, last, master, *_ in node("CLUSTER", "SLOTS", timeout=1))

    def restart(self, node):
        """At the same address, with what it knew of the cluster and no data."""
        group = self.masters if node in self.masters else self.replicas
        group[group.index(node)] = self._redis(port=node.address[1], folder=node.folder)

    def revive(self):
        """All run, and every slot is served; what a fault has left on its way stays where it is."""
        for node in self.nodes:
            if not node.alive():
                self.restart(node)
        for node in self.nodes:
            wait_until(lambda n=node: b"cluster_state:ok" in n("CLUSTER", "INFO"),
                       "the cluster serves again")
        subprocess.run(["redis-cli", "--cluster", "fix",
                        "{}:{}".format(*self.masters[0].address), "--cluster-yes"], check=False,
                       timeout=60, stdout=subprocess.DEVNULL)

    def down(self):
        for node in self.nodes:
            node.kill()

    def up(self):
        self.masters = [self._redis(port=node.address[1], folder=node.folder)
                        for node in self.masters]
        self.await_settled()

    def lose_all(self):
        for node in self.nodes:
            if self._role(node):
                node("FLUSHALL")


class Cluster(Masters):
    name = "cluster"
    programs = ("redis-server",)


class ClusterTls(Cluster):
    tls = True
