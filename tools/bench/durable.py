# SPDX-License-Identifier: Apache-2.0
"""Is there what was acknowledged? Clients write rising values to keys of their own and note each
one that was acknowledged; the server is killed in the middle of it, started again, and asked.

kill -9 tells what is in the server's memory only from what it gave to the system. That it was
synced, too, is read from the settings, and from the bytes per operation in the tables.
"""

import threading

from bench import clients

WRITES_S, KILLED_AFTER_S = 2, 1


def resp_pair(write, read):
    def run(server, record, verify, options):
        if record:
            return clients.commands(server, [write], record=record, **options)
        return clients.commands(server, [read], verify=verify, flags=["--sequential"], **options)
    return run


def work_pair(write, read):
    def run(server, record, verify, options):
        if record:
            return clients.load(server, write, record=record, **options)
        return clients.load(server, read, verify=verify, flags=["--sequential"], **options)
    return run


CHECKED = {
    "stockade": resp_pair("FENCED 1 SET key:{key} {value}", "GET key:{key}"),
    "redis": resp_pair("SET key:{key} {value}", "GET key:{key}"),
    "etcd": work_pair("etcd-put", "etcd-get"),
    "zookeeper": work_pair("zookeeper-set", "zookeeper-get"),
}


def check(tag, server, keys):
    """How many keys were written and found; raises BenchError where one was lost."""
    run = CHECKED[tag]
    file = server.folder / "acknowledged"
    timer = threading.Timer(KILLED_AFTER_S, server.kill)
    timer.start()
    try:
        written = run(server, file, None, {"keys": keys, "time": f"{WRITES_S * 1000}ms"})
    finally:
        timer.join()
    server.start()
    found = run(server, None, file, {"keys": keys, "ops": keys})
    return written["ops"], found["verified"]
