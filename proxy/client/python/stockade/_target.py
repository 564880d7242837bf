# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is: a URI, and redis-py's connections to it."""

from __future__ import annotations

import inspect
import socket
from typing import Any, Dict
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio

from stockade.errors import Misuse

PORT = 7379
# A peer that has vanished without a word is noticed while nothing is sent: after half a minute.
KEEPALIVE = {getattr(socket, name): value for name, value in
             (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
             if hasattr(socket, name)}
HINT = "expected stockade://[user:password@]host[:port] or stockade+unix:PATH"


class Target:
    """A daemon. Any number of connections can be made; none is open at first."""

    def __init__(self, uri: str) -> None:
        self._options: Dict[str, Any] = {
            "decode_responses": True, "encoding_errors": "surrogateescape"}
        # Later versions of redis-py speak RESP3 as well, and have to be told which.
        base = getattr(redis.connection, "AbstractConnection", redis.Connection)
        if "protocol" in inspect.signature(base.__init__).parameters:
            self._options["protocol"] = 2
        scheme, colon, rest = uri.partition(":")
        self._unix = scheme == "stockade+unix"
        if self._unix and rest:
            self._options["path"] = self.name = unquote(rest)
        elif scheme == "stockade" and rest.startswith("//"):
            self._parse(uri)
        elif scheme == "sqlite":
            raise Misuse("this package talks to a daemon: start `stockaded --store sqlite:PATH` "
                         "and connect to it. Without a daemon: libstockade")
        else:
            raise Misuse(f"{scheme + colon!r} is not known: {HINT}")

    def _parse(self, uri: str) -> None:
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname, parts.port or PORT
        except ValueError as error:
            raise Misuse(f"{error}: {HINT}") from None
        if not host or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise Misuse(HINT)
        self._options.update(host=host, port=port, socket_keepalive=True,
                             socket_keepalive_options=KEEPALIVE)
        if parts.username:
            self._options["username"] = unquote(parts.username)
        if parts.password:
            self._options["password"] = unquote(parts.password)
        self.name = f"{host}:{port}"

    def connection(self, timeout: float) -> Any:
        """A redis.Connection, not connected yet, each of whose steps may take so many seconds."""
        if self._unix:
            return redis.UnixDomainSocketConnection(socket_timeout=timeout, **self._options)
        return redis.Connection(socket_timeout=timeout, socket_connect_timeout=timeout,
                                **self._options)

    def aio_connection(self) -> Any:
        """The same for asyncio, where the caller sets the limits."""
        if self._unix:
            return redis.asyncio.UnixDomainSocketConnection(**self._options)
        return redis.asyncio.Connection(**self._options)
