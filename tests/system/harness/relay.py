# SPDX-License-Identifier: Apache-2.0
"""A TCP relay that can hold back, stall and cut what passes through it.

Two threads per connection, one per direction: 'up' runs from the client to the server, 'down'
back. A held direction is read and kept (the sender believes it was sent). From a stalled one
nothing is read once stall() has returned, but for as many bytes as that was told to let through.
cut() resets every connection; while refusing, new ones are reset at once. One that has vanished
does not even listen, as where a server has ended. (To libpq the two are not the same: only where
nobody listens it tries the next host.)
"""

import contextlib
import socket
import struct
import threading

from harness.limits import wait_until


PIECE_BYTES = 1 << 16


class Gate:
    """The state of one direction, shared by all connections."""

    def __init__(self):
        self.changed = threading.Condition()
        self.held = None  # what must occur in it to be held; b"": everything
        self.left = None  # how many bytes are still read before it stands still; None: all
        self.kept_bytes = 0

    def holds(self, data):
        return self.held is not None and self.held in data

    def read(self, source):
        """What comes next; b"" at the end. It is read under the lock, so nobody reads on once
        somebody has said that it stands still."""
        source.recv(1, socket.MSG_PEEK)  # wait without reading
        with self.changed:
            if self.left == 0:
                return None
            data = source.recv(min(PIECE_BYTES, self.left or PIECE_BYTES))
            self.left = self.left and self.left - len(data)
            return data


class Line:
    """A connection through the relay."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.ended = 0  # directions


class Relay:
    line = Line

    def __init__(self, target, port=0):
        """One that is to vanish needs a port that nobody else is given meanwhile."""
        self.target = target
        self.gates = {"up": Gate(), "down": Gate()}
        self.refusing = False
        self.ended = False
        self.sockets, self.lines = set(), set()
        self.threads = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address = self.listener.getsockname()
        self._start(self._accept, self.listener)

    @property
    def uri(self):
        """Where a daemon is behind it."""
        return "stockade://{}:{}".format(*self.address)

    @property
    def redis_uri(self):
        """A lease URI, where a Redis is behind it."""
        return "redis://{}:{}".format(*self.address)

    def _start(self, function, *args):
        thread = threading.Thread(target=function, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self, listener):
        while not self.ended:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                if self.refusing:
                    raise ConnectionRefusedError
                server = socket.create_connection(self.target, timeout=5)
                server.settimeout(None)
            except OSError:
                _reset(client)
                continue
            line = self.line(client, server)
            with self.lock:
                self.sockets |= {client, server}
                self.lines.add(line)
            if self.refusing:  # since a moment ago; cut() may have come before
                _reset(client)
                _reset(server)
                self.lines.discard(line)
                continue
            self._start(self._carry, line, client, server, self.gates["up"])
            self._start(self._carry, line, server, client, self.gates["down"])

    def _carry(self, line, source, sink, gate):
        """One direction; after the second of a connection its sockets go."""
        self._pass(line, source, sink, gate)
        with self.lock:
            line.ended += 1
            self.threads.remove(threading.current_thread())
            if line.ended == 2:
                self.sockets -= {source, sink}
                self.lines.discard(line)
                source.close()
                sink.close()

    def _pass(self, _, source, sink, gate):
        self._pump(source, sink, gate)

    def _pump(self, source, sink, gate):
        try:
            while True:
                with gate.changed:
                    gate.changed.wait_for(lambda: gate.left != 0 or self.ended)
                data = gate.read(source)
                if data is None and not self.ended:
                    continue
                if not data:
                    break
                with gate.changed:
                    if gate.holds(data):
                        gate.kept_bytes += len(data)
                        gate.changed.wait_for(lambda: not gate.holds(data) or self.ended)
                        gate.kept_bytes -= len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # one end broke: so does the other
            _reset(source)
            _reset(sink)

    def _set(self, direction, **state):
        gate = self.gates[direction]
        with gate.changed:
            vars(gate).update(state)
            gate.changed.notify_all()

    def hold(self, direction, only=b""):
        """Everything, or what has `only` in it."""
        self._set(direction, held=only)

    def stall(self, direction, after=0):
        """Nothing more is read when this returns, but for the next `after` bytes."""
        self._set(direction, left=after)

    def let(self, direction):
        self._set(direction, held=None, left=None)

    def kept(self, direction):
        """Bytes read and held back."""
        return self.gates[direction].kept_bytes

    def refuse(self):
        self.refusing = True

    def accept(self):
        self.refusing = False

    def vanish(self):
        """Nobody listens here any more; connections that are there stay."""
        self.refuse()
        self._close_listener()

    def appear(self):
        """At the same port."""
        self.accept()
        if self.listener is None:
            self.listener = socket.create_server(self.address)
            self._start(self._accept, self.listener)

    def _close_listener(self):
        listener, self.listener = self.listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def cut(self):
        with self.lock:
            gone, self.sockets = self.sockets, set()
        for sock in gone:
            _reset(sock)

    @contextlib.contextmanager
    def losing_reply(self, only=b""):
        """What the block asks gets through, and the connection is cut before the reply (the one
        with `only` in it)."""
        self.hold("down", only)
        yield
        wait_until(lambda: self.kept("down") > 0, "there is a reply")
        self.cut()
        self.let("down")

    def close(self):
        self.ended = True
        self._close_listener()
        self.cut()
        for gate in self.gates.values():
            with gate.changed:
                gate.changed.notify_all()
        for thread in list(self.threads):
            thread.join(5)


def _reset(sock):
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
