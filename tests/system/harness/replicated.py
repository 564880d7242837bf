# SPDX-License-Identifier: Apache-2.0
"""A primary and its standbys, synchronous by default, with a relay on every way between them.

    group = Replicated(rig)              servers a (primary), b and c; ANY 1 of the others confirms
    database = group.database()          its name
    door = group.door()                  the network as one daemon sees it
    rig.daemon(store=door.uri(database))
    group.fail_over()                    kill -9 to the primary; the best standby is promoted
    group.rejoin()                       the old one is a standby, made anew
    group.primary.restart()              kill -9, and up again: no failover
    group.partition(group.primary, door) these two and the others do not reach each other
    group.heal()

Servers and doors are the places of this network. group.primary is the last one that was promoted.
An old one that lives on may still take itself for the primary; it is in group.left.

With synchronous standbys a commit that was told is on the primary and on one of them; so promote()
wants to ask all of them, or be told that commits may be lost. Standbys hear the old primary no more
before anybody looks at what they have, or it could still confirm a commit to one that was passed
over.
"""

import itertools
import shutil

from harness.leash import Leash, release
from harness.limits import wait_until
from harness.postgres import SUPERUSER, USER, Server, program, run, uri

STREAMS_SECONDS = 60
PROMOTED_SECONDS = 60
SETTINGS = {
    "wal_level": "replica",
    "wal_keep_size": "512MB",  # for a standby that was cut off for a while
    "wal_retrieve_retry_interval": "100ms",
    "wal_receiver_status_interval": "1s",
    "wal_receiver_timeout": "10s",
    "wal_sender_timeout": "10s",
}
# What a standby has, once it hears nobody and has replayed all; before that, nothing.
RECEIVED = """
SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn FROM pg_stat_activity
WHERE backend_type = 'startup' AND wait_event = 'RecoveryRetrieveRetryInterval'
AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walreceiver')
"""


class Door:
    """Where one daemon, or one client, comes in: a relay to each server."""

    def __init__(self, group, name):
        self.group, self.name = group, name
        self.relays = {server: group.link(self, server) for server in group.servers}

    def uri(self, database, user="shop", **options):
        """All servers, in order; libpq looks for the one that can be written."""
        return uri([self.relays[server].address for server in self.group.servers], database, user,
                   **options)

    def uri_to(self, server, database, user="shop", **options):
        """That one only."""
        return uri([self.relays[server].address], database, user, **options)


class Replicated:
    def __init__(self, rig, standbys=2, synchronous=True, **settings):
        self.rig = rig
        self.leash = Leash("postgres", USER)
        rig.ends.append(self.leash.close)
        self.synchronous = synchronous
        self.numbers = itertools.count(1)
        self.links = {}  # relays by (place that connects, server)
        self.cuts = set()  # those that nobody gets through
        self.servers = []
        names = [chr(ord("a") + number) for number in range(1 + standbys)]
        for name in names:
            others = ", ".join(other for other in names if other != name)
            confirms = f"ANY 1 ({others})" if synchronous and standbys else ""
            self.servers.append(Server(rig, self.leash.folder, name, **{
                **SETTINGS, "synchronous_standby_names": confirms, **settings}))
        for one, other in itertools.permutations(self.servers, 2):
            self.link(one, other)
        for server in self.servers:
            server.changed = self._show
        self.primary, *followers = self.servers
        self.standbys = []
        self.left = []  # who was primary before, dead or alive
        self.primary.initialize()
        # Nobody is there yet who could confirm.
        confirms = self.primary.settings.pop("synchronous_standby_names")
        self.primary.start()
        self.primary.create_roles()
        for server in followers:
            self._copy(server)
        self.primary.set(synchronous_standby_names=confirms)
        self.await_streaming()

    def server(self, name):
        return next(server for server in self.servers if server.name == name)

    def database(self):
        """The name of a new one; it goes with the group."""
        name = f"shop_{next(self.numbers)}"
        self.primary.sql(f"CREATE DATABASE {name} TEMPLATE template0 OWNER shop")
        return name

    def sql(self, text, *values, **options):
        """At the primary, past every relay."""
        return self.primary.sql(text, *values, **options)

    # Who follows whom.

    def _follow(self, server):
        """From now on, or from its next start on."""
        host, port = self.links[server, self.primary].address
        server.set(primary_conninfo=f"host={host} port={port} user={SUPERUSER} "
                                    f"application_name={server.name} connect_timeout=5")

    def _copy(self, server):
        """Made anew of the primary, up, and following it."""
        release(server.data)
        shutil.rmtree(server.data, ignore_errors=True)
        run(program("pg_basebackup"), "-h", "127.0.0.1", "-p", self.primary.port, "-U", SUPERUSER,
            "-D", server.data, "-c", "fast", "-X", "stream", "--no-sync", timeout=300)
        run("touch", server.data / "standby.signal")
        self._follow(server)
        server.start()
        self.standbys.append(server)

    def await_streaming(self):
        """All standbys that run get what the primary writes, and can confirm it."""
        names = sorted(server.name for server in self.standbys if server.runs())
        wanted = "quorum" if self.synchronous else "async"
        wait_until(lambda: self.sql(
            "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming' AND "
            "sync_state = %s ORDER BY 1", wanted) == [(name,) for name in names],
            f"{names} stream from {self.primary.name}", STREAMS_SECONDS)

    def await_replayed(self):
        """All standbys that run show what the primary has committed until now."""
        at, = self.sql("SELECT pg_current_wal_flush_lsn()")[0]
        for server in filter(Server.runs, self.standbys):
            wait_until(lambda s=server: s.sql("SELECT pg_last_wal_replay_lsn() >= %s", at)[0][0],
                       f"{server.name} has replayed it", STREAMS_SECONDS)

    def received(self, server):
        """How far a standby's log goes, in bytes, once it hears nobody any more: it may confirm
        nothing later."""
        server.set(primary_conninfo="")
        return wait_until(lambda: server.sql(RECEIVED), f"{server.name} has replayed all it has",
                          STREAMS_SECONDS)[0][0]

    def promote(self, among=None, lossy=False):
        """The standby with the most of the log becomes the primary, and the others among these
        follow it; returns it. All that run are asked, unless `among` says who can be reached.
        `lossy`: commits may get lost. The old primary is not touched."""
        among = list(filter(Server.runs, self.standbys)) if among is None else list(among)
        assert among and (lossy or set(among) == set(self.standbys)), \
            "a commit may have been confirmed to a standby that is not asked"
        received = {server: self.received(server) for server in among}
        best = max(among, key=received.get)
        self.left.append(self.primary)
        self.left += [server for server in self.standbys if server not in among]
        self.left = [server for server in self.left if server is not best]
        self.primary = best
        self.standbys = [server for server in among if server is not best]
        assert best.sql("SELECT pg_promote(true, %s)", PROMOTED_SECONDS,
                        timeout=PROMOTED_SECONDS) == [(True,)]
        for server in self.standbys:
            self._follow(server)
        return best

    def fail_over(self, lossy=False):
        """kill -9 to the primary; returns the next one, once it is followed."""
        self.primary.kill()
        self.promote(lossy=lossy)
        self.await_streaming()
        return self.primary

    def rejoin(self):
        """All that were left behind become standbys, made anew: what only they had is gone.
        Standbys that do not run are started."""
        for server in self.left:
            if server.alive():
                server.kill()
            self._copy(server)
        self.left = []
        for server in self.standbys:
            if not server.alive():
                server.start()
        self.await_streaming()

    # The network.

    def link(self, place, server):
        """The relay between them. It listens while the server runs."""
        relay = self.rig.relay(("127.0.0.1", server.port), self.rig.port())
        self.links[place, server] = relay
        return relay

    def _show(self):
        for way, relay in self.links.items():
            if way in self.cuts or not way[1].alive():
                relay.vanish()
                relay.cut()
            else:
                relay.appear()

    def door(self, name=""):
        return Door(self, name or f"door {next(self.numbers)}")

    def cut(self, one, other, silent=False):
        """They do not reach each other. Connections break, and new ones are refused; or, `silent`,
        nothing arrives any more, and what was sent meanwhile does when it is healed."""
        ways = {(one, other), (other, one)} & set(self.links)
        if silent:
            for way in ways:
                self.links[way].hold("up")
                self.links[way].hold("down")
        else:
            self.cuts |= ways
            self._show()

    def partition(self, *side, silent=False):
        """These places and all others do not reach each other."""
        for one, other in list(self.links):
            if (one in side) != (other in side):
                self.cut(one, other, silent)

    def heal(self):
        """Everybody reaches everybody."""
        self.cuts = set()
        self._show()
        for relay in self.links.values():
            relay.let("up")
            relay.let("down")

    def cancel_waits(self):
        """Ends the waits for a standby at the primary, as an operator may: those commits stand
        there, and nobody confirmed them. Returns how many."""
        return len(self.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                            "WHERE wait_event = 'SyncRep'"))
