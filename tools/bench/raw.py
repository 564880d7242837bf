# SPDX-License-Identifier: Apache-2.0
"""SQLite without anything in front of it, on a copy of Stockade's file: no server at all."""

import contextlib
import sqlite3

from bench.server import Server


class Sqlite(Server):
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
