# SPDX-License-Identifier: Apache-2.0
"""libstockade from Python, by ctypes: the shared library as it was built, in this process.

    client = Library().open("sqlite:/tmp/shop.db", timeout_ms=5000)
    lease = client.acquire("sku:1", ttl_ms=3000, wait_ms=1000)
    client.take(lease, "sku:1", 1)

What fails raises StkError, whose `code` is the error's word. Run as a program it is a process of
its own that does what its standard input says, a line of Python at a time: see Remote.
"""

import ctypes
import json
import os
import select
import subprocess
import sys
import time
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p

import pytest

from harness.limits import BUILD, HANG_SECONDS, REPO, Wait, patience

LOST = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [("ttl_ms", c_int64), ("wait_ms", c_int64), ("owner", c_char_p),
                ("ephemeral", c_bool), ("no_keep_alive", c_bool), ("lost", LOST),
                ("context", c_void_p), ("reserved", c_void_p * 4)]


class Words(ctypes.Structure):
    _fields_ = [("argc", c_size_t), ("argv", POINTER(c_char_p)), ("lens", POINTER(c_size_t))]


class Info(ctypes.Structure):
    _fields_ = [("held", c_bool), ("token", c_int64), ("ttl_ms", c_int64), ("holds", c_int64),
                ("waiters", c_int64), ("owner", ctypes.c_char * 513)]


class StkError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code} {message}")
        self.code = code


class Library:
    def __init__(self, path=BUILD / "libstockade.so"):
        self.so = so = ctypes.CDLL(str(path))
        for name, result in {"stk_error_code": c_char_p, "stk_message": c_char_p,
                             "stk_last_id": c_char_p, "stk_lease_token": c_int64,
                             "stk_lease_left_ms": c_int64, "stk_lease_valid": c_bool,
                             "stk_lease_free": None, "stk_client_close": None,
                             "stk_reply_free": None, "stk_reply_integer": c_int64,
                             "stk_reply_at": c_void_p, "stk_reply_count": c_size_t,
                             "stk_reply_string": c_char_p}.items():
            getattr(so, name).restype = result
        so.stk_client_open.argtypes = [c_char_p, c_int64, POINTER(c_void_p)]
        for name in ("stk_client_close", "stk_lease_free", "stk_lease_left_ms", "stk_lease_valid",
                     "stk_release", "stk_lease_adopt", "stk_reply_free", "stk_reply_integer",
                     "stk_reply_count", "stk_txn_free"):
            getattr(so, name).argtypes = [c_void_p]
        so.stk_lease_token.argtypes = [c_void_p, c_char_p]
        so.stk_renew.argtypes = [c_void_p, c_int64]
        so.stk_reply_at.argtypes = [c_void_p, c_size_t]
        so.stk_reply_string.argtypes = [c_void_p, POINTER(c_size_t)]

    def check(self, error):
        if error != 0:
            raise StkError(self.so.stk_error_code(error).decode(), self.so.stk_message().decode())

    def open(self, uri, timeout_ms=None):
        return Client(self, str(uri), timeout_ms or int(patience(5) * 1000))


class Lease:
    """A handle. `lost` gets (reason, time) when the loss is told."""

    def __init__(self, client, count=1):
        self.library, self.client, self.handle = client.library, client, c_void_p()
        self.lost, self.count = [], count

        @LOST
        def on_lost(_handle, why, _context):
            code = self.library.so.stk_error_code(why).decode()
            self.lost.append((code, time.monotonic()))
        self.on_lost = on_lost  # ctypes needs it to stay

    @property
    def token(self):
        return self.library.so.stk_lease_token(self.handle, None)

    @property
    def left_ms(self):
        return self.library.so.stk_lease_left_ms(self.handle)

    @property
    def valid(self):
        return self.library.so.stk_lease_valid(self.handle)

    def token_of(self, resource):
        return self.library.so.stk_lease_token(self.handle, resource.encode())

    def renew(self, ttl_ms=0):
        self.library.check(self.library.so.stk_renew(self.handle, ttl_ms))

    def release(self):
        try:
            self.library.check(self.library.so.stk_release(self.handle))
        finally:
            self.free()

    def free(self):
        self.library.so.stk_lease_free(self.handle)
        self.handle = c_void_p()


class Client:
    def __init__(self, library, uri, timeout_ms):
        self.library, self.so, self.handle = library, library.so, c_void_p()
        library.check(self.so.stk_client_open(uri.encode(), timeout_ms,
                                              ctypes.byref(self.handle)))

    def set_name(self, name):
        self._call("stk_client_set_name", name.encode())

    def close(self):
        self.so.stk_client_close(self.handle)
        self.handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def acquire(self, *resources, ttl_ms=3000, wait_ms=0, owner=None, ephemeral=False,
                keep_alive=True):
        """None: another holds it."""
        lease = Lease(self, len(resources))
        options = Options(ttl_ms=ttl_ms, wait_ms=wait_ms,
                          owner=owner.encode() if owner else None, ephemeral=ephemeral,
                          no_keep_alive=not keep_alive, lost=lease.on_lost)
        try:
            if len(resources) == 1:
                self._call("stk_acquire", resources[0].encode(), ctypes.byref(options),
                           ctypes.byref(lease.handle))
            else:
                names = (c_char_p * len(resources))(*(r.encode() for r in resources))
                self._call("stk_acquire_all", names, c_size_t(len(resources)),
                           ctypes.byref(options), ctypes.byref(lease.handle))
        except StkError as error:
            if error.code == "HELD":
                return None
            raise
        return lease

    def lead(self, name, ttl_ms=3000, wait_ms=0, no_keep_alive=False):
        """wait_ms 0: without end."""
        term = Lease(self)
        options = Options(ttl_ms=ttl_ms, wait_ms=wait_ms, no_keep_alive=no_keep_alive,
                          lost=term.on_lost)
        self._call("stk_lead", name.encode(), ctypes.byref(options), ctypes.byref(term.handle))
        return term

    def _call(self, name, *args):
        self.library.check(getattr(self.so, name)(self.handle, *args))

    def get(self, key):
        reply = self.command("GET", key)
        return None if reply is None else reply.decode()

    def set(self, lease, key, value):
        data = str(value).encode()
        self.library.check(self.so.stk_set(lease.handle, key.encode(), data,
                                           c_size_t(len(data))))

    def take(self, lease, key, n=1):
        left = c_int64()
        self.library.check(self.so.stk_take(lease.handle, key.encode(), c_int64(n),
                                            ctypes.byref(left)))
        return left.value

    def query(self, resource):
        info = Info()
        self._call("stk_query", resource.encode(), ctypes.byref(info))
        return info

    def revoke(self, resource):
        token = c_int64()
        self._call("stk_revoke", resource.encode(), ctypes.byref(token))
        return token.value

    def receipt(self, resource, token, ident):
        outcome = c_int()
        self._call("stk_receipt", resource.encode(), c_int64(token), ident.encode(),
                   ctypes.byref(outcome), None)
        return ["applied", "not applied", "not yet"][outcome.value]

    @property
    def last_id(self):
        return self.so.stk_last_id().decode()

    def use_id(self, ident):
        self.library.check(self.so.stk_use_id(None if ident is None else ident.encode()))

    def command(self, *words):
        return self._reply("stk_command", self.handle, words)

    def command_all(self, *commands):
        """In one exchange."""
        batch = (Words * len(commands))(*(Words(*_words(each)) for each in commands))
        reply = c_void_p()
        self._call("stk_command_all", batch, c_size_t(len(commands)), ctypes.byref(reply))
        return self._take(reply)

    def fenced(self, lease, *words):
        return self._reply("stk_fenced", lease.handle, words)

    def transaction(self, *steps):
        """Each step is (lease or None, word, ...)."""
        txn, reply = c_void_p(), c_void_p()
        self._call("stk_txn_begin", ctypes.byref(txn))
        try:
            for lease, *words in steps:
                self.library.check(self.so.stk_txn_add(
                    txn, lease.handle if lease else None, *_words(words)))
            self.library.check(self.so.stk_txn_exec(txn, ctypes.byref(reply)))
            return self._take(reply)
        finally:
            self.so.stk_txn_free(txn)

    def _reply(self, name, handle, words):
        reply = c_void_p()
        self.library.check(getattr(self.so, name)(handle, *_words(words), ctypes.byref(reply)))
        return self._take(reply)

    def _take(self, reply):
        try:
            return self._value(reply)
        finally:
            self.so.stk_reply_free(reply)

    def _value(self, reply):
        kind, length = self.so.stk_reply_type(reply), c_size_t()
        if kind == 0:
            return None
        if kind == 1:
            return self.so.stk_reply_integer(reply)
        if kind == 3:
            return [self._value(c_void_p(self.so.stk_reply_at(reply, i)))
                    for i in range(self.so.stk_reply_count(reply))]
        text = self.so.stk_reply_string(reply, ctypes.byref(length))
        return text[:length.value]


def fails(code, call, *args, **options):
    with pytest.raises(StkError) as caught:
        call(*args, **options)
    assert caught.value.code == code, caught.value


def _words(words):
    data = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return (c_size_t(len(data)), (c_char_p * len(data))(*data),
            (c_size_t * len(data))(*(len(word) for word in data)))


def sell(client, key):
    """Sells by the piece until nothing is left; what was there before each sale."""
    sold = []
    while True:
        lease = client.acquire(key, ttl_ms=int(patience(3000)), wait_ms=int(patience(40000)))
        left = int(client.get(key))
        if left:
            client.set(lease, key, left - 1)
            sold.append(left)
        lease.release()
        if not left:
            return sold


class Remote:
    """A process of its own with the library. `ask` runs a line of Python there; names that it
    assigns stay. `library` is a Library, and `client` is open on the URI, where one is given."""

    def __init__(self, uri=None, env=None):
        self.uri = uri
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.library"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, **(env or {}), "PYTHONPATH": str(REPO / "tests/system")})

    def start(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, timeout=HANG_SECONDS):
        wait = Wait(timeout)
        if not select.select([self.process.stdout], [], [], wait.left)[0]:
            raise wait.late("the remote process answers")
        line = self.process.stdout.readline()
        assert line, "the remote process has died"
        kind, value = json.loads(line)
        assert kind == "ok", value
        return value

    def ask(self, line, timeout=HANG_SECONDS):
        self.start(line)
        return self.answer(timeout)

    def __enter__(self):
        if self.uri:
            self.ask(f"client = library.open('{self.uri}', {int(patience(30000))})")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(patience(HANG_SECONDS))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve():
    names = {"library": Library(), "sell": sell}
    for line in sys.stdin:
        try:
            try:
                answer = "ok", eval(line, names)  # pylint: disable=eval-used
            except SyntaxError:
                exec(line, names)  # pylint: disable=exec-used
                answer = "ok", None
        except StkError as error:
            answer = "ok", f"{error.code}"
        except Exception as error:  # pylint: disable=broad-except
            answer = "failed", repr(error)
        print(json.dumps(answer, default=repr), flush=True)


if __name__ == "__main__":
    serve()
