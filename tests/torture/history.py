# SPDX-License-Identifier: Apache-2.0
"""What clients did and heard, as they wrote it down.

A client writes one JSON line before it sends a command and one after its reply, so that a client
that is killed has still said what it had begun. merge() makes one line of the two:

    {"client": "c3.1", "n": 17, "at": "d0", "resource": "reg:1", "op": "set", "token": 5,
     "id": "c3.1-17", "value": "c3.1-17", "call": 81.02, "done": 81.03, "reply": "OK"}

`call` and `done` are seconds of the machine's monotonic clock, one for all processes. Without
`done` the outcome is unknown: the command may have happened at any time since, or never. An error
reply stands in `error` in place of `reply`.

op        command                              reply
acquire   ACQUIRE resource ttl [...]           token, or null
release   RELEASE resource token               holds left
renew     RENEW resource token ttl             ttl
revoke    REVOKE resource                      the newest token, or null
lease     LEASE resource                       its token, or null
set       FENCED token [ID id] SET key value   "OK"
swap      FENCED token ID id SET key value GET the value before
fget      FENCED token GET key                 the value
get       GET key (HGET key stock)             the value
sell      FENCED token ID id HINCRBY key stock -1 MIN 0    what is left, or the error RANGE
receipt   RECEIPT resource token id            [1, reply], [0, null] or null
"""

import collections
import json
import os
import time

FIELDS = ("index", "client", "n", "at", "resource", "op", "token", "id", "value", "owner", "wait",
          "call", "done", "reply", "error")


class Op(collections.namedtuple("Op", FIELDS, defaults=(None,) * len(FIELDS))):
    """One operation; `index` is its place in the history."""

    __slots__ = ()

    @property
    def known(self):
        return self.done is not None

    def label(self):
        """As short as a person can read it."""
        words = [self.op]
        if self.token is not None:
            words.append(f"#{self.token}")
        if self.value is not None:
            words.append(str(self.value))
        elif self.id is not None:
            words.append(str(self.id))
        words.append("→ " + self.outcome())
        return " ".join(words)

    def outcome(self):
        if not self.known:
            return "?"
        if self.error is not None:
            return self.error.split()[0]
        if self.op == "acquire" and self.reply is not None:
            return f"#{self.reply}"
        return "null" if self.reply is None else str(self.reply)


def make(**fields):
    """For histories written by hand."""
    return Op(**fields)


class Recorder:
    """One client's file. Each line is one write(2), so none is lost when the client is killed."""

    def __init__(self, path, client):
        self.client = client
        self.n = 0
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _line(self, record):
        os.write(self.fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def call(self, at, resource, op, **args):
        self.n += 1
        record = {"client": self.client, "n": self.n, "at": at, "resource": resource, "op": op}
        record.update(args)
        record["call"] = time.monotonic()
        self._line(record)
        return self.n

    def done(self, n, reply=None, error=None):
        record = {"n": n, "done": time.monotonic(), "reply": reply}
        if error is not None:
            record["error"] = error
        self._line(record)

    def close(self):
        os.close(self.fd)


def merge(paths):
    """All operations of the clients' files, by the time of their call."""
    ops = []
    for path in paths:
        begun = {}
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "call" in record:
                begun[record["n"]] = record
            else:
                begun[record["n"]].update(record)
        ops += begun.values()
    ops.sort(key=lambda op: op["call"])
    return number(ops)


def number(records):
    known = set(FIELDS)
    return [Op(**{**{k: v for k, v in record.items() if k in known}, "index": index})
            for index, record in enumerate(records)]


def write(path, ops, faults=()):
    """The merged history, one JSON line each; faults stand between as {"fault", "at"}."""
    lines = [(op.call, {k: v for k, v in op._asdict().items() if v is not None and k != "index"})
             for op in ops]
    lines += [(moment, {"fault": what, "time": moment}) for moment, what in faults]
    lines.sort(key=lambda line: line[0])
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(record, separators=(",", ":")) + "\n" for _, record in lines)


def read(path):
    """(operations, faults) of a file that write() made."""
    with open(path, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    faults = [(r["time"], r["fault"]) for r in records if "fault" in r]
    return number([r for r in records if "fault" not in r]), faults


def by_resource(ops):
    parts = collections.defaultdict(list)
    for op in ops:
        parts[op.resource].append(op)
    return dict(sorted(parts.items()))
