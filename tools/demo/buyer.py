# SPDX-License-Identifier: Apache-2.0
"""A buyer of `stockade demo oversell`: redis-py's Lock around read, work and write.

    python3 buyer.py HOST PORT KEY TTL_SECONDS (redis | stockade)

With "stockade" the lock is at Stockade (--lock-keys 'lock:*'), and one line is another: the write
goes under the lock's own value. Says what happens on stdout, and goes on when it gets a line."""
import sys

import redis
from redis.exceptions import LockError, ResponseError

host, port, key, ttl, where = sys.argv[1:]


def say(*words):
    print(*words, flush=True)
    if not sys.stdin.readline():
        sys.exit("the demo has gone")


shop = redis.Redis(host, int(port))
say("ready")
while True:
    sold = False
    try:
        with shop.lock(f"lock:{key}", timeout=float(ttl)) as lock:
            left = int(shop.get(key)) - 1
            if left < 0:
                print("sold out")
                break
            say("work")  # a price rule, a payment call
            if where == "redis":
                shop.set(key, left)
            else:
                shop.execute_command("FENCED", lock.local.token, "SET", key, left)
            sold = True
            say("sold", left)
    except (LockError, ResponseError) as error:  # LockError: it ran out before it was released
        if not sold:
            say("refused", error.__context__ or error)
