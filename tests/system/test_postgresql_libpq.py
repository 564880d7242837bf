# SPDX-License-Identifier: Apache-2.0
"""Calls of libpq that go wrong, in every operation on the store in PostgreSQL, by
tests/unit/store/postgresql_refusals_test.c, which wants a server. RUNS= and SEED= say how many
places are tried, and which; the slow tests try them all."""

import os
import re
import subprocess

import pytest

from harness.limits import BUILD, REPO, patience

pytestmark = pytest.mark.xdist_group("postgresql_libpq")

SOURCE = (REPO / "tests/unit/store/postgresql_refusals_test.c").read_text(encoding="utf-8")
SWEPT = re.findall(r'\{(?:\.name = )?"([a-zA-Z\' ]+)",', SOURCE)
CONNECTING = [operation for operation in SWEPT if operation.endswith("on a new connection")]
OPERATIONS = [operation for operation in SWEPT if operation not in (*CONNECTING, "any write",
                                                                    "any read", "keep")]


def name(operation):
    return operation.replace(" ", "-")


def sweep(database, seconds, **settings):
    done = subprocess.run(
        [BUILD / "tests/unit/store/postgresql_refusals_test"], capture_output=True, text=True,
        check=False, timeout=patience(seconds),
        env={**settings, **os.environ, "STOCKADE_TEST_POSTGRESQL": database.uri,
             "CMOCKA_MESSAGE_OUTPUT": "stdout"})
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "[  PASSED  ] 2 test" in done.stdout + done.stderr
    print(done.stdout)


def test_each_operation_of_a_store_is_swept():
    """Each function of the store's table is called by one of those that are swept."""
    table = re.search(r"struct store_txn_impl \{(.*?)\n\};",
                      (REPO / "store/txn.h").read_text(encoding="utf-8"), re.S)[1]
    functions = set(re.findall(r"\(\*(\w+)\)\(struct store_txn", table))
    assert len(functions) > 35 and len(OPERATIONS) > 25 and len(CONNECTING) == 2
    assert functions - set(re.findall(r"\btxn_(\w+)\(", SOURCE)) == {
        "now_ms",      # asks nobody
        "string_of", "fence_make"}  # are NULL here


def test_a_call_of_libpq_that_goes_wrong_costs_an_answer_at_most(database):
    sweep(database, 60, RUNS="40")


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_whatever_call_of_libpq_goes_wrong_the_store_goes_on(database, operation):
    sweep(database, 300, ONLY=operation, EVERY="1")


@pytest.mark.slow
@pytest.mark.parametrize("operation", CONNECTING, ids=name)
def test_whatever_call_of_libpq_goes_wrong_on_the_way_to_a_connection_the_store_goes_on(
        database, operation):
    sweep(database, 800, ONLY=operation, EVERY="5")
