# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is: a URI, and redis-py's connections to it."""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import re
import socket
import ssl
import sys
import threading
from typing import Any, Dict, List, Optional, Tuple, Union
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio

from stockade._flow import now
from stockade.errors import Misuse

PORT = 7379
# A peer that has vanished without a word is noticed while nothing is sent: after half a minute.
KEEPALIVE = {getattr(socket, name): value for name, value in
             (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
             if hasattr(socket, name)}
HINT = ("expected stockade://[user:password@]host[:port], stockades:// by TLS, or "
        "stockade+unix:PATH")
TLS_OPTIONS = ("tls_ca", "tls_cert", "tls_key", "tls_name")


def process_name() -> str:
    """Tells the processes of a program apart, also on several machines behind one address:
    till.py-4711@web-2."""
    path, program = os.path.split((getattr(sys, "argv", None) or [""])[0])
    if program == "__main__.py":  # python -m
        program = os.path.basename(path)
    if program in ("", "-c"):
        program = "python"
    return re.sub("[^!-~]", "-", f"{program[:32]}-{os.getpid()}@{socket.gethostname()[:20]}")


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


def _look_up(host: str, port: int, seconds: float) -> List[str]:
    """The host's addresses. getaddrinfo knows no time limit, so a name is looked up on a thread of
    its own, which is left behind where it takes too long."""
    found: queue.SimpleQueue[Union[List[Any], OSError]] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except OSError as error:
            found.put(error)

    with contextlib.suppress(socket.gaierror):
        socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        return [host]
    threading.Thread(target=look_up, name="stockade-resolve", daemon=True).start()
    try:
        result = found.get(timeout=seconds)
    except queue.Empty:
        raise socket.timeout(f"looking up {host} takes too long") from None
    if isinstance(result, OSError):
        raise result
    return [address[0] if len(address) < 4 or not address[3] else f"{address[0]}%{address[3]}"
            for *_, address in result]


class _Limited:
    """Connects and logs in until a moment; redis-py has a limit for each step and address."""

    until = 0.0

    def _left(self) -> float:
        left = self.until - now()
        if left <= 0:
            raise socket.timeout("no connection in time")
        return left


class _UnixConnection(_Limited, redis.UnixDomainSocketConnection):  # type: ignore[misc]
    def _connect(self) -> Any:
        connected = super()._connect()
        connected.settimeout(self._left())
        return connected


class _Connection(_Limited, redis.Connection):  # type: ignore[misc]
    host: str
    port: int

    def _connect(self) -> Any:
        name, failure = self.host, OSError("it has no address")
        try:
            for address in _look_up(name, self.port, self._left()):
                self.host = address
                self.socket_connect_timeout = self._left()
                try:
                    connected = super()._connect()
                    connected.settimeout(self._left())
                    return connected
                except OSError as error:
                    failure = error
            raise failure
        finally:
            self.host = name


class _TlsConnection(_Connection):
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


class _Abrupt:
    """Disconnects at once, also when redis-py does it by itself: nobody waits until a silent daemon
    has read all that was sent, or says farewell."""

    _writer: Any

    async def disconnect(self, *args: Any, **options: Any) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(*args, **options)  # type: ignore[misc]


class _AioConnection(_Abrupt, redis.asyncio.Connection):  # type: ignore[misc]
    pass


class _AioUnixConnection(_Abrupt, redis.asyncio.UnixDomainSocketConnection):  # type: ignore[misc]
    pass


class _AioTlsConnection(_Abrupt, redis.asyncio.SSLConnection):  # type: ignore[misc]
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

    def __init__(self, uri: str, client_name: Optional[str]) -> None:
        self._options: Dict[str, Any] = {
            "decode_responses": True, "encoding_errors": "surrogateescape"}
        if client_name is not None and not re.fullmatch("[!-~]{1,64}", client_name):
            raise Misuse("client_name is 1 to 64 visible characters of ASCII, without blanks")
        self._client_name = client_name
        self._login: Tuple[str, ...] = ()
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
        if parts.username or parts.password:
            self._login = ("AUTH", unquote(parts.username or "default"),
                           unquote(parts.password or ""))
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

    def _hello(self) -> Tuple[str, ...]:
        """Logs in and says who this is, in one trip. A forked child is another process."""
        return ("HELLO", "2", *self._login, "SETNAME", self._client_name or process_name())

    def _take_refusal(self, error: Exception) -> None:
        """A name is for people: where it is refused, the connection goes on without one."""
        if isinstance(error, redis.AuthenticationError) and not self._login:
            raise redis.AuthenticationError(
                "NOAUTH a user and a password are needed: stockade://user:password@host") from None
        if self._login or not isinstance(error, redis.ResponseError):
            raise error

    def _greet(self, connection: Any) -> None:
        connection._parser.on_connect(connection)
        connection.send_command(*self._hello(), check_health=False)
        try:
            connection.read_response()
        except redis.RedisError as error:
            self._take_refusal(error)

    async def _greet_aio(self, connection: Any) -> None:
        connection._parser.on_connect(connection)
        await connection.send_command(*self._hello(), check_health=False)
        try:
            await connection.read_response()
        except redis.RedisError as error:
            self._take_refusal(error)

    def connection(self, timeout: float, until: float) -> Any:
        """A redis.Connection, not connected yet. It is connected, logged in included, until then
        or not at all; from then on each read may take so many seconds."""
        options = dict(self._options, socket_timeout=timeout, redis_connect_func=self._greet)
        connection: Any
        if self._unix:
            connection = _UnixConnection(**options)
        elif self._tls is not None:
            connection = _TlsConnection(self._tls, **options)
        else:
            connection = _Connection(**options)
        connection.until = until
        return connection

    def aio_connection(self) -> Any:
        """The same for asyncio, where the caller sets the limits."""
        options = dict(self._options, redis_connect_func=self._greet_aio)
        if self._unix:
            return _AioUnixConnection(**options)
        if self._tls is not None:
            return _AioTlsConnection(self._tls, **options)
        return _AioConnection(**options)
