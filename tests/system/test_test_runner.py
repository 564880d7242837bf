# SPDX-License-Identifier: Apache-2.0
"""tools/check judges unit tests; here it is judged, on a made-up tree with one program. And a test
that is over leaves no process, however it ends; what tests share, and loses, is told by name."""

import contextlib
import os
import pathlib
import queue
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from harness import deployment
from harness.deployment import Deployment
from harness.limits import HANG_SECONDS, REPO, patience
from harness.process import Process
from harness.resp import Client
from harness.rig import Rig

pytestmark = pytest.mark.interpreted

# The first run does what is put in; the second one finds nothing wrong.
PROGRAM = """\
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
void *volatile kept;
static double now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
static void stall(void) { kill(getppid(), SIGSTOP); usleep(600000); kill(getppid(), SIGCONT); }
static void leak(void) { kept = malloc(100); kept = NULL; }
static void use_after_free(void) { kept = malloc(100); free(kept); *(volatile char *)kept = 1; }
static int says(const char *result) { puts(result); fflush(stdout); return *result == 'n'; }
static void is_late(double from, double allowed)
{
    printf("# late from %.3f to %.3f, allowed %.3f\\n", from, now(), allowed);
}
int main(int argc, char **argv)
{
    double begun = now();
    char tried[4096];
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    puts("1..1");
    snprintf(tried, sizeof tried, "%s.tried", argv[0]);
    if (open(tried, O_CREAT | O_EXCL, 0600) < 0)
        return says("ok 1 - it");
    FIRST
}
"""
PASSES = 'return says("ok 1 - it");'
FAILS = 'return says("not ok 1 - it");'
# vfork returns when the other program is there, by its own name.
LEAVES = ('if (vfork() == 0) { setsid(); close(1); close(2);'
          ' execlp("sleep", "sleep", "1000", (char *)NULL); }')
LATE = "stall(); is_late(begun, 0.2); " + FAILS

RUN_SECONDS = 10 * HANG_SECONDS  # compilers, linkers and several programs
HARNESS = "tests/system/harness"
SYSTEM_TESTS = """\
import time
import pytest
import harness.late
from harness.limits import Stopwatch

@pytest.mark.parametrize("number", range(COUNT))
def test_it(number, tries=[]):
    with Stopwatch() as watch:
        tries.append(number)
        if tries.count(number) == 1:
            begun = time.monotonic()
            time.sleep(0.6)
            harness.late.stalls().seen.append((begun, time.monotonic()))
    assert watch.seconds < 0.2
"""


def check(tree, first, programs=1, system_tests=0):
    """Returns (exit status, output) of tools/check on so many programs, built with
    AddressSanitizer, whose first run does as said, and so many system tests that are late once."""
    for name in ("tools/check", f"{HARNESS}/__init__.py", f"{HARNESS}/stalls.py",
                 f"{HARNESS}/late.py", f"{HARNESS}/limits.py", "tests/system/pytest.ini",
                 "tests/support/lsan.supp"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tree / name)
    (tree / "tests/system/conftest.py").write_text('pytest_plugins = ["harness.late"]\n')
    (tree / "tests/system/test_it.py").write_text(SYSTEM_TESTS.replace("COUNT", str(system_tests)))
    program = tree / "tools/check"
    program.write_text(program.read_text().replace("LEFT_SECONDS = 10", "LEFT_SECONDS = 0"))
    sources, built = tree / "tests/unit", tree / "build/tests/unit"
    sources.mkdir()
    built.mkdir(parents=True)
    (tree / "build/flags").write_text("-fsanitize=address\n")
    for name in [f"{letter}_test" for letter in "abcdefgh"[:programs]]:
        (sources / name).with_suffix(".c").write_text(PROGRAM.replace("FIRST", first))
        subprocess.run(["gcc", "-w", "-fsanitize=address", "-o", built / name,
                        (sources / name).with_suffix(".c")], check=True)
    done = subprocess.run([program, "unit", *(["system"] if system_tests else [])],
                          stdout=subprocess.PIPE, text=True, stderr=subprocess.STDOUT,
                          timeout=patience(RUN_SECONDS),
                          env=dict(os.environ, STOCKADE_BUILD="build"))
    return done.returncode, done.stdout


def test_what_was_late_while_the_machine_stood_still_runs_again_and_its_leaks_are_forgotten(
        tmp_path):
    status, output = check(tmp_path, "leak();" + LATE)
    assert status == 0 and output.endswith("\n1 passed, 0 failed\n"), output
    assert re.search(r"Late, and tried again:\n  unit/a_test: \d\.\d\d s instead of 0\.20 s, "
                     r"with a stall of \d\.\d\d s\n", output), output


def test_what_fails_while_the_machine_runs_well_fails_at_once(tmp_path):
    status, output = check(tmp_path, "leak();" + FAILS)
    assert status == 1 and output.endswith("\n0 passed, 2 failed\n"), output
    assert "FAILED unit/a_test: it\n" in output and "LeakSanitizer" in output


@pytest.mark.parametrize("fault", [
    FAILS,  # a value is wrong
    "is_late(begun, 0.2); puts(\"ok 1 - another\"); " + FAILS,
    # An interval of five minutes ago, and one that the stall does not explain.
    'printf("# late from %.3f to %.3f, allowed 1.000\\n", begun - 302, begun - 300); ' + FAILS,
    "is_late(begun - 5, 1.0); " + FAILS])
def test_a_stall_excuses_no_wrong_value_and_no_interval_elsewhere(tmp_path, fault):
    status, output = check(tmp_path, "stall(); " + fault)
    assert status == 1 and "FAILED unit/a_test: it\n" in output, output
    assert "tried again" not in output


@pytest.mark.parametrize("fault, said", [
    ("leak();" + PASSES, "LeakSanitizer"),
    ('is_late(begun, 0.2); puts("not ok 1 - it"); leak(); use_after_free();',
     "heap-use-after-free"),
    ("is_late(begun, 0.2); abort();", "killed by SIGABRT")])
def test_a_stall_excuses_no_memory_error_and_no_crash(tmp_path, fault, said):
    status, output = check(tmp_path, "stall();" + fault)
    assert status == 1 and said in output and "FAILED " in output, output


@pytest.mark.slow
@pytest.mark.parametrize("programs, system_tests, fails", [(1, 4, False), (2, 4, True)])
def test_five_repeats_in_a_run_are_excused_and_six_fail_it(tmp_path, programs, system_tests, fails):
    status, output = check(tmp_path, LATE, programs, system_tests)
    assert status == fails, output
    assert output.endswith(f"\n{programs + system_tests} passed, {fails:d} failed\n"), output
    assert ("FAILED 6 repeats of tests that were late, and 5 at most" in output) == fails, output


def test_a_process_that_a_suite_leaves_behind_is_ended_and_fails_it(tmp_path):
    status, output = check(tmp_path, LEAVES + PASSES)
    assert status == 1 and "FAILED unit: left a process behind: sleep 1000" in output, output
    assert output.endswith("\n1 passed, 1 failed\n"), output


class Ended:
    """A thread's folder in /proc when the thread has gone."""

    def __init__(self, error):
        self.error = error

    def __truediv__(self, _):
        return self

    def read_text(self):
        raise self.error


def test_children_of_every_thread_are_found_and_a_thread_that_ends_meanwhile_is_passed_over(
        monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    children = runpy.run_path(str(REPO / "tools/check"))["children"]
    started, known = queue.Queue(), threading.Event()

    def start():
        started.put(subprocess.Popen(["sleep", "1000"]))
        known.wait()
    thread = threading.Thread(target=start)
    thread.start()
    with started.get() as child:
        assert child.pid in children(), "of a thread that runs"
        tasks = list(pathlib.Path("/proc/self/task").iterdir())
        gone = [Ended(FileNotFoundError()), Ended(ProcessLookupError())]
        monkeypatch.setattr(pathlib.Path, "iterdir", lambda _: iter(gone + tasks))
        assert child.pid in children()
        monkeypatch.undo()
        known.set()
        thread.join()
        assert child.pid in children(), "of one that has ended"
        child.kill()
    assert child.pid not in children()


def test_a_rig_ends_the_others_where_one_cannot_be_ended(tmp_path):
    class Broken(Process):
        def stop(self):
            self.kill()
            raise BrokenPipeError

    rig = Rig(tmp_path)
    rig.processes += [kind("sleep", ["sleep", 100], rig.stderr_path("sleep"))
                      for kind in (Broken, Process)]
    rig.processes[1].expected_status = -signal.SIGTERM
    with pytest.raises(BrokenPipeError):
        rig.close()
    assert not rig.processes[1].alive()


def test_a_port_that_is_held_is_its_servers_alone_also_while_that_is_down(rig):
    port = rig.port()
    with pytest.raises(ConnectionRefusedError):
        Client(("127.0.0.1", port))
    for _ in range(2):  # it may listen there as often as it likes
        daemon = rig.daemon(listen=[f"127.0.0.1:{port}"])
        assert daemon.client()("PING") == "PONG"
        daemon.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


@pytest.fixture
def shared(tmp_path):
    deployment = Deployment(tmp_path, "local")
    yield deployment
    with contextlib.suppress(AssertionError):  # which is what these tests are about
        deployment.close()


@pytest.mark.parametrize("number, said", [
    (signal.SIGSEGV, "killed by SIGSEGV"), (signal.SIGTERM, "exit status 0"),
    (signal.SIGSTOP, "it runs, and is silent")])
def test_the_test_that_ends_a_shared_daemon_is_told_and_the_next_one_has_another(
        shared, monkeypatch, number, said):
    monkeypatch.setattr(deployment, "SILENT_SECONDS", 0.5)
    with pytest.raises(AssertionError, match=f"{said}. The last test that had it: .*::test_the_te"):
        with shared.lent() as daemon:
            os.kill(daemon.pid, number)
            if number != signal.SIGSTOP:
                daemon.popen.wait()
    with shared.lent() as another:
        assert another.client()("PING") == "PONG"
    shared.close()


def test_where_a_shared_daemon_ends_while_nobody_has_it_the_session_tells_who_had_it_last(
        shared, monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_x.py::test_culprit (call)")
    with shared.lent() as daemon:
        pass
    os.kill(daemon.pid, signal.SIGABRT)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_x.py::test_innocent (call)")
    with shared.lent() as another:
        assert another.client()("PING") == "PONG"
    with pytest.raises(AssertionError, match="SIGABRT. The last .* it: test_x.py::test_culprit\n"):
        shared.close()
