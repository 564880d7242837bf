# SPDX-License-Identifier: Apache-2.0
"""Three PostgreSQL servers under Patroni, synchronous, which keeps its state in an etcd. Slow.

    group = Patroni(rig)                 a leader and two replicas, one of them synchronous
    database = group.database()          its name
    rig.daemon(store=group.uri(database))
    group.fail_over()                    kill -9 to the leader's machine; Patroni names another
    group.rejoin()                       the machine is back, and all is as before

A node is a machine: Patroni and its PostgreSQL are killed, stopped and started together.
"""

import contextlib
import itertools
import json
import pathlib
import shutil
import signal
import urllib.error
import urllib.request

import psycopg2
import yaml

from harness.leash import Leash, inside, release, signal_all
from harness.limits import patience, wait_until
from harness.postgres import (HBA, OWNER, SETTINGS, SUPERUSER, USER, as_user, ask, connect, program,
                              uri)
from harness.process import Process

TTL_S = 6  # after which a leader that says nothing has been one
READY_SECONDS = 180
FAILOVER_SECONDS = 120
ENDED_BY_SIGTERM = -signal.SIGTERM
SETTINGS = {name: value for name, value in SETTINGS.items() if name != "listen_addresses"}


def fetch(url, timeout=2.0):
    """What a status page says, whatever its status; {} where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=patience(timeout)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return json.load(refusal)
    except (OSError, ValueError):
        return {}


class Etcd(Process):
    def __init__(self, rig, folder):
        self.port, peer = rig.port(), rig.port()
        here, there = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peer}"
        path = shutil.which("etcd")
        assert path, "there is no etcd: tools/setup --tests installs it"
        super().__init__("etcd", as_user(
            path, "--name", "one", "--data-dir", folder / "etcd", "--listen-client-urls", here,
            "--advertise-client-urls", here, "--listen-peer-urls", there,
            "--initial-advertise-peer-urls", there, "--initial-cluster", f"one={there}",
            "--enable-v2=true", "--heartbeat-interval", 50, "--election-timeout", 500,
            "--log-level", "error"),
            rig.stderr_path("etcd"), cwd=folder)
        self.expected_status = ENDED_BY_SIGTERM
        rig.processes.append(self)
        wait_until(lambda: fetch(f"{here}/health").get("health") == "true", "etcd answers")


class Watched(Process):
    """Patroni of a node, and the PostgreSQL that it has started, which is no child of its."""

    def __init__(self, node, stderr_path):
        self.node = node
        self.stopped = False
        path = shutil.which("patroni")
        assert path, "there is no patroni: tools/setup --tests installs it"
        super().__init__(f"patroni-{node.name}", as_user(path, node.config), stderr_path,
                         cwd=node.folder)

    def everyone(self):
        return inside(self.node.folder)

    def freeze(self):
        self.stopped = True
        signal_all(self.everyone(), signal.SIGSTOP)

    def thaw(self):
        self.stopped = False
        signal_all(self.everyone(), signal.SIGCONT)

    def kill(self):
        def ended():
            signal_all(self.everyone(), signal.SIGKILL)  # a fork may have been missed
            return not self.everyone()
        wait_until(ended, "the node has ended")
        super().kill()
        release(self.node.data)

    def stop(self):
        if self.alive():
            self.kill()
        super().stop()


class Node:
    def __init__(self, group, name):
        self.group, self.name = group, name
        self.port, self.status_port = group.rig.port(), group.rig.port()
        self.folder = group.leash.folder / name
        self.data = self.folder / "data"
        self.config = self.folder / "patroni.yml"
        self.process = None
        self.folder.mkdir(mode=0o755)
        if USER:
            shutil.chown(self.folder, USER, USER)
        login = {"username": SUPERUSER}
        self.config.write_text(yaml.safe_dump({
            "scope": "shop", "name": name,
            "restapi": {"listen": f"127.0.0.1:{self.status_port}",
                        "connect_address": f"127.0.0.1:{self.status_port}"},
            # Not etcd3: after a stop, Patroni 3.0.2 may hold on to an old version of its key of the
            # synchronous standby ("updated by someone else"), and never name one again.
            "etcd": {"host": f"127.0.0.1:{group.etcd.port}"},
            "bootstrap": {
                "dcs": {"ttl": TTL_S, "loop_wait": 1, "retry_timeout": 3,
                        "primary_start_timeout": 0, "synchronous_mode": True,
                        "synchronous_mode_strict": group.strict,
                        "postgresql": {"use_pg_rewind": True, "parameters": {
                            **SETTINGS, "wal_log_hints": True}}},
                "initdb": ["no-sync", {"encoding": "UTF8"}, {"locale": "C.UTF-8"}]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": str(pathlib.Path(program("postgres")).parent),
                "pgpass": str(self.folder / "pgpass"),
                "pg_hba": [line for line in HBA.splitlines() if line.startswith("host")],
                "parameters": {"unix_socket_directories": str(self.folder)},
                "authentication": {"superuser": login, "replication": login, "rewind": login}},
        }))

    def start(self):
        """Does not wait for anything."""
        self.process = Watched(self, self.group.rig.stderr_path(self.name))
        self.group.rig.processes.append(self.process)

    def alive(self):
        return self.process is not None and self.process.alive()

    def kill(self):
        self.process.kill()

    def freeze(self):
        self.process.freeze()

    def thaw(self):
        self.process.thaw()

    def kill_server(self):
        """kill -9 to PostgreSQL alone; Patroni lives, and sees it."""
        def ended():
            signal_all(inside(self.data), signal.SIGKILL)
            return not inside(self.data)
        wait_until(ended, "PostgreSQL has ended")

    def status(self):
        return fetch(f"http://127.0.0.1:{self.status_port}/patroni") if self.alive() else {}

    def connect(self, database="postgres", user=SUPERUSER, **options):
        return connect(host="127.0.0.1", port=self.port, dbname=database, user=user,
                       **{"connect_timeout": 10, **options})

    def sql(self, text, *values, **options):
        with self.connect(**options) as link:
            return ask(link, text, *values)


class Patroni:
    """`strict`: without a synchronous replica nothing is written."""

    def __init__(self, rig, nodes=3, strict=True):
        self.rig = rig
        self.strict = strict
        self.numbers = itertools.count(1)
        self.leash = Leash("patroni", USER)
        rig.ends.append(self.leash.close)
        self.etcd = Etcd(rig, self.leash.folder)
        self.nodes = [Node(self, chr(ord("a") + number)) for number in range(nodes)]
        first, *others = self.nodes
        first.start()
        wait_until(lambda: first.status().get("role") == "master", "there is a leader",
                   READY_SECONDS)
        for node in others:
            node.start()
        self.await_settled()
        self.sql("CREATE ROLE password NOLOGIN")
        self.sql(f"CREATE ROLE {OWNER} LOGIN")

    def leader(self):
        """The node that is the leader and can be written, or None."""
        for node in self.nodes:
            status = node.status()
            if status.get("role") == "master" and status.get("state") == "running":
                with contextlib.suppress(psycopg2.OperationalError):
                    if node.sql("SELECT pg_is_in_recovery()", timeout=5) == [(False,)]:
                        return node
        return None

    def await_leader(self, other_than=None):
        """Patroni has named one."""
        def named():
            leader = self.leader()
            return leader if leader is not other_than else None
        return wait_until(named, "there is a leader", FAILOVER_SECONDS)

    def await_settled(self):
        """All nodes run and replicate, and one replica is synchronous."""
        def settled():
            leader = self.leader()
            if leader is None:
                return False
            try:
                states = [state for state, in leader.sql(
                    "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")]
            except psycopg2.OperationalError:  # it is one no more
                return False
            known = fetch(f"http://127.0.0.1:{leader.status_port}/cluster").get("members", [])
            roles = [member["role"] for member in known]
            return (len(states) == len(self.nodes) - 1 and "sync" in states and
                    "sync_standby" in roles and len(roles) == len(self.nodes))
        wait_until(settled, "the group has settled", READY_SECONDS)

    def database(self):
        """The name of a new one; it goes with the group."""
        name = f"shop_{next(self.numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE template0 OWNER {OWNER}")
        return name

    def sql(self, text, *values, **options):
        return self.await_leader().sql(text, *values, **options)

    def uri(self, database, user=OWNER, **options):
        return uri([("127.0.0.1", node.port) for node in self.nodes], database, user, **options)

    def fail_over(self):
        """kill -9 to the leader's machine; returns the next leader, once it can be written."""
        old = self.await_leader()
        old.kill()
        return self.await_leader(other_than=old)

    def rejoin(self):
        """All machines run, and all is as before."""
        for node in self.nodes:
            if not node.alive():
                node.start()
        self.await_settled()
