# SPDX-License-Identifier: Apache-2.0
"""The unit test of the store in PostgreSQL, which wants a server."""

import os
import subprocess

import pytest

from harness.limits import BUILD, patience

pytestmark = pytest.mark.xdist_group("postgresql_twin")


@pytest.mark.parametrize("seed, rounds", [
    (1, 25), *(pytest.param(seed, 120, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_the_store_in_postgresql_is_a_twin_of_the_one_in_memory(database, seed, rounds):
    database.damaged = True  # its leases are of sessions that have not been
    done = subprocess.run(
        [BUILD / "tests/unit/store/postgresql_twin_test"], capture_output=True, text=True,
        check=False, timeout=patience(60 + 2 * rounds),
        env={**os.environ, "STOCKADE_TEST_POSTGRESQL": database.uri, "SEED": str(seed),
             "ROUNDS": str(rounds), "CMOCKA_MESSAGE_OUTPUT": "stdout"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ] 1 test" in done.stdout + done.stderr
