# SPDX-License-Identifier: Apache-2.0
"""What `make tidy` finds by looking at C itself: braces around a single statement."""

import importlib.util
from importlib.machinery import SourceFileLoader

import pytest

from harness.limits import REPO

pytestmark = pytest.mark.interpreted

LOADER = SourceFileLoader("tidy", str(REPO / "tools/tidy"))
tidy = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", LOADER))
LOADER.exec_module(tidy)

NEEDLESS = [
    "if (a) { b(); }",
    "if (a) { b(\n\";}\", '{'); } else { c(); }",
    "if (a) { b(); } else if (c) { d(); } else { e(); }",
    "for (;;) { if (a) { b(); c(); } else { d(); } }",
    "while (a) { switch (b) { case 1: c(); d(); } }",
    "HASH_ITER(hh, all, at, next) { b(at); }",
    "do { if (a) { b(); } } while (c);",
    "if (a) { b = (struct c){.d = 1}; }",
]
NEEDED = [
    "if (a) { b(); c(); }",
    "if (a) { b(); } else { c(); d(); }",
    "if (a) { if (b) c(); } else { d(); }",
    "if (a) { for (;;) if (b) c(); } else { d(); }",
    "if (a) for (;;) { if (b) c(); } else d();",
    "if (a) { /* why */\n/* it is so */\nb(); }",
    "if (a) {\n#ifdef X\nb();\n#endif\n}",
    "do { b(); } while (c);",
    "for (;;) { }",
]
MIXED = [
    "if (a) { b(); c(); } else d();",
    "if (a) b(); else { c(); d(); }",
    "if (a) b(); else if (c) d(); else { e(); f(); }",
]


def found(code):
    return [said for said, _ in tidy.Statements("void f(void)\n{\n" + code + "\n}\n").odd_braces()]


@pytest.mark.parametrize("code", NEEDLESS)
def test_braces_around_a_single_statement_are_found(code):
    assert tidy.NEEDLESS in found(code)


@pytest.mark.parametrize("code", NEEDED)
def test_braces_that_are_needed_stay(code):
    assert found(code) == []


@pytest.mark.parametrize("code", MIXED)
def test_where_one_branch_has_braces_all_have(code):
    assert found(code) == ["braces around one branch and not another"]
