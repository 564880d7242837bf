# SPDX-License-Identifier: Apache-2.0
"""One client, a process of its own: takes leases, reads, writes and sells through relays, is cut
off, paused and killed, and writes down every call and every reply.

    client.py '{"client": "c3.1", "seed": ..., "history": PATH, "until": monotonic seconds,
                "daemons": [{"address": [host, port], "store": ""}, ...], "registers": n,
                "skus": n}'

What it wants is what real holders want, and what they do wrong: it thinks longer than its lease,
writes under tokens of long ago, repeats what it got no reply to, and sometimes forgets to release.
"""

import json
import pathlib
import random
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]),
                str(pathlib.Path(__file__).resolve().parents[1] / "system")]

from harness.resp import Client, ReplyError, encode  # noqa: E402

from torture.history import Recorder  # noqa: E402

FORGED = 1 << 50  # far beyond any token that will be granted
BROKEN = (OSError, AssertionError, ValueError, KeyError)
HANG_UP = 0.03  # so often a client goes away without waiting for the reply


class Lost(Exception):
    """The connection broke or was given up: the outcome is unknown."""


def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def number(value):
    return None if value is None else int(value)


def receipt_reply(value, place):
    """Of a basket only what it left of the stock that was asked about."""
    if value is None:
        return None
    applied, reply = value
    return [applied, reply[place] if isinstance(reply, list) else plain(reply)]


def lease_token(value):
    if value is None:
        return None
    pairs = value.items() if isinstance(value, dict) else zip(value[::2], value[1::2])
    return {plain(key): item for key, item in pairs}["token"]


class Caller:
    """Sends commands and records them. One connection to each daemon, made when needed."""

    def __init__(self, client, path, daemons):
        self.recorder = Recorder(path, client)
        self.name = client
        self.daemons = daemons
        self.connections = {}
        self.timeout = 5.0
        self.chance = None  # with one, it hangs up at times

    def resource(self, at, key):
        return self.daemons[at]["store"] + key

    def connect(self, at):
        if at not in self.connections:
            address = tuple(self.daemons[at]["address"])
            try:
                self.connections[at] = Client(address, timeout=self.timeout)
            except OSError as problem:
                raise Lost from problem
        return self.connections[at]

    def drop(self, at):
        connection = self.connections.pop(at, None)
        if connection is not None:
            connection.close()

    def exchange(self, at, commands, more):
        """The last reply. Raises Lost."""
        connection = self.connect(at)
        try:
            connection.send_bytes(b"".join(encode(*words) for words in commands))
            if self.chance is not None and self.chance.random() < HANG_UP:
                time.sleep(self.chance.choice((0, 0.0005, 0.003)))
                raise ConnectionError
            return [connection.read(self.timeout + more) for _ in commands][-1]
        except BROKEN as problem:
            self.drop(at)
            raise Lost from problem

    def do(self, at, key, op, words, parse=plain, more=0.0, **args):
        """(reply, error code). Raises Lost."""
        self.connect(at)  # what cannot be sent was not called
        n = self.recorder.call(f"d{at}", self.resource(at, key), op, **args)
        reply = self.exchange(at, [words], more)
        if isinstance(reply, ReplyError):
            self.recorder.done(n, error=reply.text)
            return None, reply.code
        reply = parse(reply)
        self.recorder.done(n, reply)
        return reply, None

    def acquire(self, at, key, ttl_ms, wait_ms=0, owner=None, request=None, ephemeral=False):
        words = ["ACQUIRE", key, ttl_ms]
        words += ["WAIT", wait_ms] if wait_ms else []
        words += ["OWNER", owner] if owner else []
        words += ["ID", request] if request else []
        words += ["EPHEMERAL"] if ephemeral else []
        # Whoever repeats an id is who asked first.
        who = owner or (request and "id " + request)
        tied = None
        if ephemeral and owner:
            # A lease that its owner holds already ends with this connection from now on, also
            # where no reply tells which token that is.
            self.connect(at)
            tied = self.recorder.call(f"d{at}", self.resource(at, key), "revoke")
        token = self.do(at, key, "acquire", words, lambda reply: reply and reply[0],
                        wait_ms / 1000, owner=who, wait=wait_ms)[0]
        if tied is not None:
            self.recorder.done(tied, error="ABORTED the reply is known")
        if ephemeral and token is not None:
            # From now on the connection may break, and the daemon notice it, at any time.
            self.recorder.call(f"d{at}", self.resource(at, key), "release", token=token)
        return token

    def release(self, at, key, token):
        return self.do(at, key, "release", ("RELEASE", key, token), token=token)[0]

    def renew(self, at, key, token, ttl_ms):
        return self.do(at, key, "renew", ("RENEW", key, token, ttl_ms), token=token)

    def revoke(self, at, key):
        return self.do(at, key, "revoke", ("REVOKE", key))[0]

    def lease(self, at, key):
        return self.do(at, key, "lease", ("LEASE", key), lease_token)[0]

    def set(self, at, key, token, name):
        return self.do(at, key, "set", ("FENCED", token, "ID", name, "SET", key, name),
                       token=token, id=name, value=name)

    def put(self, at, key, token, value):
        """Without an ID: what becomes of it where no reply comes, nobody will ever know."""
        return self.do(at, key, "set", ("FENCED", token, "SET", key, value), token=token,
                       value=value)

    def swap(self, at, key, token, name):
        return self.do(at, key, "swap", ("FENCED", token, "ID", name, "SET", key, name, "GET"),
                       token=token, id=name, value=name)

    def get(self, at, key):
        if key.startswith("sku"):
            return self.do(at, key, "get", ("HGET", key, "stock"), number)[0]
        return self.do(at, key, "get", ("GET", key))[0]

    def fget(self, at, key, token):
        if key.startswith("sku"):
            return self.do(at, key, "fget", ("FENCED", token, "HGET", key, "stock"), number,
                           token=token)
        return self.do(at, key, "fget", ("FENCED", token, "GET", key), token=token)

    def sell(self, at, key, token, name):
        return self.do(at, key, "sell", ("FENCED", token, "ID", name, "HINCRBY", key, "stock", -1,
                                         "MIN", 0), token=token, id=name)

    def receipt(self, at, key, token, name):
        place = int(key[-1])
        return self.do(at, key, "receipt", ("RECEIPT", key, token, name),
                       lambda reply: receipt_reply(reply, place), token=token, id=name)[0]

    def together(self, at, calls, commands, part, more=0.0):
        """One request about several resources, written down as an operation on each: `calls` are
        (key, op, arguments), and `part` takes the last reply apart, into one for each."""
        self.connect(at)
        numbers = [self.recorder.call(f"d{at}", self.resource(at, key), op, **args)
                   for key, op, args in calls]
        reply = self.exchange(at, commands, more)
        if isinstance(reply, ReplyError):
            for n in numbers:  # of which of them it speaks is not said
                self.recorder.done(n, error="ABORTED " + reply.text)
            return None
        replies = part(reply)
        for n, one in zip(numbers, replies):
            self.recorder.done(n, one)
        return replies

    def acquire_all(self, at, keys, ttl_ms, wait_ms):
        calls = [(key, "acquire", {"wait": wait_ms + 1}) for key in keys]
        words = ("ACQUIREALL", ttl_ms, len(keys), *keys, "WAIT", wait_ms)
        return self.together(at, calls, [words], lambda reply: reply or [None] * len(keys),
                             wait_ms / 1000)

    def sell_basket(self, at, keys, tokens, name):
        """One of each, or none."""
        calls = [(key, "sell", {"token": token, "id": name}) for key, token in zip(keys, tokens)]
        sales = [("FENCED", token, "HINCRBY", key, "stock", -1, "MIN", 0)
                 for key, token in zip(keys, tokens)]
        sales[0] = (*sales[0][:2], "ID", name, *sales[0][2:])
        return self.together(at, calls, [("MULTI",), *sales, ("EXEC",)], list)


class Worker:
    def __init__(self, config):
        self.chance = random.Random(config["seed"])
        self.caller = Caller(config["client"], config["history"], config["daemons"])
        self.caller.chance = self.chance
        self.name = config["client"]
        self.slot = self.name.split(".")[0]
        self.until = config["until"]
        self.registers = [f"reg:{i}" for i in range(config["registers"])]
        self.skus = [f"sku:{i}" for i in range(config["skus"])]
        self.old = []        # (daemon, key, token) of long ago
        self.unsold = []     # (daemon, key, token, id) whose outcome is unknown
        self.known = []      # (daemon, key, id, function) of writes that were answered
        self.serial = 0

    def fresh(self):
        self.serial += 1
        return f"{self.name}-{self.serial}"

    def likely(self, probability):
        return self.chance.random() < probability

    def some_daemon(self, store=None):
        fit = [i for i, daemon in enumerate(self.caller.daemons)
               if store is None or daemon["store"] == store]
        return self.chance.choice(fit)

    def other(self, at):
        """A daemon of the same store: any may be asked about what another did."""
        return self.some_daemon(self.caller.daemons[at]["store"])

    def pause(self):
        if self.likely(0.04):
            time.sleep(self.chance.uniform(0.03, 0.3))
        elif self.likely(0.4):
            time.sleep(self.chance.uniform(0, 0.004))

    def take(self, at, key):
        """A token, or None."""
        ttl_ms = self.chance.choice((50, 100, 200, 400, 1000))
        wait_ms = self.chance.choice((0, 0, 100, 400, 1200))
        owner = self.slot if self.likely(0.3) else None
        request = "take-" + self.fresh() if self.likely(0.4) else None
        ephemeral = self.likely(0.15)
        self.caller.timeout = self.chance.choice((0.3, 0.6, 1.5, 3.0))
        for _ in range(3):
            try:
                token = self.caller.acquire(at, key, ttl_ms, wait_ms, owner, request, ephemeral)
            except Lost:
                if request is None:
                    raise
                at = self.other(at)
                continue
            if token is not None:
                self.old = [*self.old[-20:], (at, key, token)]
            return token
        return None

    def give(self, at, key, token):
        for _ in range(3):
            if self.caller.release(at, key, token) in (0, None):
                return

    def write(self, at, key, token):
        """Writes once; what got no reply is repeated, or asked about. Is the token still good?"""
        if self.likely(0.25):
            return self.caller.put(at, key, token, self.fresh())[1] is None
        name, act = self.fresh(), self.caller.swap if self.likely(0.5) else self.caller.set
        for _ in range(3):
            try:
                good = act(at, key, token, name)[1] is None
                if good:
                    self.known = [*self.known[-20:], (at, key, name, act)]
                return good
            except Lost:
                at = self.other(at)
                if self.likely(0.3):
                    return False
                if self.likely(0.2):
                    self.caller.receipt(at, key, token, name)
        return False

    def repeat(self, at, key, token):
        """As one that does not know of its reply: it must get the same one."""
        same = [write for write in self.known if write[1] == key and self.caller.daemons[write[0]][
            "store"] == self.caller.daemons[at]["store"]]
        if same:
            _, _, name, act = self.chance.choice(same[-4:])
            act(at, key, token, name)

    def use_register(self):
        at = self.some_daemon()
        key = self.chance.choice(self.registers)
        token = self.take(at, key)
        if token is None:
            return
        for _ in range(self.chance.randint(1, 10)):
            at = self.other(at) if self.likely(0.2) else at
            if self.likely(0.5) and self.caller.fget(at, key, token)[1] is not None:
                return
            self.pause()
            if not self.write(at, key, token):
                break
            if self.likely(0.1):
                self.repeat(at, key, token)
            if self.likely(0.15):
                self.caller.renew(at, key, token, 500)
        if self.likely(0.85):
            self.give(at, key, token)

    def sell_one(self, at, key, token):
        """True: known. False: the token is no good any more."""
        known = next((sale for sale in self.unsold if sale[1] == key and
                      self.caller.daemons[sale[0]]["store"] == self.caller.daemons[at]["store"]),
                     None)
        sale = (at, key, token, known[3] if known else self.fresh())
        if known is None:
            self.unsold.append(sale)
        else:
            self.unsold[self.unsold.index(known)] = sale
        _, error = self.caller.sell(at, key, token, sale[3])
        if error is None or error == "RANGE":
            self.unsold.remove(sale)
        if error is None:
            self.known = [*self.known[-20:], (at, key, sale[3], self.caller.sell)]
        return error is None

    def use_stock(self):
        at = self.some_daemon()
        key = self.unsold[0][1] if self.unsold and self.likely(0.7) else self.chance.choice(
            self.skus)
        token = self.take(at, key)
        if token is None:
            return
        for _ in range(self.chance.randint(1, 8)):
            self.pause()
            for _ in range(4):
                try:
                    good = self.sell_one(at, key, token)
                    break
                except Lost:
                    at = self.other(at)
            else:
                return
            if not good:
                return
            if self.likely(0.1):
                self.repeat(at, key, token)
        if self.likely(0.85):
            self.give(at, key, token)

    def use_basket(self):
        at = self.some_daemon()
        tokens = self.caller.acquire_all(at, self.skus, self.chance.choice((100, 300, 800)),
                                         self.chance.choice((1, 200, 1000)))
        if not tokens or None in tokens:
            return
        for _ in range(self.chance.randint(1, 5)):
            self.pause()
            name = "basket-" + self.fresh()
            for _ in range(3):
                try:
                    sold = self.caller.sell_basket(at, self.skus, tokens, name)
                    break
                except Lost:
                    at = self.other(at)
            else:
                return
            if sold is None:
                break
        for key, token in zip(self.skus, tokens):
            self.give(at, key, token)

    def use_old_token(self):
        """As a process that was paused for long: with a token of long ago."""
        if not self.old:
            return
        at, key, token = self.chance.choice(self.old)
        at = self.other(at)
        act = self.chance.random()
        if act < 0.1 and not key.startswith("sku"):
            token += FORGED
        if act < 0.2:
            self.caller.fget(at, key, token)
        elif act < 0.25:
            self.caller.release(at, key, token)
        elif key.startswith("sku"):
            sale = (at, key, token, self.fresh())
            self.unsold.append(sale)
            if self.caller.sell(at, key, token, sale[3])[1] is None:
                self.unsold.remove(sale)
        else:
            act = self.caller.put if self.likely(0.3) else self.caller.set
            act(at, key, token, self.fresh())

    def read(self):
        at = self.some_daemon()
        key = self.chance.choice(self.registers + self.skus)
        if self.likely(0.75):
            self.caller.get(at, key)
        elif self.likely(0.85):
            self.caller.lease(at, key)
        else:
            self.caller.revoke(at, key)

    def ask_receipt(self):
        if not self.unsold:
            return
        at, key, token, name = self.chance.choice(self.unsold)
        answer = self.caller.receipt(self.other(at), key, token, name)
        if answer is not None and answer[0] == 1:
            self.unsold = [sale for sale in self.unsold if sale[3] != name]

    def run(self):
        acts = ((self.use_register, 4), (self.use_stock, 3), (self.use_old_token, 3),
                (self.read, 4), (self.ask_receipt, 1), (self.use_basket, 2))
        kinds, weights = zip(*acts)
        while time.monotonic() < self.until:
            self.caller.timeout = self.chance.choice((0.3, 0.6, 1.5))
            try:
                self.chance.choices(kinds, weights)[0]()
                self.pause()
            except Lost:
                time.sleep(self.chance.uniform(0, 0.05))


if __name__ == "__main__":
    Worker(json.loads(sys.argv[1])).run()
