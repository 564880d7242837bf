# SPDX-License-Identifier: Apache-2.0
"""What the tests themselves do where the machine stood still: harness/late.py."""

import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from harness.limits import REPO

HEAD = """
import sys
import time
import pytest
from harness.limits import Seconds

tries = []

def stand_still():
    # Nothing else of this process runs: the loop keeps the interpreter to itself.
    sys.setswitchinterval(10)
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        pass
    sys.setswitchinterval(0.005)

@pytest.fixture
def fresh():
    fixture = []
    yield fixture
    fixture.append("used up")

def test_it(fresh):
    assert fresh == []
    fresh.append(1)
    tries.append(1)
    seconds = Seconds(len(tries))
    """


@pytest.mark.parametrize("body, passed, tries", [
    ("assert Seconds(0.1) < 1", True, 1),
    ("assert seconds < 2", True, 1),
    ("assert Seconds(4 - seconds) < 2", True, 3),  # late, late, in time
    ("assert Seconds(9 - seconds) < 2", False, 5),  # never in time
    ("assert 1 < seconds", False, 1),  # early
    ("assert False", False, 1),  # wrong
    ("assert Seconds(0.1) < 1 and False", False, 1),
    ("assert Seconds(4 - seconds) < 2 or seconds == 1", True, 1),  # late, and that is good
    ("stand_still(); assert seconds == 2", True, 2),
    ("stand_still(); assert False", False, 5),
    ("len(tries) < 2 and stand_still(); assert False", False, 2),
])
def test_what_was_late_is_tried_again_and_nothing_else(tmp_path, body, passed, tries):
    script, report = tmp_path / "test_it.py", tmp_path / "report.xml"
    script.write_text(HEAD + body + "\n")
    (tmp_path / "conftest.py").write_text("from harness.late import pytest_runtest_protocol\n")
    done = subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                           f"--junitxml={report}", script], cwd=tmp_path, check=False,
                          env={"PYTHONPATH": str(REPO / "tests/system"), "PATH": "/usr/bin:/bin"},
                          stdout=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode == 0) == passed, done.stdout
    case, = ElementTree.parse(report).iter("testcase")
    assert len([p for p in case.iter("property") if p.get("name") == "late"]) == tries - 1
    assert done.stdout.count("1 passed" if passed else "1 failed") == 1
