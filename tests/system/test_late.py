# SPDX-License-Identifier: Apache-2.0
"""What the tests themselves do where the machine stood still: harness/late.py."""

import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest

from harness.limits import REPO, wait_until
from harness.stalls import STALL_S, Stalls

pytestmark = pytest.mark.interpreted

# The stalls are those that the test has, whatever this machine does.
CONFTEST = """
import time
import harness.late
from harness.stalls import Stalls

pytest_plugins = ["harness.late"]
known = Stalls()
harness.late.stalls = lambda: known

def stand_still(seconds=0.6):
    begun = time.monotonic()
    time.sleep(seconds)
    known.seen.append((begun, time.monotonic()))
"""
HEAD = """
import socket
import time
import pytest
from conftest import stand_still
from harness.limits import Late, Stopwatch, Wait, wait_until
from harness.resp import Reader

tries = []

def measure(block):
    with Stopwatch() as watch:
        block()
    return watch.seconds

def still(seconds=1):
    # Once, and never again.
    if tries.count("still") == 0:
        tries.append("still")
        stand_still(seconds)

class Slow:
    # A socket that is read from while something else goes on.
    def __init__(self, sock, during):
        self.sock, self.during = sock, during

    def settimeout(self, seconds):
        self.sock.settimeout(0.4)

    def recv(self, size):
        self.during()
        return self.sock.recv(size)

def reply(during=time.time):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if tries.count("still"):
            theirs.send(b"+OK\\r\\n")
        Reader(Slow(ours, during)).read(0.5)

@pytest.fixture
def fresh():
    fixture = []
    yield fixture
    fixture.append("used up")

@pytest.fixture
def slow_start():
    assert measure(still) < 0.3

@pytest.fixture
def wrong_end():
    yield
    assert False

def test_it(FIXTURES):
    assert fresh == []
    fresh.append(1)
    tries.append(1)
    """


LATE = [
    "assert measure(still) < 0.3",
    "wait_until(lambda: still() or len(tries) > 2, 'it is there', 0.3)",
    "wait = Wait(0.3); still(); wait.check('it is there')",
    "reply(still)",
]
# What the test does: (how often it is tried, whether it passes, its fixtures, its body).
CASES = {f"{why}-{number}": case for why, cases in {
    "an interval that was missed in a stall": [(2, True, "fresh", body) for body in LATE],
    "a wrong value, while the machine stands still": [
        (1, False, "fresh", f"stand_still(); {body}") for body in (
            "assert len(tries) == 2",
            "assert tries.count(1) < 0",
            "raise TimeoutError",
            "assert measure(stand_still) < 9 and len(tries) == 2",
            "wait_until(lambda: True, 'it is there'); assert len(tries) == 2")],
    "a stall outside the interval that was missed": [
        (1, False, "fresh", f"stand_still(); {body}") for body in (
            "assert measure(lambda: time.sleep(1)) < 0.3",
            "wait_until(lambda: False, 'it is there', 0.3)",
            "reply()")],
    "a stall too short for what was missed": [
        (1, False, "fresh", body) for body in (
            "assert measure(lambda: (stand_still(0.2), time.sleep(0.7))) < 0.3",
            "wait_until(lambda: still(0.2), 'it is there', 2)")],
    "late, with a wrong end": [
        (1, False, "wrong_end, fresh", "assert measure(stand_still) < 0.3")],
    "late each time": [(3, False, "fresh", "assert measure(stand_still) < 0.3")],
    "in time": [(1, True, "fresh", "assert 0.1 < measure(stand_still) < 9")],
    "a fixture was late in a stall": [(2, True, "slow_start, fresh", "")],
}.items() for number, case in enumerate(cases)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Of each case, all of which run at once, each in a module of its own: (how often it was tried,
    whether it passed), and why it was tried again."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "stockaded").write_bytes(b"")  # no sanitizer's, so intervals are not stretched
    for number, (_, _, fixtures, body) in enumerate(CASES.values()):
        (folder / f"test_{number}.py").write_text(HEAD.replace("FIXTURES", fixtures) + body + "\n")
    subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                    f"--junitxml={folder}/report.xml", folder], cwd=folder, check=False,
                   env={"PYTHONPATH": str(REPO / "tests/system"), "PATH": "/usr/bin:/bin",
                        "STOCKADE_BUILD": str(folder)}, stdout=subprocess.DEVNULL, timeout=100)
    found = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        why = [p.get("value") for p in case.iter("property") if p.get("name") == "late"]
        passed = case.find("failure") is None and case.find("error") is None
        tries, before, _ = found.get(case.get("classname"), (0, True, []))  # of its fixtures' ends
        found[case.get("classname")] = (max(tries, len(why) + 1), passed and before, why)
    return {name: found[f"test_{number}"] for number, name in enumerate(CASES)}


@pytest.mark.xdist_group("late")  # they look at one run
@pytest.mark.parametrize("name", CASES)
def test_only_what_a_stall_explains_is_tried_again(outcomes, name):
    tries, passed, why = outcomes[name]
    assert (tries, passed) == CASES[name][:2]
    assert all(re.search(r"with a stall of \d\.\d\d s$", one) for one in why)


def test_a_machine_that_stands_still_is_seen():
    stalls = Stalls().watch()
    interval = sys.getswitchinterval()
    begun = time.monotonic()
    sys.setswitchinterval(10)  # nothing else of this process runs, its watch included
    while time.monotonic() < begun + 4 * STALL_S:
        pass
    sys.setswitchinterval(interval)
    ended = time.monotonic()
    wait_until(lambda: stalls.excuse(begun, ended, STALL_S), "the stall is seen")
    since, to = stalls.seen[-1]
    assert to - since >= STALL_S and begun <= to
    assert stalls.excuse(begun - 10, begun - 5, 1) == 0
