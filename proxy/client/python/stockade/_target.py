# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is: a URI, and redis-py's connections to it."""

from __future__ import annotations

import inspect
import socket
import ssl
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
HINT = ("expected stockade://[user:password@]host[:port], stockades:// by TLS, or "
        "stockade+unix:PATH")
TLS_OPTIONS = ("tls_ca", "tls_cert", "tls_key", "tls_name")


class _Context(ssl.SSLContext):
    """Certificates and names are verified; the name may be another than the host's."""

    name: str = ""

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        options["server_hostname"] = self.name or options.get("server_hostname")
        return super().wrap_socket(*args, **options)

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:  # asyncio's
        options["server_hostname"] = self.name or options.get("server_hostname")
        return super().wrap_bio(*args, **options)


def _context(tls: Dict[str, str]) -> _Context:
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.name = tls.get("tls_name", "")
    try:
        if "tls_ca" in tls:
            context.load_verify_locations(tls["tls_ca"])
        else:
            context.load_default_certs()
        if "tls_cert" in tls:
            context.load_cert_chain(tls["tls_cert"], tls.get("tls_key"))
    except OSError as error:
        files = ", ".join(tls[name] for name in TLS_OPTIONS[:3] if name in tls)
        raise Misuse(f"{files}: {error}") from None
    return context


class _TlsConnection(redis.Connection):  # type: ignore[misc]
    def __init__(self, tls: _Context, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connect(self) -> Any:
        plain = super()._connect()
        try:
            return self._tls.wrap_socket(plain, server_hostname=self.host)
        except OSError:
            plain.close()
            raise


class _AioTlsConnection(redis.asyncio.SSLConnection):  # type: ignore[misc]
    def __init__(self, tls: _Context, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context = _Holder(tls)


class _Holder:
    """What redis-py asks for its context."""

    def __init__(self, context: _Context) -> None:
        self._context = context

    def get(self) -> _Context:
        return self._context


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
        self._tls: Any = None
        self._unix = scheme == "stockade+unix"
        if self._unix and rest:
            self._options["path"] = self.name = unquote(rest)
        elif scheme in ("stockade", "stockades") and rest.startswith("//"):
            self._parse(uri, scheme == "stockades")
        elif scheme == "sqlite":
            raise Misuse("this package talks to a daemon: start `stockaded --store sqlite:PATH` "
                         "and connect to it. Without a daemon: libstockade")
        else:
            raise Misuse(f"{scheme + colon!r} is not known: {HINT}")

    def _parse(self, uri: str, tls: bool) -> None:
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname, parts.port or PORT
        except ValueError as error:
            raise Misuse(f"{error}: {HINT}") from None
        if (not host or parts.path not in ("", "/") or parts.fragment or
                (parts.query and not tls)):
            raise Misuse(HINT)
        if tls:
            self._tls = _context(self._tls_options(parts.query))
        self._options.update(host=host, port=port, socket_keepalive=True,
                             socket_keepalive_options=KEEPALIVE)
        if parts.username:
            self._options["username"] = unquote(parts.username)
        if parts.password:
            self._options["password"] = unquote(parts.password)
        self.name = f"{host}:{port}"

    @staticmethod
    def _tls_options(query: str) -> Dict[str, str]:
        options: Dict[str, str] = {}
        for word in filter(None, query.split("&")):
            name, equals, value = word.partition("=")
            if name not in TLS_OPTIONS or name in options or not value:
                raise Misuse(f"{name!r}: behind the ? stands each of {', '.join(TLS_OPTIONS)} "
                             "once at most, with a value")
            options[name] = unquote(value)
        if "tls_key" in options and "tls_cert" not in options:
            raise Misuse("tls_key without tls_cert")
        return options

    def connection(self, timeout: float) -> Any:
        """A redis.Connection, not connected yet, each of whose steps may take so many seconds."""
        if self._unix:
            return redis.UnixDomainSocketConnection(socket_timeout=timeout, **self._options)
        options = dict(self._options, socket_timeout=timeout, socket_connect_timeout=timeout)
        if self._tls is not None:
            return _TlsConnection(self._tls, **options)
        return redis.Connection(**options)

    def aio_connection(self) -> Any:
        """The same for asyncio, where the caller sets the limits."""
        if self._unix:
            return redis.asyncio.UnixDomainSocketConnection(**self._options)
        if self._tls is not None:
            return _AioTlsConnection(self._tls, **self._options)
        return redis.asyncio.Connection(**self._options)
