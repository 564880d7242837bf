# SPDX-License-Identifier: Apache-2.0
"""The servers that the cases of one number of keys need: started, filled, stopped together."""

import contextlib
import pathlib

from bench import coordinators, postgres, raw, resp


def cache_mb(keys):
    """The daemon's own default, and in proportion where that is too little."""
    return 128 if keys <= 1000000 else 2048


MAKERS = {
    "stockade": lambda folder, servers, keys: resp.Stockade(folder, cache_mb=cache_mb(keys)),
    "redis": lambda folder, servers, keys: resp.Redis(folder),
    "lease-redis": lambda folder, servers, keys: resp.Redis(folder, filled=False),
    "stockade-redis": lambda folder, servers, keys: resp.Stockade(folder, servers["lease-redis"]),
    "stockade-redis-2": lambda folder, servers, keys: resp.Stockade(folder, servers["lease-redis"]),
    "postgres": lambda folder, servers, keys: postgres.Postgres(folder),
    "etcd": lambda folder, servers, keys: coordinators.Etcd(folder),
    "zookeeper": lambda folder, servers, keys: coordinators.ZooKeeper(folder),
    "sqlite": lambda folder, servers, keys: raw.Sqlite(folder, servers["stockade"]),
}


@contextlib.contextmanager
def servers_for(tags, folder, keys, progress):
    """tag: server. Made in the order of MAKERS, since some need others."""
    servers = {}
    if "stockade-redis" in tags:
        tags = {*tags, "lease-redis", "stockade-redis-2"}
    try:
        for tag, make in MAKERS.items():
            if tag not in tags:
                continue
            progress.step(f"{tag} with {keys:,} keys", 0)
            servers[tag] = make(pathlib.Path(folder) / f"{tag}-{keys}", servers, keys)
            servers[tag].fill(keys)
        yield servers
    finally:
        for server in reversed(servers.values()):
            server.stop()
