# SPDX-License-Identifier: Apache-2.0
"""tests/mutants/run and random judge the tests; here they are judged, on a made-up tree."""

import re
import subprocess
import sys

import pytest

from harness.limits import HANG_SECONDS, REPO, patience

sys.path.insert(0, str(REPO / "tests/mutants"))
from slips import slips_of  # noqa: E402

pytestmark = pytest.mark.interpreted

RUN_SECONDS = 10 * HANG_SECONDS  # each run builds several times

MAKEFILE = """\
BUILD ?= build
CC = gcc
.PHONY: all helpers sim tests
all: ;
tests: $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*_test.c))
$(BUILD)/obj/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) -O0 $(CFLAGS) -c -o $@ $<
$(BUILD)/daemon.a: $(BUILD)/obj/fence/sum.o
\t@rm -f $@
\tar rcs $@ $^
helpers: ;
$(BUILD)/tests/unit/%: tests/unit/%.c $(BUILD)/daemon.a
\t@mkdir -p $(@D)
\t$(CC) -O0 -o $@ $^
sim: $(BUILD)/tests/unit/sum_test
\t$<
\t@echo "$(RUNS) passed, 0 failed"
"""
SUM = """\
int sum(int n) { int s = 0; for (int i = 1; i <= n; i++) s += i; return s; }
int unused(int n) { return n > 0 ? 1 : 0; }
"""
TEST = """\
#include <stdio.h>
int sum(int n);
int main(void) { printf("ok 1 - sums\\n"); return sum(3) == 6 ? 0 : 1; }
"""
PYTEST = """\
def test_loop(): assert "i <= n" in open("fence/sum.c").read()
def test_broken(): assert False
"""
FOR_ALL = "caught = 'unit sum_test'"
GOOD = {"name": "last one forgotten", "old": "i <= n", "new": "i < n"}
EIGHT = [{"name": f"wrong start {n}", "old": "s = 0", "new": f"s = {n}"} for n in range(1, 9)]


def make_tree(folder, **others):
    files = {"Makefile": MAKEFILE, "fence/sum.c": SUM, "tests/unit/sum_test.c": TEST,
             "tests/unit/silent_test.c": "int main(void) { return 0; }\n",
             "tests/unit/sad_test.c": "int main(void) { return 1; }\n",
             "tests/system/test_sum.py": PYTEST, ".gitignore": "/build/\n__pycache__/\n"}
    for name, text in {**files, **others}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path)


def mutants(tree, *entries, file="fence/sum.c", options=()):
    """Run the entries, each GOOD with some fields changed; return (exit status, output)."""
    folder = tree / "tests/mutants"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [FOR_ALL]
    for entry in entries:
        fields = {**GOOD, **entry}
        lines += [f"[['{file}']]", *(f"{key} = '{text}'" for key, text in fields.items())]
    (folder / "fence.toml").write_text("\n".join(lines))
    done = subprocess.run([REPO / "tests/mutants/run", "--tree", tree, *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=patience(RUN_SECONDS))
    return done.returncode, done.stdout


@pytest.mark.parametrize("caught", ["unit sum_test", "system test_sum::test_loop", "sim RUNS=3"])
def test_a_defect_that_its_test_notices_passes(tree, caught):
    status, output = mutants(tree, {"caught": caught})
    assert status == 0 and output.endswith("\n1 passed, 0 failed\n"), output


def test_a_defect_that_hangs_its_test_is_caught_and_said_so(tree):
    status, output = mutants(tree, {"new": "i == i"}, options=["--patience", "1"])
    assert status == 0 and output.startswith("hung"), output


# What proves nothing, and what is said of it.
FAILURES = [
    ("SURVIVED", {"old": "n > 0", "new": "n >= 0"}),
    ("SURVIVED", {"old": "n > 0", "new": "n >= 0", "caught": "system test_sum.py::test_loop"}),
    ("SURVIVED", {"old": "n > 0", "new": "n >= 0", "caught": "sim RUNS=1"}),
    ("DOES NOT APPLY", {"old": "i << n"}),
    ("DOES NOT APPLY", {"old": "int n"}),
    ("DOES NOT APPLY", {"new": "i <= n"}),
    ("DOES NOT COMPILE", {"new": "i <= m"}),
    ("DOES NOT COMPILE", {"new": "i <= m", "caught": "sim RUNS=1"}),
    ("CATCHER FAILS WITHOUT A DEFECT", {"caught": "unit sad_test"}),
    ("CATCHER FAILS WITHOUT A DEFECT", {"caught": "unit silent_test"}),
    ("CATCHER FAILS WITHOUT A DEFECT", {"caught": "unit nosuch_test"}),
    ("CATCHER FAILS WITHOUT A DEFECT", {"caught": "system test_sum::test_broken"}),
    ("CATCHER IS MISSING", {"caught": "system test_sum::test_nosuch"}),
    ("CATCHER FAILS WITHOUT A DEFECT", {"caught": "sim RUNS=0"}),
    ("BAD ENTRY", {"caught": "luck"}),
    ("BAD ENTRY", {"caught": ""}),
    ("BAD ENTRY", {"comment": "no such field"}),
]


def test_what_proves_nothing_fails(tree):
    """In one run, so that what they share is built once."""
    names = [f"defect {number}" for number in range(len(FAILURES))]
    entries = [{"name": name, **entry} for name, (_, entry) in zip(names, FAILURES)]
    status, output = mutants(tree, *entries, {"name": "good"})
    for name, (verdict, entry) in zip(names, FAILURES):
        assert re.search(rf"^{verdict} .*: {name} \[", output, re.M), (verdict, entry, output)
    assert status == 1 and output.endswith(f"\n1 passed, {len(FAILURES)} failed\n"), output


@pytest.mark.parametrize("verdict, file", [("DOES NOT APPLY", "fence/nosuch.c"),
                                           ("BAD ENTRY", "tests/unit/sum_test.c")])
def test_a_defect_is_put_into_a_file_of_the_product(tree, verdict, file):
    status, output = mutants(tree, {}, file=file)
    assert status == 1 and output.startswith(verdict), output


def test_each_is_counted_and_the_tree_is_left_as_it_was(tree):
    status, output = mutants(tree, {}, {"name": "harmless", "old": "n > 0", "new": "n >= 0"},
                             {"name": "wrong start", "old": "s = 0", "new": "s = 1"})
    assert status == 1 and output.endswith("\n2 passed, 1 failed\n"), output
    assert "SURVIVED  fence.toml: harmless [unit sum_test]" in output
    assert (tree / "fence/sum.c").read_text() == SUM
    assert (tree / "build/mutants/1/fence/sum.c").read_text() == SUM


def test_a_second_run_sees_what_changed_and_a_name_twice_is_refused(tree):
    assert mutants(tree, {})[0] == 0
    (tree / "fence/sum.c").write_text(SUM.replace("i <= n", "i < n + 1"))
    status, output = mutants(tree, {"old": "i < n + 1"}, {"old": "s = 0", "new": "s = 1"})
    assert status == 1 and re.search("^BAD ENTRY .*last one forgotten", output), output
    assert output.endswith("\n1 passed, 1 failed\n"), output


def test_no_mutants_are_a_failure(tree):
    assert mutants(tree)[0] == 1 and mutants(tree, {}, options=["--only", "nosuch.toml"])[0] == 1


def test_a_sample_is_the_same_for_the_same_seed(tree):
    runs = [mutants(tree, *EIGHT, options=["--sample", "3", "--seed", "7"]) for _ in range(2)]
    names = [sorted(re.findall(r"wrong start \d", output)) for _, output in runs]
    assert names[0] == names[1] and len(names[0]) == 3
    assert "SAMPLE=3 SEED=7, of 8" in runs[0][1] and "3 passed, 0 failed" in runs[0][1]


def test_what_does_not_fit_fails_also_where_a_sample_leaves_it_out(tree):
    status, output = mutants(tree, *EIGHT, {"name": "gone", "old": "i << n"},
                             options=["--sample", "2"])
    assert status == 1 and re.search("^DOES NOT APPLY .*gone", output), output
    assert output.endswith("\n2 passed, 1 failed\n"), output


def slips(body):
    """What can be made of a function with this body: {(kind, its lines then)}."""
    text = f"int f(int n)\n{{\n{body}\n}}"
    return {(slip.kind, slip.new) for slip in slips_of("fence/f.c", text)}


# Of each kind of line, all that can be made of it.
SLIPS = [
    ("if (n < 7) return true;",
     {("comparison", "if (n <= 7) return true;"), ("number", "if (n < 6) return true;"),
      ("number", "if (n < 8) return true;"), ("branch", "if ((n < 7) || true) return true;"),
      ("branch", "if ((n < 7) && false) return true;"), ("return", "if (n < 7) return false;")}),
    ("return a && !b(n);",
     {("logic", "return a || !b(n);"), ("not", "return a && b(n);"), ("return", "return 0;")}),
    ("list->put(n, at->end, \"a, (b\");",
     {("call", ";"), ("arguments", "list->put(at->end, n, \"a, (b\");")}),
    ("(void)put(n, n);", {("call", ";")}),
    ("at->end[0].last |= n;",
     {("assignment", ";"), ("number", "at->end[1].last |= n;")}),
    ("at->count++;", {("assignment", ";")}),
    ("while (n) step(n);", {("call", "while (n) ;")}),
    ("char room[8], *end = room;", set()),
    ("/* if (n < 1) */ // n == 2\n#define N (1 < 2) \\\n  && 3", set()),
    ("check(n > 0); log_info(log, \"%d\", n + 1); free(at); pthread_mutex_lock(&lock);", set()),
    ("return 0;", {("number", "return 1;")}),
    ("x = 1; /* LCOV_EXCL_LINE: no test can */", set()),
]


@pytest.mark.parametrize("body, made", SLIPS)
def test_of_a_line_these_slips_can_be_made(body, made):
    assert slips(body) == made


def test_a_slip_changes_what_it_says_and_no_more():
    text = "int f(int n)\n{\n    return n <\n        5;\n}\n"
    number = [slip for slip in slips_of("fence/f.c", text) if slip.kind == "number"]
    assert [slip.planted(text) for slip in number] == [text.replace("5", new) for new in "46"]
    assert {slip.line for slip in slips_of("fence/f.c", text)} == {3, 4}


REACHED = """\
void idle(void) {}
int sum(int n)
{
    int s = 3;
    idle();
    s += n;
    return s;
}
int mood(void)
{
    return 1;
}
int unused(int n)
{
    return n > 0 ? 1 : 0;
}
"""
MOODY = "int mood(void); int main(void) { return mood() + 1; }\n"
SUM_C, EQUIVALENTS = "fence/sum.c", "tests/mutants/equivalent.tsv"
EQUIVALENT = "fence/sum.c\tidle();\t;\tit does nothing\n"


def random_mutants(tree, *options):
    done = subprocess.run([REPO / "tests/mutants/random", "--tree", tree, "--seed", "7",
                           "--copies", "1", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=patience(RUN_SECONDS))
    return done.returncode, done.stdout


def drawn(output):
    """[(number, file:line kind)] of those that were judged, in their order."""
    return re.findall(r"^(?:caught|SURVIVED) .* s  (\d+): (\S+ \w+)", output, re.M)


def tried(output):
    return [what for _, what in drawn(output)]


@pytest.fixture(scope="module")
def reached(tmp_path_factory):
    """(A tree, what a run in it says.) Its sum() is reached by a test, its mood() by one that fails
    without a defect, too."""
    tree = make_tree(tmp_path_factory.mktemp("reached"), **{
        "fence/sum.c": REACHED, "tests/unit/moody_test.c": MOODY,
        "tests/mutants/equivalent.tsv": "# file, old, new, why\n"})
    (tree / "tests/system/test_sum.py").unlink()
    return tree, random_mutants(tree)


@pytest.fixture
def as_it_was(reached):
    """The tree, for a test that changes it."""
    tree = reached[0]
    kept = {path: path.read_text() for path in (tree / SUM_C, tree / EQUIVALENTS)}
    yield tree
    for path, text in kept.items():
        path.write_text(text)


def test_random_defects_are_put_into_lines_that_tests_reach_and_what_survives_is_told(reached):
    tree, (status, output) = reached
    lines = [int(re.search(r":(\d+) ", what)[1]) for what in tried(output)]
    assert sorted(lines) == [4, 5, 6, 7, 11], output
    assert re.search(r"^caught .*fence/sum.c:7 return \[unit sum_test\]$", output, re.M), output
    assert "unit moody_test fails without a defect" in output
    assert status == 1 and output.endswith("report.md\n3 passed, 2 failed\n"), output
    report = (tree / "build/mutants-random/7/report.md").read_text()
    assert "| fence | 5 | 3 | 60 % |" in report
    assert "-    idle();\n+    ;\n" in report and "Passed: unit sum_test.\n" in report
    assert EQUIVALENT.replace("it does nothing", "WHY") in report
    for root in (tree, tree / "build/mutants-random/copies/1"):
        assert (root / SUM_C).read_text() == REACHED


def test_draws_are_listed_and_a_run_goes_on_where_another_was_stopped(reached):
    tree, (_, output) = reached
    status, listed = random_mutants(tree, "--list")
    shown = re.findall(r"^(\d+): (\S+ \w+)$", listed, re.M)
    assert status == 0 and [int(number) for number, _ in shown] == [*range(1, len(shown) + 1)]
    assert "-    idle();\n+    ;\n" in listed and not drawn(listed)
    judged = drawn(output)
    assert set(judged) <= set(shown) and len(judged) == 5
    third = judged[2][0]
    assert drawn(random_mutants(tree, "--from", third)[1]) == judged[2:]
    assert drawn(random_mutants(tree, "--from", third, "--count", "1")[1]) == judged[2:3]
    assert random_mutants(tree, "--from", third, "--list", "--count", "1")[1].count("@@") == 2


def test_a_seed_draws_the_same_again_where_lines_have_moved_but_for_what_is_equivalent(
        reached, as_it_was):
    (as_it_was / SUM_C).write_text("/* new */\n" + REACHED)
    (as_it_was / EQUIVALENTS).write_text("# why\n" + EQUIVALENT)
    status, output = random_mutants(as_it_was, "--count", "2")
    assert status == 0 and output.endswith("\n2 passed, 0 failed\n"), output
    moved = [re.sub(r"\d+", lambda line: str(int(line[0]) + 1), what)
             for what in tried(reached[1][1])]
    assert "fence/sum.c:6 call" in moved[:2], "or the test shows nothing: try another seed"
    assert tried(output) == [what for what in moved if what != "fence/sum.c:6 call"][:2]


def test_an_equivalent_that_fits_no_more_fails(as_it_was):
    (as_it_was / EQUIVALENTS).write_text(EQUIVALENT.replace("idle", "busy"))
    status, output = random_mutants(as_it_was, "--count", "0")
    assert status == 1 and "fence/sum.c has no such lines any more: busy();" in output, output
