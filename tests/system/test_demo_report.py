# SPDX-License-Identifier: Apache-2.0
"""The page that `stockade demo --report` writes: its data is the table's; nothing is fetched."""

import collections
import re
import subprocess
import xml.etree.ElementTree

import pytest

from harness.demo import baskets, table
from harness.limits import HANG_SECONDS, REPO, patience
from harness.programs import run_js
from harness.report import (LOCKED, LOST, PAUSED, REFUSED, SOLD, STALE, WOKEN, WRITTEN, of_kind,
                            report)
from harness.tool import Tool

pytestmark = pytest.mark.xdist_group("demo_report")  # they look at one page

EVENTS_MAX = 65536
PICTURE_MAX = 150_000


def pieces(way):
    return sum(event.value for event in of_kind(way, SOLD))


def expect_sound(way):
    """Times rise, and each pause has its end."""
    times = [event.at for event in way["events"]]
    assert times == sorted(times) and times[0] == 0
    woken = {}
    for event in way["events"]:
        if event.kind == PAUSED:
            assert event.who not in woken
            woken[event.who] = event.at
        elif event.kind == WOKEN:
            assert event.at - woken.pop(event.who) > 300_000
    assert woken == {}


@pytest.fixture(scope="module")
def sale(tmp_path_factory):
    """A page, and what was printed beside it."""
    folder = tmp_path_factory.mktemp("report")
    page = folder / "oversell.html"
    shown = Tool(folder).output("demo", "oversell", "--report", page, "--stock", 50, "--stops", 3,
                                "--contender", "redis-lock", "--contender", "version",
                                "--contender", "stockade", "--contender", "redis-py-stockade")
    assert f"to be looked at in a browser: {page}" in shown
    return page, shown


def test_the_page_of_the_flash_sale_holds_what_the_table_says(sale):
    page, shown = sale
    rows = table(shown)
    ways = {way["title"]: way for way in report(page)["ways"]}
    assert list(ways) == list(rows)
    for title, row in rows.items():
        way = ways[title]
        expect_sound(way)
        refused, through = len(of_kind(way, REFUSED)), len(of_kind(way, STALE))
        assert (pieces(way), refused + through, refused) == (row.sold, row.tried, row.refused)
        assert pieces(way) - (50 - row.left) == row.oversold == way["oversold"]
        assert of_kind(way, WRITTEN)[-1].value == row.left == way["left"]
        assert len(of_kind(way, PAUSED)) == 3 and way["dropped"] == 0
        assert way["right"] == (row.oversold == 0)
    tokens = [event.value for event in of_kind(ways["Stockade"], LOCKED)]
    assert len(set(tokens)) == len(tokens) and all(tokens)


def test_the_page_says_what_the_terminal_says_under_its_table(sale):
    page, shown = sale
    under = shown.partition("oversold: ")
    said = " ".join("".join(under[1:]).partition("Stockade commits every grant")[0].split())
    opening = " ".join(re.findall("<p>(.*?)</p>", run_js("report_texts.js", page)["opening"]))
    assert "better choice where they fit" in said and said.strip() in opening


def test_the_page_of_the_baskets_holds_what_the_table_says(tool, tmp_path):
    page = tmp_path / "basket.html"
    rows = baskets(tool.output("demo", "basket", "--report", page))
    for way in report(page)["ways"]:
        row = rows[way["title"]]
        expect_sound(way)
        refused, through = len(of_kind(way, REFUSED)), len(of_kind(way, STALE))
        assert (len(of_kind(way, SOLD)), pieces(way)) == (row.baskets, row.pieces)
        assert (refused + through, refused) == (row.stale, row.refused)
        assert len(of_kind(way, LOST)) == 6
        last = {event.sku: event.value for event in of_kind(way, WRITTEN)}
        # Events are noted when replies come, so the lowest is what the stock fell to.
        lowest = {sku: min(event.value for event in of_kind(way, WRITTEN) if event.sku == sku)
                  for sku in last}
        assert sum(max(0, -stock) for stock in lowest.values()) == row.oversold
        assert sum(lowest.values()) + 20 * (8 - len(lowest)) == row.left


def test_nothing_is_fetched(sale):
    text = sale[0].read_text()
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:)|url\((?!#)|@import|fetch\(', text)
    assert set(re.findall(r"https?://[\w.]*", text)) == {"http://www.w3.org"}, "a namespace"


def test_a_picture_is_made_of_it(sale):
    page, _ = sale
    done = subprocess.run(["node", REPO / "tools/report/picture.js", page, "Redis lock",
                           "Stockade"], capture_output=True, timeout=patience(HANG_SECONDS))
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout) < PICTURE_MAX
    picture = xml.etree.ElementTree.fromstring(done.stdout)
    shapes = collections.Counter(
        (shape.get("class"), i) for i, part in enumerate(picture.findall("{*}svg"))
        for shape in part.iter() for _ in range((shape.get("d") or "").count("M")))
    through, refused = ([event for event in report(page)["ways"] if event["title"] == title][0]
                        for title in ("Redis lock", "Stockade"))
    assert shapes["through", 0] == len(of_kind(through, STALE)) > 0 == shapes["refused", 0]
    assert shapes["refused", 1] == len(of_kind(refused, REFUSED)) > 0 == shapes["through", 1]
    assert shapes["pause", 0] == shapes["pause", 1] == 3
    assert shapes["below", 0] > 0 == shapes["below", 1]


def test_events_beyond_the_bound_are_counted(tool, tmp_path):
    page = tmp_path / "big.html"
    shown = tool.output("demo", "oversell", "--report", page, "--contender", "decrement", "--work",
                        0, "--stock", 23000, "--stops", 0)
    [way] = report(page)["ways"]
    assert table(shown)["atomic decrement"].sold == way["pieces"] == 23000
    assert len(way["events"]) == EVENTS_MAX and way["dropped"] > 3 * 23000 - EVENTS_MAX


@pytest.mark.parametrize("path, said", [("/nowhere/x.html", "No such file or directory"),
                                        ("/dev/full", "No space left on device")])
def test_a_report_that_cannot_be_written_is_a_failure(tool, path, said):
    done = tool.run("demo", "oversell", "--contender", "decrement", "--stock", 5, "--stops", 0,
                    "--report", path)
    assert done.returncode == 1
    assert f"cannot write {path}: {said}" in done.stderr
    assert ("sold" in done.stdout) == (path == "/dev/full"), "the first is noticed before a sale"
    tool.expect_nothing_left()


@pytest.mark.page
def test_in_a_browser_each_stop_tells_its_story(sale):
    page, _ = sale
    seen = run_js("report_page.js", page, timeout=60)
    assert seen["errors"] == [] and seen["requests"] == [page.as_uri()]
    assert seen["phone"] == 375 and seen["paper"] <= 700 and seen["drawn"] <= 700
    assert seen["zoomed"] > 2000
    stopped = {way["title"]: of_kind(way, PAUSED) for way in report(page)["ways"]}
    for title, said in (("Redis lock", "got through: the stock was set to "),
                        ("Stockade", "was refused: nothing changed.")):
        stories = seen["stories"][title]
        assert len(stories) == len(stopped[title]) == 3
        for story in stories:
            stop = re.search(r"Buyer (\d+) .* was stopped at ([\d.]+) s for (\d+) ms\.", story)
            assert (int(stop[1]) - 1, float(stop[2])) in [
                (event.who, round(event.at / 1e6, 3)) for event in stopped[title]]
            assert int(stop[3]) > 300 and re.search(r"\d+ ms too late and " + said, story)
    assert seen["focused"] == "Redis lock: " + seen["stories"]["Redis lock"][0]
    assert seen["next"].startswith("Redis lock: Buyer ") and seen["next"] != seen["focused"]
    assert seen["hidden"]
    assert seen["hovered"] == "redis-py, Stockade: " + seen["stories"]["redis-py, Stockade"][-1]
