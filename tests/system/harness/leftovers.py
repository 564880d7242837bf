# SPDX-License-Identifier: Apache-2.0
"""What a test leaves in a store in PostgreSQL: nothing that `stockade check` would report, such as
receipts that no sweep would ever remove. The rules are the program's own, read from its source, so
that a new one counts here, too."""

import re

from harness.limits import REPO

RULES = REPO / "store/postgresql/check.c"
DEFINES = REPO / "store/check.h"
KINDS = ("fence", "value", "receipt")
_PIECE = r'(?:"(?:[^"\\]|\\.)*"|CHECK_TOKEN_MAX)'
_RULE = re.compile(rf'\{{"({"|".join(KINDS)})",\s*((?:{_PIECE}\s*)+)\}}')


def rules():
    """The statements: each gives what it is about, and what is wrong with it."""
    source = RULES.read_text(encoding="utf-8")
    token_max = re.search(r'#define CHECK_TOKEN_MAX "(\d+)"', DEFINES.read_text("utf-8"))[1]
    found = _RULE.findall(source)
    assert {kind for kind, _ in found} == set(KINDS) and len(found) > 12, "the rules look otherwise"
    return ["".join(token_max if piece == "CHECK_TOKEN_MAX" else piece[1:-1]
                    for piece in re.findall(_PIECE, text)) for _, text in found]


_FINDINGS = " UNION ALL ".join(f"SELECT of::text, what FROM ({rule}) AS found(of, what)"
                               for rule in rules())


def findings(database):
    """In a store whose daemons have ended; nothing, where none was made."""
    if database.sql("SELECT to_regclass('stockade.resource')") == [(None,)]:
        return []
    return [f"{of}: {what}" for of, what in database.sql(_FINDINGS)]
