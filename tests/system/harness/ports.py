# SPDX-License-Identifier: Apache-2.0
"""Ports of 127.0.0.1 for servers, each held from here until it is let go.

A port that is held is bound, and nobody listens on it. A server can listen there all the same,
since both sides allow that (SO_REUSEADDR), as often as it likes; nobody else is given the port
meanwhile: no other test, of this run or of one beside it, and no client that wants any port. So a
server that comes back finds its place free, and where none runs, connections are refused.
"""

import socket

held = {}


def free_port():
    """A port that is held until release(), or else as long as this process lives."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))  # one that nobody has or holds; without SO_REUSEADDR, so far
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port = holder.getsockname()[1]
    held[port] = holder
    return port


def release(port):
    """What listened there has ended."""
    held.pop(port).close()
