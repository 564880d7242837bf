# SPDX-License-Identifier: Apache-2.0
"""Daemons on a replicated group of PostgreSQL servers, whose primary dies, freezes and is cut off,
again and again. FAILOVERS= says how often at least, SEED= in which way."""

import collections
import os
import pathlib
import sys

import pytest

from harness.limits import BUILD

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from torture import run  # noqa: E402

FAILOVERS = int(os.environ.get("FAILOVERS", "6"))
SEED = int(os.environ.get("SEED", "1"))
ROUND_SECONDS = 45  # so much history can be judged

pytestmark = pytest.mark.slow


def test_failovers_lose_nothing_and_apply_nothing_twice_or_half():
    """Clients take leases, write with and without an ID, sell, and are stopped and killed, as are
    the daemons; their history must have an order in which every reply is right."""
    out = BUILD / "torture"
    out.mkdir(parents=True, exist_ok=True)
    tally, faults, count = run.Tally(out), collections.Counter(), collections.Counter()
    while faults["failover"] < FAILOVERS and not tally.failed:
        number = count["rounds"]
        ops = run.run_round(tally, f"failovers{SEED}-{number}", f"{SEED}/{number}",
                            ("local", "replicated"), ROUND_SECONDS, faults)
        count.update(rounds=1, operations=len(ops), unknown=sum(not op.known for op in ops),
                     writes=sum(op.known and op.error is None and op.op in ("set", "swap", "sell")
                                for op in ops))
        print(f"{faults['failover']} failovers: {dict(count)}", flush=True)
    print(dict(sorted(faults.items())))
    assert tally.failed == 0 and tally.passed > 0, f"histories and drawings: {out}"
