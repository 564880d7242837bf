# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL with its own defaults for durability (fsync and synchronous_commit are on), more
shared memory than the default, and pgbench, which comes with it."""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from bench.server import BUILD, BenchError, Server

SETTINGS = ("shared_buffers=512MB", "max_wal_size=4GB", "max_connections=120",
            "listen_addresses=127.0.0.1", "unix_socket_directories=")
SAMPLED = 0.2  # of the transactions, for the latencies
SHOP = "shop"  # Stockade's database, beside that of the direct connections
UPDATE = "UPDATE item SET value = :v{n} WHERE id = :k{n} AND token = 1;\n"
DRAW = ("\\set k{n} random({low}, {high})\n"
        "\\set v{n} random(1000000000, 9999999999)\n")
# The best that a program can do by itself: who takes the lease reads with the same statement, and
# who writes gives it back. Clients have rows of their own, and each row a page of its own.
BY_HAND = """\\set v random(1000000000, 9999999999)
\\set k :client_id * {apart} + 1
UPDATE item SET token = token + 1, owner = :client_id, until = now() + interval '60 s'
 WHERE id = :k AND (owner IS NULL OR until < now()) RETURNING token, value \\gset
UPDATE item SET value = :v, owner = NULL WHERE id = :k AND token = :token;
"""
# What a guard costs: tables that are alike, one of them guarded, and one by column. Keys are named
# as those that the daemon has filled, so that their tokens are there.
GUARD_TABLES = """CREATE TABLE {name}(sku text PRIMARY KEY, stock bigint NOT NULL);
INSERT INTO {name} SELECT lpad(n::text, 12, '0'), 0 FROM generate_series(0, {keys} - 1) AS n"""
GUARD_UPDATE = "UPDATE {table} SET stock = stock + 1{also} WHERE sku = lpad(:k::text, 12, '0');\n"
PRESENT = "SELECT stockade.present('key:' || lpad(:k::text, 12, '0'), 1);\n"
ROWS_UPDATE = """UPDATE {table} SET stock = stock + 1{also}
 WHERE sku >= lpad(:k::text, 12, '0') AND sku < lpad((:k + {rows})::text, 12, '0');
"""
ROWS_PRESENT = """SELECT stockade.present(array_agg('key:' || lpad(n::text, 12, '0')),
 array_agg(1::bigint)) FROM generate_series(:k::bigint, :k + {rows} - 1) AS n;
"""
READ = "\\set k random(1, {keys})\nSELECT value FROM item WHERE id = :k;\n"


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    path = found[-1] if found else shutil.which(name)
    if not path:
        raise BenchError(f"there is no {name}; tools/setup --bench installs it")
    return path


class Postgres(Server):
    tag = "postgres"

    def __init__(self, folder):
        super().__init__(folder)
        self.data = self.folder / "data"
        # PostgreSQL refuses to run as root.
        self.prefix = []
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self.folder.parent.chmod(0o711)
            self.prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        done = subprocess.run(
            [*self.prefix, program("initdb"), "-D", self.data, "-U", "bench", "-A", "trust",
             "--no-locale", "-E", "UTF8"], capture_output=True, text=True, cwd=self.folder,
            check=False)
        if done.returncode:
            raise BenchError(f"initdb: {done.stderr}")
        self.start()

    def start(self):
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        self.spawn([*self.prefix, program("postgres"), "-D", self.data, "-p", self.port,
                    *settings])
        self.wait_for(lambda: subprocess.run(
            [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)],
            check=False).returncode == 0)

    def kill(self):
        """With its backends: while one is left, it does not start again."""
        backends = self.pids()[1:]
        super().kill()
        for pid in backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in backends):
            time.sleep(0.01)

    def psql(self, *words, database="postgres"):
        return [program("psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "bench", "-d",
                database, "-Atq", *words]

    def sql(self, text, database="postgres"):
        done = subprocess.run(self.psql("-c", text, database=database), capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise BenchError(f"psql: {done.stderr}")
        return done.stdout.strip()

    def uri(self):
        """Of Stockade's database, as its owner, who is no superuser."""
        return f"postgresql://{SHOP}@127.0.0.1:{self.port}/{SHOP}"

    def fill(self, keys):
        self.sql(f"CREATE ROLE {SHOP} LOGIN")
        self.sql(f"CREATE DATABASE {SHOP} OWNER {SHOP}")
        self.sql("CREATE TABLE item(id bigint PRIMARY KEY, token bigint NOT NULL,"
                 " value text NOT NULL, stock bigint NOT NULL, owner bigint, until timestamptz)")
        self.sql("INSERT INTO item SELECT n, 1, '000000000000', 1000000000000"
                 f" FROM generate_series(1, {keys}) AS n")
        self.sql("VACUUM ANALYZE item")
        self.sql("CHECKPOINT")


class Far(Server):
    """The same server through a relay: that many microseconds from there and back."""

    def __init__(self, folder, postgres, round_trip_us):
        super().__init__(folder)
        self.tag = f"postgres-{round_trip_us}us"
        self.postgres = postgres
        self.spawn([BUILD / "bench-relay", "--port", postgres.port, "--delay-us",
                    round_trip_us // 2], stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    uri = Postgres.uri

    def pids(self):
        return self.postgres.pids()


@contextlib.contextmanager
def old_snapshot(servers):
    """In both databases somebody keeps one open: no version of a row that is newer may go."""
    server = servers["postgres"]
    holders = []
    for database in ("postgres", SHOP):
        holders.append(subprocess.Popen(server.psql(database=database), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True))
        holders[-1].stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\n")
        holders[-1].stdin.flush()
        holders[-1].stdout.readline()
    try:
        yield
    finally:
        for holder in holders:
            holder.communicate()
        for database in ("postgres", SHOP):
            server.sql("VACUUM", database)


@contextlib.contextmanager
def guarded(servers):
    """Tables in the shop's database: bare, and guarded by the resources key:... in two ways."""
    server = servers["postgres"]
    keys = int(server.sql("SELECT count(*) FROM item"))
    for name in ("bare", "guarded", "assigned"):
        for text in GUARD_TABLES.format(name=name, keys=keys).split(";"):
            server.sql(text, SHOP)
        server.sql(f"ALTER TABLE {name} OWNER TO {SHOP}", SHOP)
        server.sql(f"VACUUM ANALYZE {name}", SHOP)
    server.sql("SELECT stockade.guard_create('guarded', 'sku', 'key:')", SHOP)
    server.sql("SELECT stockade.guard_create('assigned', 'sku', 'key:', 'token')", SHOP)
    try:
        yield
    finally:
        for name in ("guarded", "assigned"):
            server.sql(f"SELECT stockade.guard_drop('{name}')", SHOP)
        server.sql("DROP TABLE bare, guarded, assigned", SHOP)


def guard_script(keys, table, begin=False, rows=1):
    """Return the script of a transaction that changes so many rows: in one trip, or with BEGIN and
    COMMIT, statement by statement."""
    present, update = ((PRESENT, GUARD_UPDATE) if rows == 1 else
                       (ROWS_PRESENT.format(rows=rows), ROWS_UPDATE))
    also = ", token = 1" * (table == "assigned")
    body = present * (table == "guarded") + update.format(table=table, rows=rows, also=also)
    if begin:
        body = f"BEGIN;\n{body}COMMIT;\n"
    elif table == "guarded":
        body = f"\\startpipeline\n{body}\\endpipeline\n"
    return f"\\set k random(0, {keys - rows})\n{body}"


def updates(keys, number, statement=UPDATE, pipeline=True):
    """Return a script of so many updates in a transaction, sent together or one by one, with rising
    keys, so that no two wait for each other."""
    step = keys // number
    draws = "".join(DRAW.format(n=n, low=n * step + 1, high=(n + 1) * step)
                    for n in range(number))
    body = "".join(statement.format(n=n) for n in range(number))
    if number == 1:
        return draws + body
    begin, end = ("\\startpipeline", "\\endpipeline") if pipeline else ("BEGIN;", "COMMIT;")
    return f"{draws}{begin}\n{body}{end}\n"


def pgbench(server, script, *, seconds, units=1, clients=50, database="postgres"):
    """Run pgbench with prepared statements. A transaction counts as `units` operations."""
    file = server.folder / "script.sql"
    file.write_text(script)
    prefix = server.folder / "times"
    for run_s in (max(1, round(seconds)), 10 * max(1, round(seconds))):
        done = subprocess.run(
            [program("pgbench"), "-h", "127.0.0.1", "-p", str(server.port), "-U", "bench", "-n",
             "-M", "prepared", "-c", str(clients), "-f", file, "-T", str(run_s), "-l",
             f"--log-prefix={prefix}", f"--sampling-rate={SAMPLED if clients > 1 else 1}",
             database], capture_output=True, text=True, check=False)
        rate = re.search(r"tps = ([\d.]+)", done.stdout)
        if rate:  # else it did nothing but connect: on a busy machine that takes a second
            break
    count = re.search(r"actually processed: (\d+)", done.stdout)
    if done.returncode or not rate or "aborted" in done.stderr:
        raise BenchError(f"pgbench: {done.stdout}{done.stderr}")
    took_ms = []
    for log in glob.glob(f"{prefix}.*"):
        took_ms += [int(line.split()[2]) / 1000 for line in pathlib.Path(log).open()]
        os.unlink(log)
    took_ms.sort()

    def quantile(part):
        return took_ms[min(len(took_ms) - 1, int(len(took_ms) * part))] if took_ms else 0
    return {"rate": float(rate[1]) * units, "ops": int(count[1]) * units, "p50": quantile(.5),
            "p99": quantile(.99), "p999": quantile(.999), "max": quantile(1)}
