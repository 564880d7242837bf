# SPDX-License-Identifier: Apache-2.0
"""The pages for users: every command on them is run, as written, and what they point to exists.
harness/pages.py says how blocks are marked."""

import contextlib
import pathlib
import re
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, REPO, patience
from harness.pages import RUNNERS, dialogue, matches, parse, run_page

pytestmark = pytest.mark.interpreted

PAGES = ["README.md", "proxy/COMMANDS.md", "examples/README.md", "proxy/client/LIBRARY.md",
         "proxy/client/python/README.md", "proxy/client/node/README.md", "proxy/client/TESTING.md",
         "tools/COMMAND_LINE.md", "proxy/LOCK_KEYS.md", "store/SQL.md",
         "store/GUARDS_POSTGRESQL.md", "store/OTHER_DATABASES.md", "fence/lease/SERVICES.md",
         "proxy/server/OPERATIONS.md", "tools/bench/README.md"]
TEXTS = {page: (REPO / page).read_text() for page in PAGES}
BLOCKS = {page: parse(text) for page, text in TEXTS.items()}
EACH_BLOCK = [pytest.param(page, block, id=f"{page}:{block.line}")
              for page, blocks in BLOCKS.items() for block in blocks]
LINKS = [(page, link) for page, text in TEXTS.items()
         for link in sorted(set(re.findall(r"\]\(([^)\s]+)\)", text)))
         if not link.startswith("https:")]
SAMPLE = """\
Text.

<!-- test: up background -->
```sh
stockaded --listen 127.0.0.1:7379
```

<!-- test: session -->
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


def anchors(text):
    """The names by which GitHub lets one link to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page, block", EACH_BLOCK)
def test_every_block_is_run_or_says_why_not(page, block):
    assert block.action, "neither 'test:' nor 'not run:' before the block"
    if block.action == "test" and "file" not in block.options:
        assert block.language in RUNNERS, f"what is {block.language!r}?"


@pytest.mark.parametrize("page", PAGES)
def test_names_of_blocks_are_unique(page):
    names = [block.name for block in BLOCKS[page] if block.name]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("page", [page for page in PAGES
                                  if any(block.action == "test" for block in BLOCKS[page])])
def test_the_commands_work_in_the_order_in_which_they_stand(page, tmp_path):
    run_page(BLOCKS[page], tmp_path)


@pytest.mark.slow
def test_who_reads_one_page_after_the_other_may_stay_in_the_folder_and_keep_the_daemon(tmp_path):
    # A package's page goes with the package, and begins with a store of its own.
    pages = [page for page in BLOCKS if not page.startswith(
        ("fence/", "store/OTHER", "store/GUARDS", "proxy/client/python/", "proxy/client/node/"))]
    blocks = [block for page in pages for block in BLOCKS[page]
              if page == "README.md" or block.name != "start"]
    run_page(blocks, tmp_path)


@pytest.mark.parametrize("page, link", LINKS)
def test_what_a_page_links_to_exists(page, link):
    path, _, anchor = link.partition("#")
    target = (REPO / page).parent / path if path else REPO / page
    assert target.exists()
    if anchor:
        assert anchor in anchors(target.read_text())


def test_the_readme_leads_to_every_page_in_the_order_of_these_tests():
    listed = re.findall(r"^\| \[(\S+)\]\(", TEXTS["README.md"], re.M)
    assert [page for page in listed if page in PAGES] == PAGES[1:]


def test_the_readme_is_short_enough_to_be_read():
    assert len(TEXTS["README.md"].splitlines()) < 300


@pytest.mark.parametrize("words", ["fencing token", "distributed lock", "PostgreSQL",
                                   "Do you need"])
def test_the_readme_begins_with_the_words_that_people_search(words):
    assert words in TEXTS["README.md"].partition("\n## ")[0].replace("\n", " ")


def test_npm_is_given_a_packed_file():
    # A folder it would link, at the latest when the next package is installed.
    ways = [way for text in TEXTS.values()
            for way in re.findall(r"npm install (.*proxy/client/node)", text)]
    assert len(ways) == 3 and all(way.startswith("$(npm pack --silent ") for way in ways)


def test_the_line_to_wait_for_is_told_as_the_daemon_prints_it():
    told = [between for text in TEXTS.values()
            for between in re.findall(r"stockaded ready(.*?)listen=", text)]
    assert len(told) == 2 and set(told) == {": "}


# The runbook.

RUNBOOK = TEXTS["proxy/server/OPERATIONS.md"].partition("\n## When something is wrong\n")[2]
RUNBOOK = RUNBOOK.partition("\n## ")[0]
ALERTS = re.findall(r"alert: (\w+)", (REPO / "tools/monitoring/alerts.yml").read_text())
CONDITIONS = re.findall(r'^    \{"(\w+)", (?:true|false), \w+\}',
                        (REPO / "proxy/engine/conditions.c").read_text(), re.M)
CODES = ["STALE", "UNKNOWN", "NOTOKEN", "BUSY", "LEASEDOWN", "STORE", "GUARDED", "DEADLOCK"]


def test_there_are_alerts_and_conditions():
    assert len(ALERTS) > 10 and len(CONDITIONS) > 10


@pytest.mark.parametrize("symptom", ALERTS + CONDITIONS + CODES)
def test_the_runbook_has_each_alert_each_condition_and_each_error(symptom):
    symptoms = [row.split("|")[1] for row in RUNBOOK.splitlines() if row.startswith("| ")]
    assert any(f"`{symptom}`" in words for words in symptoms)


def test_the_runbooks_commands_exist():
    commands = set(re.findall(r"`stockade ((?:audit |guard )?[a-z]+)", RUNBOOK))
    assert len(commands) > 5
    for command in commands:
        subprocess.run([BUILD / "stockade", *command.split(), "--help"], check=True,
                       capture_output=True, timeout=patience(HANG_SECONDS))


# The package.

def packaged():
    """{page: where it lies in the package `stockade`}, below share/doc/stockade."""
    doc, places = "usr/share/doc/stockade", {}
    for line in (REPO / "tools/debian/stockade.install").read_text().splitlines():
        source, _, target = line.partition(" ")
        if target.startswith(doc):
            for path in REPO.glob(source):
                places[path] = pathlib.Path("/", target, path.name)
    return places


def test_the_package_has_the_pages_where_their_links_lead():
    places = packaged()
    assert {REPO / page for page in PAGES} - set(places) == {REPO / "tools/bench/README.md"}
    for path, place in places.items():
        assert place == pathlib.Path("/usr/share/doc/stockade") / path.relative_to(REPO)


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_the_package_has_what_prometheus_and_grafana_read(name):
    install = (REPO / "tools/debian/stockade.install").read_text().splitlines()
    assert f"tools/monitoring/{name} usr/share/stockade/monitoring" in install
    assert (REPO / "tools/monitoring" / name).exists()
    assert "/usr/share/stockade/monitoring" in TEXTS["proxy/server/OPERATIONS.md"]


FEATURES = TEXTS["proxy/COMMANDS.md"].partition("\n## What a lock service should do\n")[2]
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
    run_page(blocks, tmp_path)


@pytest.mark.parametrize("good, bad", [
    ("PONG", "PING"), ("(integer) 1", "(integer) 7"), ("ACQUIRE r", "ACQUIRE"),
    ("stockaded --listen", "stockaded --nosuch")])
def test_the_runner_refuses_a_page_whose_output_differs(tmp_path, good, bad):
    with pytest.raises(AssertionError):
        run_page(parse(SAMPLE.replace(good, bad, 1)), tmp_path)


def test_how_long_an_answer_took_is_no_part_of_what_a_page_shows(tmp_path):
    held = """<!-- test: held -->
```console
127.0.0.1:7379> ACQUIRE r 60000 WAIT 700
(nil)
```
"""
    run_page([*parse(SAMPLE), *parse(held)], tmp_path)


@pytest.mark.parametrize("language, text", [
    ("sh", "false\ntrue"), ("python", "raise SystemExit(1)"), ("c", "int main(void) { return 1; }"),
    ("c", "int main(void) { return nosuch; }")])
def test_the_runner_refuses_a_block_that_fails(tmp_path, language, text):
    with pytest.raises(AssertionError):
        run_page(parse(f"<!-- test: x -->\n```{language}\n{text}\n```\n"), tmp_path)


def test_a_block_that_is_stopped_makes_room_for_the_next(tmp_path):
    up = "<!-- test: {} background{} -->\n```sh\nstockaded --store sqlite:./{}.db\n```\n"
    for folder, stop in ("stopped", " stop=one"), ("not stopped", ""):
        (tmp_path / folder).mkdir()
        page = parse(up.format("one", "", "a") + up.format("two", stop, "b"))
        with contextlib.nullcontext() if stop else pytest.raises(AssertionError):
            run_page(page, tmp_path / folder)


@pytest.mark.parametrize("heading, anchor", [
    ("First write", "first-write"), ("`ACQUIRE`: what, why?", "acquire-what-why")])
def test_a_heading_has_the_anchor_that_github_gives_it(heading, anchor):
    assert anchors(f"# x\n\n## {heading}\n\n```sh\n# no heading\n```\n") == {"x", anchor}


def test_dots_stand_for_anything_and_nothing_else_does():
    assert matches("a ... c", "a bb c\n") and matches("a\n...\nz", "a\nb\nc\nz")
    assert not matches("a.c", "abc") and not matches("a", "a b")
    assert dialogue("$ echo\nx\n\ny\n$ z\n") == [("$ ", "echo", "x\n\ny"), ("$ ", "z", "")]
