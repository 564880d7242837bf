# SPDX-License-Identifier: Apache-2.0
"""tools/bench-leases runs and finds what does not depend on the machine's speed."""

import re
import subprocess

from harness.limits import BUILD, REPO, patience


def test_bench_leases_measures_each_thing_and_finds_nobody_out_of_turn_or_favoured():
    done = subprocess.run(
        [REPO / "tools/bench-leases", "--clients", "10", "--rounds", "1", "--seconds", "1",
         "--wakes", "20", "--line", "50"], capture_output=True, text=True, timeout=patience(50),
        env={"STOCKADE_BUILD": str(BUILD), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode in (0, 1) and done.stderr == "", done.stderr
    assert len(re.findall(r"^  .*from (?:RELEASE|its reply) .* ms$", done.stdout, re.M)) == 6
    assert "order: 50 waiters, 0 out of turn" in done.stdout
    contended = re.search(r"^  Stockade +[\d,]+ .*? (\d+) +(\d+) +[\d.]+$", done.stdout, re.M)
    fewest, most = map(int, contended.groups())
    assert 0 < fewest and most <= fewest + 2, "served in turns"
    assert re.search(r"^  both +[\d,]+", done.stdout, re.M)
