# SPDX-License-Identifier: Apache-2.0
"""The examples sell what there is and no more, and one that was paused writes over nobody's work.
(That they run as the pages show them is for test_user_pages.py.)"""

import re

import pytest

from harness import install
from harness.limits import HANG_SECONDS, REPO, Wait, patience, wait_until
from harness.pages import Place
from harness.programs import JAVA, NODE, link_node_modules

pytestmark = pytest.mark.interpreted

COMPILE = {".c": "cc example.c $(pkg-config --cflags --libs stockade) -o example",
           ".java": "javac -cp build/stockade.jar example.java"}
RUN = {".py": ["/usr/bin/python3", "example.py"], ".mjs": [*NODE, "example.mjs"],
       ".sh": ["bash", "example.sh"], ".c": ["./example"],
       ".java": [*JAVA, "-cp", "build/stockade.jar:.", "Decrement"]}
WAIT = r"\b10_?000\b|(?<=wait=)10\b"  # ten seconds
IN_VAIN = r"busy|in time|[Uu]nreachable"
PAUSE = re.compile(r"^( *)(#|//) prices, payment, a pause.*$", re.M)
PAUSES = {
    ".py": "open('paused', 'w').close()\nimport os, time\n"
           "while not os.path.exists('go'): time.sleep(0.01)",
    ".mjs": "const fs = await import('node:fs'); fs.writeFileSync('paused', '');\n"
            "while (!fs.existsSync('go')) await new Promise((r) => setTimeout(r, 10));",
    ".java": "new java.io.File(\"paused\").mkdir();\n"
             "while (!new java.io.File(\"go\").exists())\n"
             "    java.util.concurrent.locks.LockSupport.parkNanos(10_000_000);",
    ".sh": "touch paused; while [ ! -e go ]; do sleep 0.01; done",
    ".c": "int system(const char *);\n"
          "system(\"touch paused; while [ ! -e go ]; do sleep 0.01; done\");"}
EXAMPLES = sorted(path for path in (REPO / "examples").iterdir()
                  if path.suffix in RUN and path.stem.lower() == "decrement")
LEADER = REPO / "examples/leader.py"
ROUND = re.compile(r"^( *)time.sleep.*stand still here$", re.M)
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
        wait_until(lambda: "stockaded ready:" in self.output("daemon"), "the daemon is up")

    def stockade(self, *words):
        output, status = self.run(["stockade", *words])
        assert status == 0, output
        return output.strip()

    def write(self, text):
        suffix = self.example.suffix
        (self.folder / f"example{suffix}").write_text(text)
        if suffix in COMPILE:
            output, status = self.run(["sh", "-c", COMPILE[suffix]])
            assert status == 0, output

    def begin(self):
        self.count += 1
        return self.start(RUN[self.example.suffix], f"run{self.count}"), f"run{self.count}"

    def end(self, begun):
        running, name = begun
        return running.wait(patience(HANG_SECONDS)), self.output(name)

    def served(self, begun):
        """Sold, or sold out: who waited in line for as long as an example does, or could not reach
        the daemon in time, comes again."""
        wait = Wait(5 * HANG_SECONDS)
        while True:
            status, output = self.end(begun)
            if status == 0 or not re.search(IN_VAIN, output):
                return status, output
            wait.check(f"it is served, and not {output}")
            begun = self.begin()


@pytest.fixture
def shop(tmp_path, example):
    shop = Shop(tmp_path, example)
    yield shop
    shop.close()


def test_there_is_one_each_for_python_node_java_the_shell_and_c_in_under_25_lines():
    assert {path.suffix for path in EXAMPLES} == set(RUN)
    assert all(len(path.read_text().splitlines()) < 25 for path in EXAMPLES)


@pytest.mark.parametrize("example", [*EXAMPLES, LEADER], ids=lambda path: path.name)
def test_a_page_shows_the_file_as_it_is(example):
    pages = (REPO / "examples/README.md", REPO / "proxy/client/LIBRARY.md")
    assert any(f"\n{example.read_text()}```\n" in page.read_text() for page in pages)


@each
def test_eight_buyers_of_five_pieces_get_five(shop, example):
    shop.write(example.read_text())
    shop.stockade("set", "sku:42", "5")
    ends = [shop.served(begun) for begun in [shop.begin() for _ in range(8)]]
    sold = sorted(output for status, output in ends if status == 0)
    assert [line.strip() for line in sold] == [f"sold, left: {n}" for n in range(5)]
    assert all("sold out" in output for status, output in ends if status != 0)
    assert shop.stockade("get", "sku:42") == "0"
    assert "free" in shop.stockade("lease", "sku:42"), "released, sold or not"


@each
def test_one_that_was_paused_until_its_lease_passed_on_sells_nothing(shop, example):
    shop.stockade("set", "sku:42", "5")
    pause = PAUSES[example.suffix].splitlines()
    text, found = PAUSE.subn(lambda match: "\n".join(match[1] + line for line in pause),
                             example.read_text())
    assert found == 1
    shop.write(text)
    begun = shop.begin()
    wait_until((shop.folder / "paused").exists, "it is between its read and its write")
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
    shop.write(re.sub(WAIT, "0.1" if example.suffix == ".py" else "100", example.read_text()))
    status, output = shop.end(shop.begin())
    assert status != 0 and "busy" in output
    assert holder.poll() is None and shop.stockade("get", "sku:42") == "5"


# The example of an election.

@pytest.mark.parametrize("example", [LEADER])
def test_of_two_leaders_one_does_each_round_and_one_that_stood_still_does_none(shop, example):
    pause = PAUSES[".py"].replace("'go'", "'go' if done == 3 else '.'").splitlines()
    text, found = ROUND.subn(lambda match: "\n".join(match[1] + line for line in pause),
                             example.read_text())
    assert found == 1
    shop.write(text)
    first = shop.begin()
    wait_until(lambda: "round 2" in shop.output("run1"), "it leads")
    shop.write(example.read_text())
    second = shop.begin()
    wait_until(lambda: '"waiters": 1' in shop.stockade("lease", "--json", "rounds"),
               "the other one stands")
    shop.stockade("revoke", "rounds")
    status, output = shop.end(second)
    assert status == 0 and "round 3\n" in output and "round 10\n" in output
    (shop.folder / "go").touch()
    status, output = shop.end(first)
    assert status == 0 and "another leads" in output and "round 3\n" not in output
    rounds = [int(n) for run in ("run1", "run2")
              for n in re.findall(r"round (\d+)", shop.output(run))]
    assert sorted(rounds) == list(range(1, 12)), "each once; the last is the first one's own"
    assert shop.stockade("get", "rounds") == "11" and "free" in shop.stockade("lease", "rounds")
