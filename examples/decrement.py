# SPDX-License-Identifier: Apache-2.0
# Sells one piece of sku:42, with redis-py.
import contextlib
import redis

shop = redis.Redis(port=7379, decode_responses=True)
sku = "sku:42"

lease = shop.execute_command("ACQUIRE", sku, 30000, "WAIT", 10000)
if lease is None:
    raise SystemExit("busy: others are selling it")
token, ttl_ms = lease
try:
    stock = int(shop.get(sku))
    if stock == 0:
        raise SystemExit("sold out")
    # prices, payment, a pause: whatever takes its time happens here
    shop.execute_command("FENCED", token, "SET", sku, stock - 1)
    print("sold, left:", stock - 1)
except redis.ResponseError as error:
    raise SystemExit(f"not sold: {error}")  # STALE: the lease passed on, nothing changed
finally:
    with contextlib.suppress(redis.ResponseError):
        shop.execute_command("RELEASE", sku, token)
