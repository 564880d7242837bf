# SPDX-License-Identifier: Apache-2.0
"""The data in the page that `--report` writes."""

import collections
import json
import re

LOCKED, READ, PAUSED, WOKEN, STALE, WRITTEN, REFUSED, SOLD, LOST, UNLOCKED = range(1, 11)

Event = collections.namedtuple("Event", "at who kind sku value")


def report(path):
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>',
                                path.read_text(), re.S)[1])
    for way in data["ways"]:
        way["events"] = [Event(*event) for event in way["events"]]
    return data


def of_kind(way, kind):
    return [event for event in way["events"] if event.kind == kind]
