# SPDX-License-Identifier: Apache-2.0
"""Each package keeps a list of the commands that change nothing: they are sent again without an ID.
All three are the daemon's own."""

import re

from harness.limits import REPO
from harness.package import stockade


def listed(path, begins, ends):
    text = (REPO / "proxy/client" / path).read_text()
    return set(re.findall(r"[\"']([A-Z]+)[\"']", text.partition(begins)[2].partition(ends)[0]))


def test_the_packages_reads_are_those_of_the_daemon(local):
    reads = {name.decode().upper() for name, _, flags, *_ in local.client()("COMMAND")
             if "readonly" in map(str, flags)}
    assert set(stockade._flow.READS) == reads
    assert listed("node/lib/words.js", "const READS", ";") == reads
    assert listed("java/io/stockade/Stockade.java", "READS =", ";") == reads
