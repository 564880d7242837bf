# SPDX-License-Identifier: Apache-2.0
"""A shop's program with SQL of its own, which sells from a table that is guarded:

    seller.py NAME DATABASE-URI DAEMON-PORT ...

until its input ends. It stops itself now and then (SIGSTOP): before it presents its token, before
it writes, and before it commits. Prints, a line each: `sold ID` once it is committed, `refused
CODE`, `lost` (a connection), `stop WHERE`, and `wait WHAT SECONDS` for what took long.
"""
import os
import random
import select
import signal
import sys
import time
from contextlib import closing, contextmanager

import psycopg2
import redis

ITEMS, TTLS_MS, STOP_CHANCE, LONG_S = 4, (50, 300, 1000), 0.02, 1.0
# The lease has passed on; the row was locked for too long.
EXPECTED = {"ST001", "55P03"}
# It reads, and writes what it has made of it: whoever came in between would be written over.
READ = "SELECT stock, version FROM inventory WHERE sku = %s"
WRITE = "UPDATE inventory SET stock = %s, version = %s WHERE sku = %s"
NOTE = "INSERT INTO sale(id, sku, version, token) VALUES(%s, %s, %s, %s)"

name, uri, *ports = sys.argv[1:]
chance = random.Random(name)


def say(*words):
    print(*words, flush=True)


@contextmanager
def waiting(what):
    begun = time.monotonic()
    try:
        yield
    finally:  # also a wait in vain is one
        if time.monotonic() - begun > LONG_S:
            say("wait", what, f"{time.monotonic() - begun:.1f}")


def may_stop(where):
    if chance.random() < STOP_CHANCE:
        say("stop", where)
        os.kill(os.getpid(), signal.SIGSTOP)


def sell(link, item, token, number):
    """One transaction."""
    with link, link.cursor() as cursor:
        may_stop("before")
        with waiting("present"):
            cursor.execute("SELECT stockade.present(%s, %s)", (f"sku:{item}", token))
        cursor.execute(READ, (item,))
        stock, version = cursor.fetchone()
        may_stop("presented")
        cursor.execute(WRITE, (stock - 1, version + 1, item))
        cursor.execute(NOTE, (f"{name}/{number}", item, version + 1, token))
        may_stop("written")
    say("sold", f"{name}/{number}")


def work(link, client, numbers):
    item = chance.randrange(ITEMS)
    with waiting("acquire"):
        grant = client.execute_command("ACQUIRE", f"sku:{item}", chance.choice(TTLS_MS), "WAIT",
                                       3000)
    for _ in range(chance.randint(1, 4) if grant else 0):
        try:
            sell(link, item, grant[0], next(numbers))
        except psycopg2.Error as error:
            if error.pgcode not in EXPECTED:
                raise
            say("refused", error.pgcode)
            break
    if grant and chance.random() < 0.5:
        client.execute_command("RELEASE", f"sku:{item}", grant[0])


def main():
    numbers = iter(range(sys.maxsize))
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            with closing(psycopg2.connect(uri, connect_timeout=5)) as link, \
                    redis.Redis(port=int(chance.choice(ports)), socket_timeout=30) as client:
                while not select.select([sys.stdin], [], [], 0)[0] and chance.random() > 0.01:
                    work(link, client, numbers)
        except (psycopg2.OperationalError, psycopg2.InterfaceError, redis.ConnectionError,
                redis.TimeoutError) as error:
            say("lost", repr(str(error)))
            time.sleep(0.2)
        except redis.ResponseError as error:
            if not str(error).startswith(("STORE", "DEADLOCK", "STALE")):
                raise
            say("refused", str(error).split()[0])


main()
