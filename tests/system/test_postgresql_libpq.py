# SPDX-License-Identifier: Apache-2.0
"""Calls of libpq that go wrong, in every operation on the store in PostgreSQL, by
tests/unit/store/postgresql_refusals_test.c, which wants a server. RUNS= and SEED= say how many
places are tried, and which; the slow tests try them all."""

import os
import subprocess

import pytest

from harness.limits import BUILD, patience

pytestmark = pytest.mark.xdist_group("postgresql_libpq")

OPERATIONS = (
    "acquire a new name", "acquire", "renew", "release", "revoke", "write under a token", "write",
    "a transaction", "change fields", "read a string", "read fields", "list", "read by SQL",
    "write by SQL", "put a guard", "drop a guard", "list guards", "forget receipts",
    "forget resources", "remove all", "keep an audit's head", "back up", "restore")
CONNECTING = ("write on a new connection", "read on a new connection")


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


def test_a_call_of_libpq_that_goes_wrong_costs_an_answer_at_most(database):
    sweep(database, 60, RUNS="50")


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_whatever_call_of_libpq_goes_wrong_the_store_goes_on(database, operation):
    sweep(database, 300, ONLY=operation, EVERY="1")


@pytest.mark.slow
@pytest.mark.parametrize("operation", CONNECTING, ids=name)
def test_whatever_call_of_libpq_goes_wrong_on_the_way_to_a_connection_the_store_goes_on(
        database, operation):
    sweep(database, 800, ONLY=operation, EVERY="5")
