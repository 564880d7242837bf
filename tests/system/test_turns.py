# SPDX-License-Identifier: Apache-2.0
"""tests/unit/engine/turns_test.c at full size: no command holds the loop."""

import os
import subprocess

import pytest

from harness.limits import BUILD, patience


@pytest.mark.slow
@pytest.mark.alone
def test_no_command_holds_the_loop_at_full_size():
    env = {**os.environ, "STOCKADE_TURNS": "full"}
    done = subprocess.run([BUILD / "tests/unit/engine/turns_test"], env=env, text=True,
                          capture_output=True, timeout=patience(300), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
