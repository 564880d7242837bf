# SPDX-License-Identifier: Apache-2.0
"""The examples sell what there is and no more, and one that was paused writes over nobody's work.
(That they run as the pages show them is for test_user_pages.py.)"""

import re

import pytest

from harness import install
from harness.limits import REPO, patience, wait_until
from harness.pages import Place
from harness.programs import NODE, link_node_modules

pytestmark = pytest.mark.interpreted

RUN = {".py": ["/usr/bin/python3"], ".mjs": NODE, ".sh": ["bash"],
       ".c": ["sh", "-c", 'cc $0 $(pkg-config --cflags --libs stockade) -o $0.out && ./$0.out']}
PAUSE = re.compile(r"^( *)(#|//) prices, payment, a pause.*$", re.M)
PAUSES = {
    ".py": "open('paused', 'w').close()\n    import os, time\n"
           "    while not os.path.exists('go'): time.sleep(0.01)",
    ".mjs": "const fs = await import('node:fs'); fs.writeFileSync('paused', '');\n"
            "  while (!fs.existsSync('go')) await new Promise((r) => setTimeout(r, 10));",
    ".sh": "touch paused; while [ ! -e go ]; do sleep 0.01; done",
    ".c": "int system(const char *);\n"
          "    system(\"touch paused; while [ ! -e go ]; do sleep 0.01; done\");"}
EXAMPLES = sorted(path for path in (REPO / "examples").iterdir() if path.suffix in RUN)
each = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.suffix[1:])


class Shop(Place):
    """A folder with the example in it, beside a daemon on its default port."""

    def __init__(self, folder, example):
        super().__init__(folder)
        self.env = {**self.env, **install.found_by()}
        link_node_modules(folder)
        self.example = example
        self.count = 0
        self.daemon = self.start(["stockaded", "--store", f"sqlite:{folder}/shop.db"], "daemon")
        wait_until(lambda: "stockaded ready:" in self.output("daemon"), "the daemon is up", 10)

    def stockade(self, *words):
        output, status = self.run(["stockade", *words])
        assert status == 0, output
        return output.strip()

    def begin(self, text=None):
        self.count += 1
        name = f"example{self.count}{self.example.suffix}"
        (self.folder / name).write_text(text or self.example.read_text())
        running = self.start([*RUN[self.example.suffix], name], f"run{self.count}")
        return running, f"run{self.count}"

    def end(self, begun):
        running, name = begun
        return running.wait(patience(30)), self.output(name)


@pytest.fixture
def shop(tmp_path, example):
    shop = Shop(tmp_path, example)
    yield shop
    shop.close()


def test_there_is_one_each_for_python_node_the_shell_and_c_in_under_25_lines():
    assert {path.suffix for path in EXAMPLES} == set(RUN)
    assert all(len(path.read_text().splitlines()) < 25 for path in EXAMPLES)


@each
def test_a_page_shows_the_file_as_it_is(example):
    pages = (REPO / "examples/README.md", REPO / "proxy/client/LIBRARY.md")
    assert any(f"\n{example.read_text()}```\n" in page.read_text() for page in pages)


@each
def test_eight_buyers_of_five_pieces_get_five(shop):
    shop.stockade("set", "sku:42", "5")
    ends = [shop.end(begun) for begun in [shop.begin() for _ in range(8)]]
    sold = sorted(output for status, output in ends if status == 0)
    assert [line.strip() for line in sold] == [f"sold, left: {n}" for n in range(5)]
    assert all("sold out" in output for status, output in ends if status != 0)
    assert shop.stockade("get", "sku:42") == "0"
    assert "free" in shop.stockade("lease", "sku:42"), "released, sold or not"


@each
def test_one_that_was_paused_until_its_lease_passed_on_sells_nothing(shop, example):
    shop.stockade("set", "sku:42", "5")
    text, found = PAUSE.subn(lambda match: match[1] + PAUSES[example.suffix], example.read_text())
    assert found == 1
    begun = shop.begin(text)
    wait_until((shop.folder / "paused").exists, "it is between its read and its write", 10)
    shop.stockade("revoke", "sku:42")
    assert shop.stockade("take", "sku:42", "1") == "4"
    (shop.folder / "go").touch()
    status, output = shop.end(begun)
    assert status != 0 and ("STALE" in output or "not sold" in output), output
    assert shop.stockade("get", "sku:42") == "4"


@each
def test_one_that_finds_the_article_taken_says_so(shop, example):
    shop.stockade("set", "sku:42", "5")
    holder = shop.start(["stockade", "lock", "sku:42", "--", "sleep", "60"], "holder")
    wait_until(lambda: "held" in shop.stockade("lease", "sku:42"), "it is held")
    status, output = shop.end(shop.begin(example.read_text().replace("10000", "100")))
    assert status != 0 and "busy" in output
    assert holder.poll() is None and shop.stockade("get", "sku:42") == "5"
