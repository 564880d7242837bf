# SPDX-License-Identifier: Apache-2.0
"""Each table of states allows the steps that are drawn at the top of its file, and no others."""

import re

import pytest

from harness.limits import REPO

pytestmark = pytest.mark.interpreted

TABLE = re.compile(r"^static const struct state \w+\[\] = \{\n(.*?)^\};", re.M | re.S)
ROW = re.compile(r'\[\w+\] = \{"(\w+)",(.*?)\}', re.S)
SOURCES = [path for folder in ("fence", "proxy", "store") for path in (REPO / folder).rglob("*.c")
           if TABLE.search(path.read_text())]


def steps_of_table(source):
    rows = ROW.findall(TABLE.search(source)[1])
    assert len({name for name, _ in rows}) == len(rows)
    return {(name, to) for name, steps in rows for to in re.findall(r"\bTO\((\w+)\)", steps)}


def steps_of_drawing(source):
    """A line has states with arrows in between, maybe several with commas, then what it means."""
    name = r"[A-Z][A-Z_]+\b"
    names = rf"{name}(?:, {name})*"
    steps = set()
    for way in re.findall(rf"{names}(?: ──▶ {names})+", source[:source.index("*/\n#include")]):
        places = [place.split(", ") for place in way.split(" ──▶ ")]
        for here, there in zip(places, places[1:]):
            steps |= {(one, other) for one in here for other in there}
    return steps


def test_there_are_tables():
    assert "acquire.c" in {path.name for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_table_allows_what_is_drawn(path):
    source = path.read_text()
    assert steps_of_table(source) == steps_of_drawing(source)
