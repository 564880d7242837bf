# SPDX-License-Identifier: Apache-2.0
"""A relay before a daemon that knows what passes through it, and stops it at an exact moment.

    relay = Moments(daemon.address)
    moment = relay.stop("reply", "ACQUIRE", "sku:1")   the next reply to such a request
    moment.wait()                                      it has come, and stays here
    moment.go()                                        on with it, and with what came behind it
    moment.cut("within")                               or its connection ends, behind its first half

A message that is stopped holds up all behind it in its direction of its connection; where it may be
`overtaken`, news (what the daemon tells unasked) pass it. Nothing else is delayed.
"""

import collections
import contextlib
import socket
import threading
import time

from harness import relay
from harness.limits import Wait, wait_until

# Their replies are told as news over RESP3.
UNANSWERED = {b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE"}
VALUES = {b"*": 1, b"~": 1, b">": 1, b"%": 2}  # of a header's count, so many values follow


def end_of(data, at=0):
    """Where the message that begins there ends; -1: it is not whole yet."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        return -1
    kind, at, line = data[at:at + 1], line_end + 2, data[at + 1:line_end]
    if kind in b"$=" and int(line) >= 0:
        at += int(line) + 2
        return at if at <= len(data) else -1
    for _ in range(VALUES.get(kind, 0) * max(0, int(line) if kind in VALUES else 0)):
        at = end_of(data, at)
        if at < 0:
            return -1
    return at


def words_of(message):
    """The words of a request, or of news: an array of strings and numbers, or a line."""
    if message[:1] not in VALUES:
        return message.split() or [b""]
    parts, words = message.partition(b"\r\n")[2], []
    while parts:
        header, _, parts = parts.partition(b"\r\n")
        if header[:1] == b"$":
            size = int(header[1:])
            header, parts = parts[:size], parts[size + 2:]
            words.append(header)
        else:
            words.append(header[1:])
    return words


def is_news(message):
    """A push, or what takes its place over RESP2."""
    return message[:1] == b">" or b"$13\r\nstockade:lost\r\n" in message[:32]


class Line(relay.Line):
    def __init__(self, client, server):
        super().__init__(client, server)
        self.lock = threading.RLock()
        self.last = None  # the words of its last request
        self.asked = collections.deque()  # the requests that have no reply yet
        self.stopped = {}  # direction: (the moment, what is held, as [kind, words, data])
        self.told = False  # its client could know of its end

    def send(self, direction, data):
        with contextlib.suppress(OSError):  # it has gone, which ends this line, too
            (self.server if direction == "up" else self.client).sendall(data)

    def end(self):
        """As a daemon ends it that stops: what was sent arrives first."""
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)


class Moment:
    """Where the relay stops, once: at a request, a reply or news."""

    def __init__(self, relay, kind, words, begins, overtaken):
        self.relay, self.kind, self.begins, self.overtaken = relay, kind, begins, overtaken
        self.words = [str(word).encode() for word in words]
        self.direction = "up" if kind == "request" else "down"
        self.line = None  # where it is held

    def is_at(self, kind, words, data):
        return (kind == self.kind and data.startswith(self.begins)
                and all(word in words for word in self.words))

    def wait(self, timeout=10.0):
        wait_until(lambda: self.line, f"a {self.kind} with {self.words}", timeout)
        return self

    def go(self):
        with self.line.lock:
            _, held = self.line.stopped.pop(self.direction)
            for message in held:
                self.relay.deliver(self.line, self.direction, *message)

    def cut(self, where="before"):
        """The connection ends `before` the message, `within` it, or `behind` it."""
        with self.line.lock:
            _, held = self.line.stopped.pop(self.direction)
            data = held[0][2]
            part = {"before": b"", "within": data[:len(data) // 2], "behind": data}[where]
            self.line.stopped["down"] = self, []  # nobody hears what is answered meanwhile
            self.line.send(self.direction, part)
            self.line.end()


class Moments(relay.Relay):
    line = Line

    def __init__(self, target, port=0):
        self.moments = []  # that have not come yet
        self.heard, self.news = [], []  # the words of each request, of all that was told unasked
        super().__init__(target, port)

    def stop(self, kind, *words, begins=b"", overtaken=False):
        """At the next "request", "reply" (to a request) or "news" that has all these words, and
        whose bytes begin so."""
        self.moments.append(Moment(self, kind, words, begins, overtaken))
        return self.moments[-1]

    def requests(self, *words):
        """Those that came and have all these words."""
        wanted = [str(word).encode() for word in words]
        return [each for each in self.heard if all(word in each for word in wanted)]

    def end_all(self):
        """Every connection ends, and each client could know of it."""
        with self.lock:
            lines = list(self.lines)
        for line in lines:
            line.end()
        wait_until(lambda: all(line.told for line in lines), "each client was told")

    def await_end(self):
        """Until there is no connection any more."""
        wait = Wait()
        while self.lines:
            wait.check(f"connections end after {[line.last for line in list(self.lines)]}")
            time.sleep(0.003)  # between two looks

    def deliver(self, line, direction, kind, words, data):
        with line.lock:
            moment, held = line.stopped.get(direction, (None, None))
            if moment is None:
                moment = next((each for each in self.moments
                               if each.is_at(kind, words, data)), None)
                if moment is not None:
                    self.moments.remove(moment)
                    line.stopped[direction] = moment, [(kind, words, data)]
                    moment.line = line
                else:
                    line.send(direction, data)
            elif kind == "news" and moment.overtaken:
                line.send(direction, data)
            else:
                held.append((kind, words, data))

    def _pass(self, line, source, sink, gate):
        """Message by message, instead of byte by byte."""
        rest, hear = b"", self._on_request if gate is self.gates["up"] else self._on_answer
        try:
            while data := source.recv(1 << 16):
                rest += data
                while (size := end_of(rest)) > 0:
                    hear(line, rest[:size])
                    rest = rest[size:]
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            line.end()
            with contextlib.suppress(OSError):
                line.client.shutdown(socket.SHUT_RDWR)
        finally:
            line.told |= source is line.server

    def _on_request(self, line, message):
        words = words_of(message)
        self.heard.append(words)
        line.last = words
        if words[0].upper() not in UNANSWERED:
            line.asked.append(words)
        self.deliver(line, "up", "request", words, message)

    def _on_answer(self, line, message):
        if is_news(message):
            words = words_of(message)
            self.deliver(line, "down", "news", words, message)
            self.news.append(words)
        else:
            self.deliver(line, "down", "reply", line.asked.popleft(), message)
