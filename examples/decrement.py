# SPDX-License-Identifier: Apache-2.0
# Sells one piece of sku:42, with the package for Python.
import stockade

try:
    with stockade.connect("stockade://127.0.0.1:7379") as shop:
        with shop.lease("sku:42", ttl=30, wait=10) as lease:
            # prices, payment, a pause: whatever takes its time happens here
            print("sold, left:", lease.take(1))
except stockade.SoldOut:
    raise SystemExit("sold out")
except stockade.Held:
    raise SystemExit("busy: others are selling it")
except stockade.Stale:
    raise SystemExit("not sold: the lease passed on, and nothing changed")
