# SPDX-License-Identifier: Apache-2.0
"""A lock server with Stockade's commands that hands out tokens and checks none, which the demo and
the replay must notice. An expired lease goes to the next who asks."""

import socketserver
import threading
import time

POLL_S = 0.001


def bulks(values):
    return b"*%d\r\n" % len(values) + b"".join(b"$%d\r\n%s\r\n" % (len(v), v) for v in values)


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        self.queue = None  # of MULTI
        while True:
            head = self.rfile.readline()
            if not head:
                return
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            self.wfile.write(self.take(words))

    def take(self, words):
        """MULTI and EXEC, without repeats: an ID means nothing here."""
        name = words[0].upper()
        if name == b"MULTI":
            self.queue = []
            return b"+OK\r\n"
        if name == b"EXEC":
            queue, self.queue = self.queue, None
            with self.server.lock:
                return b"*%d\r\n" % len(queue) + b"".join(map(self.answer, queue))
        if self.queue is not None:
            self.queue.append(words)
            return b"+QUEUED\r\n"
        return self.answer(words)

    def answer(self, words):
        name, args = words[0].upper(), words[1:]
        data = self.server.data
        if name == b"PING":
            return b"+PONG\r\n"
        if name == b"SQL":
            return self.sql(args)
        if name == b"FENCEDALL":
            name, args[:2 * int(args[0]) + 1] = b"FENCED", [b"tokens"]
        if name == b"FENCED" and args[1] == b"ID":
            args[1:3] = []
        if name == b"FENCED" and args[1] == b"SQL":
            return self.sql(args[2:])
        if name == b"ACQUIRE":
            return self.acquire(args[0], int(args[1]) / 1000,
                                int(args[3]) / 1000 if len(args) > 2 else 0)
        if name == b"GET":
            value = data.get(args[0])
            return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
        if name == b"MGET":
            return bulks([data[key] for key in args])
        if name == b"FENCED" and args[1] == b"DECRBY":
            data[args[2]] = b"%d" % (int(data[args[2]]) - int(args[3]))
            return b":%s\r\n" % data[args[2]]
        if name == b"FENCED" and args[1] == b"SET":
            data[args[2]] = args[3]
            return b"+OK\r\n"
        if name == b"FENCED" and args[1] == b"DEL":
            return b":%d\r\n" % (data.pop(args[2], None) is not None)
        if name == b"RENEW":
            return self.renew(args[0], int(args[1]), int(args[2]))
        if name == b"RELEASE":
            with self.server.lock:
                if self.server.leases[args[0]][0] == int(args[1]):
                    self.server.leases[args[0]] = int(args[1]), 0
            return b":0\r\n"
        return b"-ERR unknown command\r\n"

    def sql(self, args):
        """The one table there is: rows of four numbers go in, the first three of each come out."""
        rows = self.server.rows
        if args[0] == b"TYPES":
            rows += [args[i:i + 3] for i in range(3, len(args), 4)]
        shown = rows if args[0].startswith(b"SELECT") else []
        return b"*2\r\n$4\r\nrows\r\n*%d\r\n" % len(shown) + b"".join(map(bulks, shown))

    def renew(self, resource, token, ttl_ms):
        with self.server.lock:
            if self.server.leases[resource][0] != token:
                return b"-STALE\r\n"
            self.server.leases[resource] = token, time.monotonic() + ttl_ms / 1000
            return b":%d\r\n" % ttl_ms

    def acquire(self, resource, ttl_s, wait_s):
        deadline = time.monotonic() + wait_s
        while True:
            with self.server.lock:
                token, ends = self.server.leases.get(resource, (0, 0))
                if ends <= time.monotonic():
                    self.server.leases[resource] = token + 1, time.monotonic() + ttl_s
                    return b"*2\r\n:%d\r\n:%d\r\n" % (token + 1, ttl_s * 1000)
            if time.monotonic() >= deadline:
                return b"*-1\r\n"
            time.sleep(POLL_S)  # a server of a test's, which waits in turns


class LaxServer(socketserver.ThreadingTCPServer):
    """`with LaxServer() as server:` serves at server.uri until the block ends."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Session)
        self.data, self.leases, self.rows, self.lock = {}, {}, [], threading.Lock()
        self.uri = "stockade://127.0.0.1:%d" % self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()
