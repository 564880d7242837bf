# SPDX-License-Identifier: Apache-2.0
"""The pages for those who change the code name files, functions, tests and targets. Each exists."""

import re
import subprocess

import pytest

from harness.limits import REPO

pytestmark = pytest.mark.interpreted

PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md", "tests/model/README.md"]
PAGE = "\n".join((REPO / page).read_text() for page in PAGES)
SPANS = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
FILES = [span for span in SPANS if re.fullmatch(r"(tests|proxy|fence|store)/[\w./*-]+", span)]
SYSTEM_FILES = [span for span in SPANS if re.fullmatch(r"test_\w+\.py", span)]
TESTS = [span for span in SPANS if re.fullmatch(r"test_\w+", span)]
FUNCTIONS = [span[:-2] for span in SPANS if re.fullmatch(r"\w+\(\)", span)]
TARGETS = sorted(set(re.findall(r"`make (\w+)", PAGE)))
FAULTS = sorted(set(re.findall(r"`(FAULT_\w+)`", PAGE)))


def test_there_is_something_to_look_for():
    assert len(FILES) > 15 and len(SYSTEM_FILES) > 8 and len(TESTS) > 5
    assert len(TARGETS) > 6 and len(FAULTS) > 4 and len(FUNCTIONS) > 15


@pytest.mark.parametrize("promise", [f"P{n}" for n in range(1, 9)])
def test_each_promise_has_its_row(promise):
    assert f"\n| {promise} | " in PAGE


@pytest.mark.parametrize("name", FILES)
def test_the_file_that_is_named_exists(name):
    assert list(REPO.glob(name))


@pytest.mark.parametrize("name", SYSTEM_FILES)
def test_the_system_test_that_is_named_exists(name):
    assert (REPO / "tests/system" / name).exists()


@pytest.mark.parametrize("name", TESTS)
def test_the_test_that_is_named_exists(name):
    sources = (path.read_text() for path in (REPO / "tests/system").glob("test_*.py"))
    assert any(re.search(rf"^def {name}\(", source, re.M) for source in sources)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_that_is_named_exists(name):
    definition = {".c": rf"^\w[\w *]*\b{name}\(", ".h": rf"^#define {name}\("}
    assert any(re.search(definition[path.suffix], path.read_text(), re.M)
               for folder in ("fence", "store", "proxy")
               for path in (REPO / folder).rglob("*.[ch]"))


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_of_the_model_is_explored(name):
    assert any(name in model.read_text() for model in (REPO / "tests/model").glob("*.pml"))
    assert f"-D{name}" in (REPO / "tests/model/run").read_text()


def test_every_target_that_is_named_is_in_makes_help():
    shown = subprocess.run(["make", "help"], cwd=REPO, capture_output=True, text=True,
                           check=True).stdout
    assert set(TARGETS) <= set(re.findall(r"^  make (\w+)", shown, re.M))
