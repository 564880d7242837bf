# SPDX-License-Identifier: Apache-2.0
"""Every command in the README is run, as written. harness/readme.py says how blocks are marked."""

import re

import pytest

from harness.limits import REPO
from harness.readme import RUNNERS, dialogue, matches, parse, run_block

README = REPO / "README.md"
BLOCKS = parse(README.read_text()) if README.exists() else []
TESTED = [pytest.param(block, id=block.name,
                       marks=[pytest.mark.slow] if "slow" in block.options else [])
          for block in BLOCKS if block.action == "test"]
SAMPLE = """\
Text.

<!-- test: up background -->
```sh
stockaded --listen 127.0.0.1:7379
```

<!-- test: session with=up -->
```console
127.0.0.1:7379> ACQUIRE r 60000
1) (integer) 1
2) (integer) ...
$ redis-cli -p 7379 PING
PONG
```

<!-- not run: a picture -->
```text
o--o
```

```python
unmarked()
```
"""


def test_the_readme_is_there_and_has_commands():
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS, ids=[f"line {block.line}" for block in BLOCKS])
def test_every_block_is_run_or_says_why_not(block):
    assert block.action, f"README.md:{block.line}: neither 'test:' nor 'not run:' before the block"
    if block.action == "test" and "file" not in block.options:
        assert block.language in RUNNERS, f"README.md:{block.line}: what is {block.language!r}?"


def test_names_of_blocks_are_unique_and_those_referred_to_exist():
    names = [block.name for block in BLOCKS if block.name]
    assert len(names) == len(set(names))
    for block in BLOCKS:
        for name in filter(None, block.options.get("with", "").split(",")):
            assert name in names, f"README.md:{block.line}: no block is called {name}"


@pytest.mark.parametrize("block", TESTED)
def test_block(block, tmp_path):
    run_block(block, BLOCKS, tmp_path)


FEATURES = README.read_text().partition("\n### What a lock service should do\n")[2]
FEATURES = [row for row in FEATURES.partition("\n## ")[0].splitlines() if row.startswith("| ")]


def test_the_table_of_features_has_the_ones_that_people_know():
    names = " ".join(row.split("|")[1].lower() for row in FEATURES)
    for name in ("try", "wait for", "first come", "herd", "enter again", "keep alive",
                 "only the holder", "force", "who holds", "several", "hear", "connection"):
        assert name in names


@pytest.mark.parametrize("row", FEATURES[1:], ids=lambda row: row.split("|")[1].strip())
def test_the_test_that_a_feature_names_exists(row):
    file, _, name = row.split("|")[-2].strip().strip("`").partition("::")
    source = (REPO / "tests/system" / file).read_text()
    assert re.search(rf"^def {name}\(", source, re.M), f"{file} has no {name}"


def test_the_runner_runs_a_good_page(tmp_path):
    blocks = parse(SAMPLE)
    assert [block.action for block in blocks] == ["test", "test", "not run", None]
    run_block(blocks[1], blocks, tmp_path)


@pytest.mark.parametrize("good, bad", [
    ("PONG", "PING"), ("(integer) 1", "(integer) 7"), ("ACQUIRE r", "ACQUIRE"),
    ("stockaded --listen", "stockaded --nosuch")])
def test_the_runner_refuses_a_page_whose_output_differs(tmp_path, good, bad):
    blocks = parse(SAMPLE.replace(good, bad, 1))
    with pytest.raises(AssertionError):
        run_block(blocks[1], blocks, tmp_path)


@pytest.mark.parametrize("language, text", [
    ("sh", "false\ntrue"), ("python", "raise SystemExit(1)"), ("c", "int main(void) { return 1; }"),
    ("c", "int main(void) { return nosuch; }")])
def test_the_runner_refuses_a_block_that_fails(tmp_path, language, text):
    block, = parse(f"<!-- test: x -->\n```{language}\n{text}\n```\n")
    with pytest.raises(AssertionError):
        run_block(block, [block], tmp_path)


def test_dots_stand_for_anything_and_nothing_else_does():
    assert matches("a ... c", "a bb c\n") and matches("a\n...\nz", "a\nb\nc\nz")
    assert not matches("a.c", "abc") and not matches("a", "a b")
    assert dialogue("$ echo\nx\n\ny\n$ z\n") == [("$ ", "echo", "x\n\ny"), ("$ ", "z", "")]
