# SPDX-License-Identifier: Apache-2.0
"""A server that speaks as much of ZooKeeper's protocol as a grant takes, and can be slow or wrong.

It knows one session, whose nodes outlive their connections."""

import collections
import contextlib
import itertools
import socket
import struct
import threading
import time

from harness.limits import wait_until

CREATES, LIST, GET, DELETE, SET, AUTH = (1, 15, 19), (8, 12), 4, 2, 5, 100
PATHS = *CREATES, *LIST, GET, DELETE, SET
WITHOUT_STAT = 1, 2
BAD_VERSION = -103
SESSION = struct.pack(">iiqi", 0, 30000, 7, 16) + bytes(17)
EXPIRED = struct.pack(">iiqi", 0, 0, 0, 16) + bytes(17)


class Node(collections.namedtuple("Node", "data zxid version", defaults=(0,))):
    def stat(self):
        now_ms = int(time.time() * 1000)
        return struct.pack(">qqqqiiiqiiq", self.zxid, self.zxid, now_ms, now_ms, self.version,
                           0, 0, 0, 0, 0, self.zxid)


ANY = Node("q", 1)


class FalseZooKeeper:
    def __init__(self):
        self.session_delay = 0  # seconds, until a connection has its session
        self.session = SESSION  # what it says to who connects
        self.errors = {}  # by the kind of a request: the code that answers it
        self.pieces = None  # the bytes of an answer that go at once; None: all
        self.ends_at = None  # an answer ends after so many bytes, and says so
        self.logins = []  # of the connection that has made the last node
        self.names = "{}"  # what it makes of a sequential node's path
        self.nodes = {}
        self.created = collections.Counter()  # paths that it was asked to make, refused ones, too
        self.zxids = itertools.count(1000)
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = self.uri_with("")
        threading.Thread(target=self._accept, daemon=True).start()

    def uri_with(self, login):
        return "zookeeper://{}127.0.0.1:{}?session_ms=30000".format(
            login, self.listener.getsockname()[1])

    def close(self):
        self.listener.close()
        self.cut()

    def cut(self):
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def await_connection(self, count):
        wait_until(lambda: len(self.connections) >= count, "it connects")

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError, EOFError):
            reader = connection.makefile("rb")
            self._read(reader)
            time.sleep(self.session_delay)  # what it is told to take
            self._send(connection, self.session)
            logins = []
            while True:
                request = self._read(reader)
                xid, kind = struct.unpack_from(">ii", request)
                zxid = next(self.zxids)
                code = self.errors.get(kind, 0)
                answer = b""
                if kind in CREATES:
                    self.logins = logins
                    self.created[self._cut(request, 8)[0]] += 1
                if kind == AUTH:
                    logins.append(self._cut(request, 12 + 4 + len("digest"))[0])
                elif code == 0:
                    code, answer = self._answer(kind, request, zxid)
                answer = struct.pack(">iqi", xid, zxid, code) + answer
                self._send(connection, answer[:self.ends_at])

    @staticmethod
    def _read(reader):
        size = reader.read(4)
        if len(size) < 4:
            raise EOFError
        return reader.read(struct.unpack(">i", size)[0])

    def _send(self, connection, answer):
        frame = struct.pack(">i", len(answer)) + answer
        step = self.pieces or len(frame)
        for at in range(0, len(frame), step):
            connection.sendall(frame[at:at + step])

    @staticmethod
    def _cut(request, at):
        """The text that begins there, and what stands behind it."""
        size, = struct.unpack_from(">i", request, at)
        end = at + 4 + max(size, 0)
        return request[at + 4:end].decode(), request[end:]

    @staticmethod
    def _text(text):
        return struct.pack(">i", len(text)) + text.encode()

    def _answer(self, kind, request, zxid):
        """The error's code, and what comes behind it."""
        path, rest = self._cut(request, 8) if kind in PATHS else ("", b"")
        if kind in LIST:
            inside = [node.rpartition("/")[2] for node in self.nodes
                      if node.rpartition("/")[0] == path]
            return 0, struct.pack(">i", len(inside)) + b"".join(map(self._text, inside))
        if kind in CREATES:
            data, _ = self._cut(rest, 0)
            if path.endswith("-"):
                path = self.names.format(f"{path}{zxid:010}")
                self.nodes[path] = Node(data, zxid)
            return 0, self._text(path) + (b"" if kind == 1 else Node(data, zxid).stat())
        node = self.nodes.get(path, ANY)
        if kind == SET:
            data, rest = self._cut(rest, 0)
            if struct.unpack(">i", rest)[0] not in (-1, node.version):
                return BAD_VERSION, b""
            node = self.nodes[path] = node._replace(data=data, version=node.version + 1)
        if kind == DELETE:
            self.nodes.pop(path, None)
        return 0, (self._text(node.data) if kind == GET else b"") + (
            b"" if kind in WITHOUT_STAT else node.stat())
