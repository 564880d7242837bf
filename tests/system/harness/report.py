# SPDX-License-Identifier: Apache-2.0
"""The data in the page that `--report` writes."""

import collections
import json
import re

from harness.programs import run_js

LOCKED, READ, PAUSED, WOKEN, STALE, WRITTEN, REFUSED, SOLD, LOST, UNLOCKED = range(1, 11)

Event = collections.namedtuple("Event", "at who kind sku value")


def report(path):
    """The data of a page, of which everything that the page says and draws is whole."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>',
                                path.read_text(), re.S)[1])
    texts = run_js("report_texts.js", path)
    assert len(texts["ways"]) == len(data["ways"]) > 0
    assert all(way["verdict"] in texts["opening"] for way in texts["ways"])
    gap = re.search(r".{0,60}\b(undefined|NaN|null|Infinity)\b.{0,20}", json.dumps(texts))
    assert not gap, f"the page says {gap[0]}"
    for way in data["ways"]:
        way["events"] = [Event(*event) for event in way["events"]]
    return data


def of_kind(way, kind):
    return [event for event in way["events"] if event.kind == kind]
