# SPDX-License-Identifier: Apache-2.0
"""Free ports of 127.0.0.1 for servers."""

import fcntl
import functools
import random
import socket

from harness.limits import BUILD

# Below the ports that the system picks by itself, for clients among others.
PORTS = range(12000, 32000)
ports_had = set()


@functools.lru_cache(maxsize=None)
def port_locks():
    return open(BUILD / "flags", "r+b")


def free_port():
    """A port on which nothing listens, and that no other test is given while this process lives:
    a server that finds another in its place ends, and the other would answer for it."""
    for port in random.sample(PORTS, 1000):
        if port in ports_had:
            continue
        try:
            fcntl.lockf(port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            ports_had.add(port)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")
