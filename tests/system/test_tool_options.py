# SPDX-License-Identifier: Apache-2.0
"""The numbers that options of the command line and of the benchmark's programs take: the least and
the most are taken, one below and one above are not, and the answer says which are."""

import re
import subprocess

import pytest

from harness.limits import BUILD, patience
from test_manual import commands, options

SECOND, HOUR, DAY = 1000, 3600 * 1000, 24 * 3600 * 1000
LEAST, MOST = -(1 << 63), (1 << 63) - 1
CREW = (1, 512)
WAIT, TTL, PAUSE = (0, DAY), (10, 60 * SECOND), (1, 600 * SECOND)
LEASE = {"token": (1, MOST), "wait": WAIT}
SALE = {"buyers": CREW, "ttl": TTL, "pause": PAUSE, "work": (0, 60 * SECOND), "stops": (0, 1000),
        "limit": (SECOND, DAY)}
# Of each command, the options that take numbers.
NUMBERS = {
    "stockade lock": {"ttl": (100, DAY), "wait": WAIT, "grace": (0, DAY)},
    "stockade set": LEASE,
    "stockade take": {**LEASE, "min": (LEAST, MOST)},
    "stockade leases": {"count": (1, MOST)},
    "stockade why": {"count": (1, 10000)},
    "stockade top": {"every": (100, HOUR), "count": (1, MOST), "rows": (1, 100000)},
    "stockade demo oversell": {**SALE, "stock": (1, 1000000)},
    "stockade demo basket": {**SALE, "skus": (8, 32), "stock": (1, 1000), "lines": (1, 8),
                             "losses": (0, 1000)},
    "stockade replay": {"opening": (0, 1000), "workers": CREW, "limit": (0, MOST),
                        "pause-every": (0, MOST), "pause": PAUSE, "ttl": TTL},
    "bench-load": {"port": (1, 65535), "clients": (1, 20000), "pipeline": (1, 1000),
                   "keys": (1, 10**9), "ops": (0, 10**10), "time": (1, HOUR), "rate": (0, 10**7),
                   "mix": (0, 100), "seed": (0, 10**9)},
    "bench-sqlite": {"keys": (1, 10**9), "batch": (1, 100000), "time": (1, HOUR)},
    "bench-relay": {"port": (0, 65535), "delay-us": (0, 10**7)},
}
# What may be given so often and no more often, and a word for it.
REPEATED = {"stockade demo oversell": ("contender", "stockade", 10),
            "bench-load": ("command", "GET {key}", 64)}


def complaint(program, *words):
    """What it says of these, and of a last one that is wrong: so it never begins to work."""
    name, *command = program.split()
    done = subprocess.run([BUILD / name, *command, *words, "--none-such"], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=patience(20), check=False)
    assert done.returncode == 2, done
    return done.stderr


def range_of(said, value):
    """(the least, the most) that it says the option takes instead of this; None: it is taken."""
    found = re.search(r"takes (?:a whole number|milliseconds \(or 2s, 5m\)) from (\S+) to (\S+), "
                      f'not "{value}"', said)
    return found and (int(found[1]), int(found[2]))


def programs():
    return [f"stockade {command}" for command in commands()] + [
        name for name in NUMBERS if name.startswith("bench-")]


def test_each_option_that_takes_a_number_is_in_the_table():
    found = {}
    for program in programs():
        for option, (value, _) in options(*program.split()).items():
            taken = value and range_of(complaint(program, f"--{option}", "x"), "x")
            if taken:
                found.setdefault(program, {})[option] = taken
    assert found == NUMBERS


@pytest.mark.parametrize("program", NUMBERS)
def test_the_least_and_the_most_are_taken_and_their_neighbours_are_not(program):
    for option, bounds in NUMBERS[program].items():
        least, most = bounds
        for value in (least, most):
            assert "--none-such is not an option" in complaint(program, f"--{option}={value}")
        for value in (least - 1, most + 1):
            assert range_of(complaint(program, f"--{option}={value}"), value) == bounds


@pytest.mark.parametrize("program", REPEATED)
def test_what_may_be_repeated_has_a_limit(program):
    option, word, most = REPEATED[program]
    words = [f"--{option}", word] * most
    assert "--none-such is not an option" in complaint(program, *words)
    assert f"--{option} is given more than {most} times" in complaint(
        program, *words, f"--{option}", word)
