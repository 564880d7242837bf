# SPDX-License-Identifier: Apache-2.0
"""tools/check judges unit tests; here it is judged, on a made-up tree with one program."""

import os
import shutil
import subprocess

import pytest

from harness.limits import REPO, patience

# The first run does what is put in; the second one finds nothing wrong.
PROGRAM = """\
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
static void stall(void) { kill(getppid(), SIGSTOP); usleep(300000); kill(getppid(), SIGCONT); }
static void leak(void) { kept = malloc(100); kept = NULL; }
static void use_after_free(void) { kept = malloc(100); free(kept); *(volatile char *)kept = 1; }
static int says(const char *result) { puts(result); fflush(stdout); return *result == 'n'; }
int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    puts("1..1");
    if (open("tried", O_CREAT | O_EXCL, 0600) < 0)
        return says("ok 1 - it");
    FIRST
}
"""
PASSES = 'return says("ok 1 - it");'
FAILS = 'return says("not ok 1 - it");'


def check(tree, first):
    """Returns (exit status, output) of tools/check on a program, built with AddressSanitizer, whose
    first run does as said."""
    for name in ("tools/check", "tests/system/harness/stalls.py", "tests/support/lsan.supp"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tree / name)
    source, program = tree / "tests/unit/a_test.c", tree / "build/tests/unit/a_test"
    for file in (source, program):
        file.parent.mkdir(parents=True)
    source.write_text(PROGRAM.replace("FIRST", first))
    (tree / "build/flags").write_text("-fsanitize=address\n")
    subprocess.run(["gcc", "-w", "-fsanitize=address", "-o", program, source], check=True)
    done = subprocess.run([tree / "tools/check", "unit"], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=patience(50),
                          env=dict(os.environ, STOCKADE_BUILD="build"))
    return done.returncode, done.stdout


def test_what_fails_while_the_machine_stands_still_runs_again_and_its_leaks_are_forgotten(tmp_path):
    status, output = check(tmp_path, "stall(); leak();" + FAILS)
    assert status == 0 and output.endswith("\n1 passed, 0 failed\n"), output
    assert "Late, and tried again:\n  unit/a_test: a stall of 0." in output


def test_what_fails_while_the_machine_runs_well_fails_at_once(tmp_path):
    status, output = check(tmp_path, "leak();" + FAILS)
    assert status == 1 and output.endswith("\n0 passed, 2 failed\n"), output
    assert "FAILED unit/a_test: it\n" in output and "LeakSanitizer" in output


@pytest.mark.parametrize("fault, said", [
    ("leak();" + PASSES, "LeakSanitizer"),
    ('puts("not ok 1 - it"); leak(); use_after_free();', "heap-use-after-free"),
    ("abort();", "killed by SIGABRT")])
def test_a_stall_excuses_no_memory_error_and_no_crash(tmp_path, fault, said):
    status, output = check(tmp_path, "stall();" + fault)
    assert status == 1 and output.endswith(" 1 failed\n") and said in output, output
