# SPDX-License-Identifier: Apache-2.0
"""Private PostgreSQL servers, databases in them, and pgbouncer before them.

    server = Postgres(rig, max_connections=20)       up, on a free port and a unix socket
    database = server.database()                     fresh; its owner is no superuser
    rig.daemon(store=database.uri)
    database.sql("SELECT %s + 1", 2)                 [(3,)]
    server.kill()                                    -9 to the postmaster and all backends, at once
    server.start()                                   the same one again

Most tests share a server, which the fixture `postgres` starts once, and have a database each, the
fixture `database`. fsync is on; what differs from PostgreSQL's defaults stands in SETTINGS.

PostgreSQL refuses to run as root, so root runs it through the user of Debian's package.
"""

import glob
import hashlib
import itertools
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile

import psycopg2
import psycopg2.extensions

from harness.leash import Leash, inside, release, signal_all
from harness.limits import HANG_SECONDS, Wait, environment, patience, wait_until
from harness.process import Process

USER = "postgres" if os.getuid() == 0 else None  # who runs it
SUPERUSER = "postgres"
OWNER = "shop"  # of databases
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 100,
    "max_prepared_transactions": 10,
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # goes with the folder, whatever ends the server
    "checkpoint_timeout": "1h",
    "jit": False,
    "log_checkpoints": False,
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
# Who is in the role `password` needs one; an outlaw is not let in.
HBA = """
host all outlaw 127.0.0.1/32 reject
local all +password scram-sha-256
local all all trust
host all +password 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""
# The connection that finds out who has a row locked, where one is there.
PROBES = ("SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
          " AND application_name = 'stockade probe'")
# What a COMMIT of ours waits for, whatever synchronous_commit is: a standby's disk, or more.
WAITS_FOR = {"off": "on", "local": "on", "remote_write": "on", "on": "on",
             "remote_apply": "remote_apply"}
TIMEOUT_MS = 30000
STARTS_SECONDS = 60
ENDS_SECONDS = 30


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    assert found, f"there is no {name}: tools/setup --tests installs it"
    return found[-1]


def as_user(*command):
    """The command as it is started by somebody who may be root."""
    switch = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"] if USER else []
    return [str(word) for word in [*switch, *command]]


def run(*command, timeout=HANG_SECONDS):
    """To its end, as that user."""
    done = subprocess.run(as_user(*command), capture_output=True, text=True, cwd="/",
                          env=environment(), timeout=patience(timeout), check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


class Connection(psycopg2.extensions.connection):
    """Of psycopg2, but `with` closes it."""

    seconds_max = 30.0  # for each wait

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _wait(connection):
    """For psycopg2, in place of a wait that has no end, and that no signal handler interrupts."""
    wait = Wait(getattr(connection, "seconds_max", Connection.seconds_max))
    while (state := connection.poll()) != psycopg2.extensions.POLL_OK:
        reads = [connection.fileno()] if state == psycopg2.extensions.POLL_READ else []
        writes = [connection.fileno()] if state == psycopg2.extensions.POLL_WRITE else []
        if not any(select.select(reads, writes, [], wait.left)):  # psycopg2 closes it then
            raise wait.late("PostgreSQL answers")


psycopg2.extensions.set_wait_callback(_wait)


def connect(timeout=30.0, **options):
    """Each statement is a transaction of its own, until autocommit is switched off. No wait for an
    answer is longer than `timeout`, in seconds."""
    def connection(dsn, *_, **__):
        link = Connection.__new__(Connection)
        link.seconds_max = timeout
        Connection.__init__(link, dsn, 0)
        return link
    link = psycopg2.connect(connection_factory=connection, **options)
    link.autocommit = True
    return link


def ask(link, text, *values):
    """The rows, as tuples; none where the statement has none, or no columns."""
    with link.cursor() as cursor:
        cursor.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []


class Postmaster(Process):
    """The server process. What is done to it is done to all of its backends, too."""

    def __init__(self, server, stderr_path):
        self.server = server
        self.stopped = False
        super().__init__(server.name, as_user(
            program("postgres"), "-D", server.data, "-c", f"config_file={server.config}"),
            stderr_path, cwd=server.folder)

    def everyone(self):
        return inside(self.server.data)

    def freeze(self):
        """SIGSTOP, the postmaster first, so that no backend is new; returns when all stand."""
        if self.stopped:
            return
        super().freeze()
        self.stopped = True
        pids = self.everyone()
        signal_all(pids, signal.SIGSTOP)
        wait_until(lambda: all(map(_stands, pids)), "all backends stand still")

    def thaw(self):
        self.stopped = False
        signal_all(self.everyone(), signal.SIGCONT)

    def kill(self):
        """kill -9: none of them does anything more once another one is gone."""
        if self.alive():
            self.freeze()
        signal_all(self.everyone(), signal.SIGKILL)
        super().kill()
        wait_until(lambda: not self.everyone(), "all backends have ended")
        release(self.server.data)

    def stop(self):
        """A test's end: nobody needs the data any more. One that ended by itself is a failure."""
        if self.alive():
            self.kill()
        super().stop()


def _stands(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "TZX"
    except OSError:
        return True


class Server:
    """A server by name and port, whatever process runs it just now. It has no data yet."""

    def __init__(self, rig, folder, name, **settings):
        self.rig = rig
        self.name = name
        self.port = rig.port()
        self.folder = folder / name
        self.data = self.folder / "data"
        self.config = self.folder / "postgresql.conf"
        self.process = None
        self.changed = lambda: None  # called when it has come up, or gone
        self.folder.mkdir(mode=0o755)
        if USER:
            shutil.chown(self.folder, USER, USER)
        hba = self.folder / "pg_hba.conf"
        hba.write_text(HBA)
        self.settings = {**SETTINGS, "port": self.port, "unix_socket_directories": self.folder,
                         "hba_file": hba, **settings}

    # Its process.

    def start(self):
        """Returns when it answers; as a standby, when it can be read."""
        self._configure()
        self.process = Postmaster(self, self.rig.stderr_path(self.name))
        self.rig.processes.append(self.process)
        wait_until(lambda: not self.alive() or self.answers(), f"{self.name} answers",
                   STARTS_SECONDS)
        assert self.alive(), self.process.describe()
        self.changed()
        return self

    def alive(self):
        return self.process is not None and self.process.alive()

    def runs(self):
        """And is not stopped."""
        return self.alive() and not self.process.stopped

    def answers(self):
        """It says so in a file, which is asked first: it logs everybody who comes too early."""
        try:
            words = (self.data / "postmaster.pid").read_text(encoding="ascii").split()
            return (words[0] == str(self.process.pid) and words[-1] == "ready" and
                    self.sql("SELECT 1", timeout=5) == [(1,)])
        except (OSError, IndexError, psycopg2.OperationalError):
            return False

    def kill(self):
        """kill -9 to the postmaster and all backends. What it had told anybody is on disk."""
        self.process.kill()
        self.changed()

    def freeze(self):
        """SIGSTOP to the postmaster and all backends. Connections stay, and new ones are taken by
        the kernel; nobody answers."""
        self.process.freeze()

    def thaw(self):
        self.process.thaw()

    def frozen(self):
        """The same for a block."""
        return self.process.frozen()

    def shut_down(self):
        """As Debian does it: sessions end, and all is written; a primary waits for its standbys."""
        self.process.signal(signal.SIGINT)
        assert self.process.wait(ENDS_SECONDS) == 0, self.process.describe()
        self.changed()

    def restart(self, how="kill"):
        """`how`: kill, or shut_down."""
        getattr(self, how)()
        return self.start()

    def log(self):
        """What it has said since its last start."""
        return self.process.stderr()

    # Its settings.

    def _configure(self):
        lines = []
        for name, value in self.settings.items():
            if isinstance(value, bool):
                value = "on" if value else "off"
            lines.append("{} = '{}'\n".format(name, str(value).replace("'", "''")))
        fresh = self.config.with_suffix(".new")
        fresh.write_text("".join(lines))
        fresh.rename(self.config)

    def set(self, **settings):
        """For all sessions, from now on; what only a start can change, from the next one on."""
        self.settings.update(settings)
        self._configure()
        if not self.runs():
            return
        before = self.sql("SELECT pg_conf_load_time()")
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self.sql("SELECT pg_conf_load_time()") != before, "it has reloaded")

    # What is in it.

    def connect(self, database="postgres", user=SUPERUSER, **options):
        """Past every relay. Options are libpq's, and `timeout`, in seconds."""
        return connect(host="127.0.0.1", port=self.port, dbname=database, user=user,
                       **{"connect_timeout": 10, **options})

    def sql(self, text, *values, **options):
        """One statement on a connection of its own; options as for connect()."""
        with self.connect(**options) as link:
            return ask(link, text, *values)

    def initialize(self):
        """Empty data, as initdb makes it."""
        run(program("initdb"), "-D", self.data, "-U", SUPERUSER, "-A", "trust", "--no-sync", "-E",
            "UTF8", "--locale=C.UTF-8")

    def create_roles(self):
        self.sql("CREATE ROLE password NOLOGIN")
        self.sql(f"CREATE ROLE {OWNER} LOGIN")
        self.sql("CREATE ROLE stockade_sql")
        self.sql(f"GRANT stockade_sql TO {OWNER}")

    def uri(self, database, user=OWNER, **options):
        return uri([("127.0.0.1", self.port)], database, user, **options)

    def socket_uri(self, database, user=OWNER, **options):
        return uri([], database, user, host=self.folder, port=self.port, **options)

    def present_certificate(self, certs):
        """It speaks TLS from its next start on, with a certificate of that CA."""
        cert, key = certs.server(f"postgres-{self.port}")
        mine = self.folder / "server.key"
        shutil.copy(key, mine)
        shutil.copy(cert, self.folder / "server.pem")
        mine.chmod(0o600)
        if USER:
            shutil.chown(mine, USER, USER)
        self.set(ssl=True, ssl_cert_file=self.folder / "server.pem", ssl_key_file=mine)


def uri(addresses, database, user=OWNER, **options):
    """With several addresses, libpq tries one after the other."""
    hosts = ",".join(f"{host}:{port}" for host, port in addresses)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"postgresql://{user}@{hosts}/{database}" + (f"?{query}" if query else "")


def patient(uri):
    """For a daemon: as it is, or with more time for the answers of a server that shares its cores
    with others' work. Where a URI has several hosts, or a time limit, the test is about how soon
    its daemon gives up."""
    if not uri.startswith("postgresql:") or "," in uri or "timeout" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}timeout_ms={patience(TIMEOUT_MS):.0f}"


def store_uri(server, path):
    """Of the database that stands for the store file of this path, made where there is none.
    `server`: a URI of the owner's, with {} for the database."""
    name = "s" + hashlib.md5(str(path).encode()).hexdigest()[:16]
    with connect(dsn=server.format("postgres"), user=SUPERUSER) as link:
        if not ask(link, "SELECT 1 FROM pg_database WHERE datname = %s", name):
            ask(link, f"CREATE DATABASE {name} TEMPLATE template0 OWNER {OWNER}")
    return server.format(name)


class Postgres(Server):
    """One server by itself, up. `rig` ends it."""

    def __init__(self, rig, **settings):
        self.leash = Leash("postgres", USER)
        rig.ends.append(self.leash.close)
        super().__init__(rig, self.leash.folder, "postgres", **settings)
        self.numbers = itertools.count(1)
        self.initialize()
        self.start()
        self.create_roles()

    def database(self, owner=OWNER, template="template0"):
        return Database(self, f"shop_{next(self.numbers)}", owner, template)


class Database:
    """Of a server; new, and empty, or a copy of the template."""

    damaged = False  # on purpose: what is in it may contradict itself

    def __init__(self, server, name, owner=OWNER, template="template0"):
        self.server, self.name, self.owner = server, name, owner
        server.sql(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {owner}")

    @property
    def uri(self):
        """By TCP."""
        return self.uri_with()

    @property
    def socket_uri(self):
        return self.server.socket_uri(self.name, self.owner)

    def uri_with(self, user=None, **options):
        return self.server.uri(self.name, user or self.owner, **options)

    def uri_at(self, *addresses):
        """By way of relays."""
        return uri(addresses, self.name, self.owner)

    def connect(self, **options):
        """As its owner, unless `user` says another."""
        return self.server.connect(**{"database": self.name, "user": self.owner, **options})

    def sql(self, text, *values, **options):
        return self.server.sql(text, *values,
                               **{"database": self.name, "user": self.owner, **options})

    def drop(self):
        """Whoever is connected loses that connection."""
        for gid, in self.server.sql("SELECT gid FROM pg_prepared_xacts WHERE database = %s",
                                    self.name):
            self.sql("ROLLBACK PREPARED %s", gid, user=SUPERUSER)
        self.server.sql(f"DROP DATABASE {self.name} WITH (FORCE)")


class Bouncer(Process):
    """pgbouncer before a server, by default in transaction mode: the next transaction of a client
    may be run by another backend."""

    def __init__(self, rig, server, mode="transaction", **settings):
        self.port = rig.port()
        self.folder = server.folder / f"pgbouncer-{self.port}"
        self.folder.mkdir()
        users = self.folder / "users.txt"
        users.write_text("".join(f'"{user}" ""\n' for user in (SUPERUSER, OWNER)))
        config = self.folder / "pgbouncer.ini"
        config.write_text("\n".join([
            "[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]",
            *(f"{name} = {value}" for name, value in {
                "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "",
                "auth_type": "trust", "auth_file": users, "pool_mode": mode, "max_client_conn": 500,
                "default_pool_size": 20, **settings}.items()), ""]))
        path = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert path, "there is no pgbouncer: tools/setup --tests installs it"
        super().__init__("pgbouncer", as_user(path, config), rig.stderr_path("pgbouncer"),
                         cwd=self.folder)
        self.expected_status = 1  # of one that SIGTERM ended
        rig.processes.append(self)
        wait_until(lambda: not self.alive() or self.answers(), "pgbouncer answers", STARTS_SECONDS)
        assert self.alive(), self.describe()

    def answers(self):
        try:
            with connect(host="127.0.0.1", port=self.port, dbname="postgres", user=SUPERUSER):
                return True
        except psycopg2.OperationalError:
            return False

    def uri(self, database, user=OWNER, **options):
        """Of a database of the server, by way of this pool."""
        return uri([("127.0.0.1", self.port)], database.name, user, **options)


def start(place):
    """Beside the blocks of a page, on its default port; their programs and drivers find it by
    PGHOST and PGUSER."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stockade-postgres-"))
    place.cleanups.append(lambda: shutil.rmtree(folder, ignore_errors=True))
    if USER:
        shutil.chown(folder, USER, USER)
    data = folder / "data"
    output, status = place.run(as_user(program("initdb"), "-D", data, "-U", "shop", "-A", "trust",
                                       "--no-sync"))
    assert status == 0, output
    place.start(as_user(program("postgres"), "-D", data, "-c", "listen_addresses=127.0.0.1", "-c",
                        "unix_socket_directories=", "-c", "fsync=off"), "postgres")
    place.env.update(PGHOST="127.0.0.1", PGUSER="shop")
    wait_until(lambda: place.run([program("pg_isready"), "-q"])[1] == 0, "PostgreSQL is up")
