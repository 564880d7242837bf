# SPDX-License-Identifier: Apache-2.0
"""Private PostgreSQL servers: one beside the blocks of a page; one for all tests of a session, with
a database for each store."""

import glob
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from harness.limits import wait_until


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    assert found, f"there is no {name}: tools/setup --tests installs it"
    return found[-1]


def as_user():
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


class Cluster:
    """A server on a Unix socket, which ends with the process that has made it."""

    def __init__(self, *settings, port=None, primary=None):
        """`port`: of 127.0.0.1, for what goes through a relay. `primary`: it is a standby of that
        one, by the name of `standby`."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stockade-pg-"))
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.data = self.folder / "data"
        self.output = open(self.folder / "log", "ab")
        words = [program("initdb"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
                 "--no-sync"]
        if primary:
            words = [program("pg_basebackup"), "-R", "-c", "fast", "--no-sync", "-d",
                     f"host={primary.folder} port={primary.port} user=postgres"
                     " application_name=standby"]
        made = subprocess.run([*as_user(), *words, "-D", self.data], capture_output=True,
                              text=True, cwd="/")
        assert made.returncode == 0, made.stderr
        self.port = port
        self.settings = [f"listen_addresses={'127.0.0.1' if port else ''}",
                         f"port={port or 5432}",
                         f"unix_socket_directories={self.folder}",
                         "fsync=off", "max_connections=300", "max_prepared_transactions=10",
                         *settings]
        self.start()
        if not primary:
            self.sql("CREATE ROLE shop LOGIN")

    def start(self):
        """What is left of one that was killed may hold its memory for a moment: it ends then, and
        has another try."""
        words = [word for setting in self.settings for word in ("-c", setting)]
        self.server = None

        def is_up():
            if self.server is None or self.server.poll() is not None:
                self.server = subprocess.Popen(
                    [*(as_user() or ["setpriv"]), "--pdeathsig=INT", program("postgres"), "-D",
                     self.data, *words], stdout=self.output, stderr=self.output, cwd="/")
            return self.psql("-c", "SELECT 1").returncode == 0

        wait_until(is_up, "PostgreSQL is up", 20)

    def psql(self, *words, database="postgres", user="postgres"):
        return subprocess.run([program("psql"), "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-p",
                               str(self.port or 5432), "-h", self.folder, "-U", user, "-d",
                               database, *words], capture_output=True, text=True)

    def sql(self, text, **options):
        done = self.psql("-c", text, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")

    def database(self, name):
        """A new one, which belongs to a role without any other right."""
        self.sql(f"CREATE DATABASE {name} OWNER shop TEMPLATE template0")
        return name

    def uri(self, database, address=None, user="shop"):
        if address:
            return "postgresql://{}@{}:{}/{}".format(user, *address, database)
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port or 5432}"

    def pids(self):
        """Of the server and its backends."""
        children = f"/proc/{self.server.pid}/task/{self.server.pid}/children"
        return [self.server.pid, *map(int, pathlib.Path(children).read_text().split())]

    def signal_all(self, number):
        for pid in self.pids():
            os.kill(pid, number)

    def kill(self):
        """As if the machine lost its power, but for what the disk had in its cache."""
        self.signal_all(signal.SIGKILL)
        self.server.wait(20)

    def close(self):
        if self.server.poll() is None:
            self.server.send_signal(signal.SIGINT)  # ends its clients, too
            self.server.wait(20)
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def store_uri(folder, path):
    """Of the database that stands for the store file of this path, made where there is none, on the
    session's server."""
    name = "s" + hashlib.md5(str(path).encode()).hexdigest()[:16]
    made = subprocess.run([program("psql"), "-X", "-q", "-h", folder, "-U", "postgres", "-c",
                           f"CREATE DATABASE {name} OWNER shop TEMPLATE template0"],
                          capture_output=True, text=True)
    assert made.returncode == 0 or "already exists" in made.stderr, made.stderr
    return f"postgresql://shop@/{name}?host={folder}"


def start(place):
    """On its default port; its programs and drivers find it by PGHOST and PGUSER."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stockade-postgres-"))
    place.cleanups.append(lambda: shutil.rmtree(folder, ignore_errors=True))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    output, status = place.run([*as_user(), program("initdb"), "-D", data, "-U", "shop", "-A",
                                "trust", "--no-sync"])
    assert status == 0, output
    place.start([*as_user(), program("postgres"), "-D", data, "-c", "listen_addresses=127.0.0.1",
                 "-c", "unix_socket_directories=", "-c", "fsync=off"], "postgres")
    place.env.update(PGHOST="127.0.0.1", PGUSER="shop")
    wait_until(lambda: place.run([program("pg_isready"), "-q"])[1] == 0, "PostgreSQL is up", 20)
