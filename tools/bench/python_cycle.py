#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How fast is a lease cycle through the Python package, beside the same three commands sent by hand
through redis-py? Rounds of each take turns. Prints as JSON the medians of the rounds' ratios: to
commands with the IDs that the package sends, and to bare ones.

    PYTHONPATH=proxy/client/python tools/bench/python_cycle.py [URI [SECONDS]]
"""
import json
import statistics
import sys
import time
import uuid
from urllib.parse import urlsplit

import redis
import stockade

ROUND_CYCLES, KEY = 50, "bench:python"


def main(uri="stockade://127.0.0.1:7379", seconds="10"):
    address = urlsplit(uri)
    hand = redis.Redis(address.hostname, address.port or 7379, decode_responses=True)
    shop = stockade.connect(uri)

    def by_hand_with_ids():
        token, _ = hand.execute_command("ACQUIRE", KEY, 30000, "ID", uuid.uuid4().hex)
        hand.execute_command("FENCED", token, "ID", uuid.uuid4().hex, "INCRBY", KEY, 1)
        hand.execute_command("RELEASE", KEY, token)

    def by_hand():
        token, _ = hand.execute_command("ACQUIRE", KEY, 30000)
        hand.execute_command("FENCED", token, "INCRBY", KEY, 1)
        hand.execute_command("RELEASE", KEY, token)

    def by_package():
        with shop.lease(KEY) as lease:
            lease.put(1)

    def seconds_of(cycle):
        begun = time.monotonic()
        for _ in range(ROUND_CYCLES):
            cycle()
        return time.monotonic() - begun

    ratios, bare, end = [], [], time.monotonic() + float(seconds)
    while not ratios or time.monotonic() < end:
        package = seconds_of(by_package)
        ratios.append(seconds_of(by_hand_with_ids) / package)
        bare.append(seconds_of(by_hand) / package)
    print(json.dumps({"rounds": len(ratios), "ratio": round(statistics.median(ratios), 3),
                      "ratio_to_bare": round(statistics.median(bare), 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
