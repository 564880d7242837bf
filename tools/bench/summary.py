# SPDX-License-Identifier: Apache-2.0
"""The one table that matters, from results.json into the README:
python3 -m bench.summary RESULTS.json README.md"""

import json
import pathlib
import re
import sys

BEGIN, END = "<!-- speed: written by `make bench-page` -->\n", "<!-- /speed -->\n"
PEERS = {"Redis": ("Redis SET", "Redis GET", "Redis GET and SET", "Redis MULTI", "Redis lock",
                   "Redis lock, asks each 20 ms"),
         "Redis, token checked in Lua": ("Redis, token checked in Lua",
                                         "Redis, lock and token in Lua"),
         "PostgreSQL": ("PostgreSQL", "PostgreSQL, 16 in a transaction"),
         "etcd": ("etcd put", "etcd mutex"),
         "ZooKeeper": ("ZooKeeper set", "ZooKeeper recipe")}
OURS, ON_REDIS = "Stockade", "Stockade on Redis"
ROWS = (
    ("fenced write", "write-1-100000", OURS),
    ("fenced write, pipeline 16", "write-16-100000", OURS),
    ("fenced write, a million keys", "write-1-1000000", OURS),
    ("fenced write, a million keys, pipeline 16", "write-16-1000000", OURS),
    ("bounded decrement, 10,000 keys", "decrement-1", OURS),
    ("transaction of 8 writes", "transaction", OURS),
    ("read", "read-1", OURS),
    ("read, pipeline 16", "read-16", OURS),
    ("80 % reads, 20 % writes", "mixed", OURS),
    ("lease cycle, each its own key", "cycle", OURS),
    ("the same, leases on a Redis", "cycle", ON_REDIS),
    ("lease cycle, all on one key", "cycle-hot", OURS),
)


def ratio(ours, figures, labels):
    for label in labels:
        if label in figures:
            return f"{ours['rate'] / figures[label]['rate']:.2f}"
    return ""


def table(results):
    yield "| 50 clients, 100,000 keys | a second | p99 | " + " | ".join(
        f"to {peer}" for peer in PEERS) + " |"
    yield "|---|--:|--:|" + "--:|" * len(PEERS)
    for title, case, label in ROWS:
        if label not in results.get(case, {}):
            continue
        ours = results[case][label]
        cells = [title, f"{ours['rate']:,.0f}", f"{ours['p99']:.1f} ms",
                 *(ratio(ours, results[case], labels) for labels in PEERS.values())]
        yield "| " + " | ".join(cells) + " |"


def put(readme, results):
    """The text of the README with the table of these results."""
    block = BEGIN + "\n" + "\n".join(table(results)) + "\n\n" + END
    text, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, readme,
                          flags=re.S)
    if count != 1:
        raise ValueError("the README has no place for the table")
    return text


def main():
    results, readme = map(pathlib.Path, sys.argv[1:])
    readme.write_text(put(readme.read_text(), json.loads(results.read_text())["results"]))


if __name__ == "__main__":
    main()
