# SPDX-License-Identifier: Apache-2.0
"""A server that speaks as much of ZooKeeper's protocol as a grant takes, and can be slow or wrong.

It knows one session, whose nodes outlive their connections."""

import contextlib
import itertools
import socket
import struct
import threading
import time

from harness.limits import wait_until

CREATES, LIST, GET, DELETE = (1, 15, 19), (8, 12), 4, 2
WITHOUT_STAT = 1, 2


class FalseZooKeeper:
    def __init__(self):
        self.session_delay = 0  # seconds, until a connection has its session
        self.names = "{}"  # what it makes of a sequential node's path
        self.nodes = {}
        self.zxids = itertools.count(1000)
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = "zookeeper://127.0.0.1:{}?session_ms=30000".format(
            self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

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
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError, EOFError):
            reader = connection.makefile("rb")
            self._read(reader)
            time.sleep(self.session_delay)
            self._send(connection, struct.pack(">iiqi", 0, 30000, 7, 16) + bytes(17))
            while True:
                request = self._read(reader)
                xid, kind = struct.unpack_from(">ii", request)
                zxid = next(self.zxids)
                answer = self._answer(kind, request, zxid)
                self._send(connection, struct.pack(">iqi", xid, zxid, 0) + answer)

    @staticmethod
    def _read(reader):
        size = reader.read(4)
        if len(size) < 4:
            raise EOFError
        return reader.read(struct.unpack(">i", size)[0])

    @staticmethod
    def _send(connection, answer):
        connection.sendall(struct.pack(">i", len(answer)) + answer)

    @staticmethod
    def _text(text):
        return struct.pack(">i", len(text)) + text.encode()

    def _answer(self, kind, request, zxid):
        now_ms = int(time.time() * 1000)
        stat = struct.pack(">qqqqiiiqiiq", zxid, zxid, now_ms, now_ms, 0, 0, 0, 0, 0, 0, zxid)
        path = ""
        if kind in (*CREATES, *LIST, GET, DELETE):
            size, = struct.unpack_from(">i", request, 8)
            path = request[12:12 + size].decode()
        if kind in LIST:
            inside = [node.rpartition("/")[2] for node in self.nodes
                      if node.rpartition("/")[0] == path]
            return struct.pack(">i", len(inside)) + b"".join(map(self._text, inside))
        if kind in CREATES:
            if path.endswith("-"):
                path = self.names.format(f"{path}{zxid:010}")
                self.nodes[path] = True
            return self._text(path) + (b"" if kind == 1 else stat)
        if kind == DELETE:
            self.nodes.pop(path, None)
        return (self._text("q") if kind == GET else b"") + (b"" if kind in WITHOUT_STAT else stat)
