# SPDX-License-Identifier: Apache-2.0
"""Is there what was acknowledged? Clients write rising values to keys of their own and note each
one that was acknowledged; the server is killed in the middle of it, started again, and asked.

kill -9 tells what is in the server's memory only from what it gave to the system. That it was
synced, too, is read from the settings, and from the bytes per operation in the tables.
"""

import threading

from bench import clients

WRITES_S, KILLED_AFTER_S = 2, 1


CHECKED = {  # how to write and read a key
    "stockade": ("resp", "FENCED 1 SET key:{key} {value}", "GET key:{key}"),
    # Its PostgreSQL is killed, too.
    "stockade-pg": ("resp", "FENCED 1 SET key:{key} {value}", "GET key:{key}"),
    "redis": ("resp", "SET key:{key} {value}", "GET key:{key}"),
    "etcd": ("work", "etcd-put", "etcd-get"),
    "zookeeper": ("work", "zookeeper-set", "zookeeper-get"),
}


def run(server, kind, what, **options):
    if kind == "resp":
        return clients.commands(server, [what], **options)
    return clients.load(server, what, **options)


def check(tag, server, keys):
    """Return how many writes were acknowledged, and on how many keys the last one was found. Raise
    BenchError where one was lost."""
    kind, write, read = CHECKED[tag]
    file = server.folder / "acknowledged"
    timer = threading.Timer(KILLED_AFTER_S, server.kill)
    timer.start()
    try:
        written = run(server, kind, write, record=file, keys=keys, time=f"{WRITES_S * 1000}ms")
    finally:
        timer.join()
    server.start()
    found = run(server, kind, read, verify=file, keys=keys, ops=keys, flags=["--sequential"])
    return written["ops"], found["verified"]
