# SPDX-License-Identifier: Apache-2.0
"""`stockade backup`, `restore` and `check` on the store of a rig, and what is in a file."""

import contextlib
import os
import re
import sqlite3

import pytest

from harness.limits import REPO
from harness.tool import Tool


class Maintenance(Tool):
    def __init__(self, rig):
        super().__init__(rig.folder)
        self.rig = rig
        self.copy = rig.folder / "backup.db"
        self.faulty_env = {**self.env, **rig.fault_env()}

    def words(self, command, *args, store=None):
        return [command, *args, "--store", f"sqlite:{store or self.rig.store}"]

    def ask(self, command, *args, store=None, **options):
        """Whatever comes of it."""
        return self.run(*self.words(command, *args, store=store), **options)

    def do(self, command, *args, store=None):
        """It must succeed; what it printed."""
        done = self.ask(command, *args, store=store)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout

    def refuse(self, command, *args, said, store=None):
        """It must fail with one line that contains `said`."""
        done = self.ask(command, *args, store=store)
        assert done.returncode == 1, done.stdout + done.stderr
        assert re.search(said, done.stderr), done.stderr
        assert len(done.stderr.splitlines()) == 1 and done.stdout == ""

    def faulty(self, command, *args, **options):
        """As ask(), with a disk that fails as rig.faults orders."""
        return self.ask(command, *args, env=self.faulty_env, **options)

    def start_faulty(self, command, *args, **options):
        return self.start(*self.words(command, *args), env=self.faulty_env, **options)


def floor_said(text):
    """What restore printed: new tokens are larger."""
    return int(re.search(r"tokens go on above (\d+)", text)[1])


def cycle(client, resource, count=1):
    """Grants and gives back; the last token."""
    for _ in range(count):
        token = client.token(resource, 60000, "WAIT", 10000)
        client("RELEASE", resource, token)
    return token


@contextlib.contextmanager
def opened(path):
    """The file, opened with Python's SQLite; committed at the end."""
    file = sqlite3.connect(path)
    try:
        yield file
        file.commit()
    finally:
        file.close()


def query(path, sql, *args):
    with opened(path) as file:
        return file.execute(sql, args).fetchall()


def execute(path, script):
    with opened(path) as file:
        file.executescript(script)


def overwrite(path, name, data, offset=0):
    """Writes over the first page of a table or an index; a negative offset counts from its end."""
    root, size = query(path, "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size"
                             " WHERE name = ?", name)[0]
    with open(path, "r+b") as file:
        file.seek((root - 1) * size + offset % size)
        file.write(data)


def value(path, key):
    """The string of a key; None where there is none."""
    rows = query(path, "SELECT value FROM stockade_values WHERE key = ?", key)
    return rows[0][0] if rows else None


def make_version_1(path):
    """A store as the first version made it, with rows in it."""
    source = "".join((REPO / "tests" / name).read_text() for name in
                     ("support/version_1.h", "unit/store/migration_test.c"))
    for name in "version_1", "version_1_rows":
        text = re.search(rf"char {name}\[\] =(.*?);\n\n", source, re.S)[1]
        text = re.sub(r"/\*.*?\*/", "", text)
        execute(path, "".join(re.findall(r'"([^"\\]*)"', text)))


def make_newer(path):
    """A store of a version that nobody knows yet."""
    make_version_1(path)
    execute(path, "PRAGMA user_version = 99")


# (what makes the file, or None; what is said of it), for pytest.mark.parametrize.
NO_STORES = [pytest.param(make, said, id=name) for name, make, said in (
    ("none", None, "there is no .*stockade.db"),
    ("text", lambda path: path.write_text("hello " * 1000), "is not a database"),
    ("empty", lambda path: path.write_bytes(b""), "is empty"),
    ("foreign", lambda path: execute(path, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)"),
     "is another program's database"))]


LOOKS = """GET {0}|TYPE {0}|STRLEN {0}|HGET {0} f|HLEN {0}|HGETALL {0}|HSCAN {0} 0|LEASE {0}
    WAITERS {0}|RECEIPT {0} 1 one|FENCED 1 GET {0}|FENCED 1 HGETALL {0}|LEASES|SCAN 0|DBSIZE
    HISTORY {0}"""
CHANGES = """FENCED 1 HSET {0} f 9|FENCED 1 HDEL {0} f|FENCED 1 ID one SET {0} 9|FENCED 1 SET {0} 9
    FENCED 1 DEL {0}|RENEW {0} 1|ACQUIRE {0} 9|ACQUIRE {0} 9 OWNER me|RELEASE {0} 1|REVOKE {0}"""


def each_command(client, names, changes=False):
    """Of each kind one on each name, whatever the answers are."""
    for name in names:
        for line in re.split(r"[|\n]", LOOKS + ("|" + CHANGES if changes else "")):
            client.ask(*line.format(name).split())
        # With an ID it is a write, for which a hash is loaded as a whole.
        client.ask("FENCED", 1, "ID", os.urandom(8).hex(), "HGETALL", name)
