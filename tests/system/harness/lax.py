# SPDX-License-Identifier: Apache-2.0
"""A lock server that hands out tokens and checks none, with Stockade's commands: what the demo and
the replay must find out. Expired leases are given to the next who asks."""

import socketserver
import threading
import time

LOOK_AGAIN_S = 0.001


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            head = self.rfile.readline()
            if not head:
                return
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            self.wfile.write(self.answer(words))

    def answer(self, words):
        name, args = words[0].upper(), words[1:]
        data = self.server.data
        if name == b"ACQUIRE":
            return self.acquire(args[0], int(args[1]) / 1000,
                                int(args[3]) / 1000 if len(args) > 2 else 0)
        if name == b"GET":
            value = data.get(args[0])
            return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
        if name == b"FENCED" and args[1] == b"SET":
            data[args[2]] = args[3]
            return b"+OK\r\n"
        if name == b"FENCED" and args[1] == b"DEL":
            return b":%d\r\n" % (data.pop(args[2], None) is not None)
        if name == b"RELEASE":
            with self.server.lock:
                if self.server.leases[args[0]][0] == int(args[1]):
                    self.server.leases[args[0]] = int(args[1]), 0
            return b":0\r\n"
        return b"-ERR unknown command\r\n"

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
            time.sleep(LOOK_AGAIN_S)


class LaxServer(socketserver.ThreadingTCPServer):
    """`with LaxServer() as server:` serves at server.uri until the block ends."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Session)
        self.data, self.leases, self.lock = {}, {}, threading.Lock()
        self.uri = "stockade://127.0.0.1:%d" % self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()
