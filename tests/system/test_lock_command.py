# SPDX-License-Identifier: Apache-2.0
"""`stockade lock`: the program runs while the lease is held, and no longer."""

import contextlib
import os
import pathlib
import pty
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness.limits import BUILD, HANG_SECONDS, Seconds, Stopwatch, patience, wait_until, within
from harness.ports import free_port
from harness.rig import restart

HELD, LOST = 75, 76
PROMPT_SECONDS = 2
UNTIL_GO = "touch ready; while [ ! -e go ]; do sleep 0.02; done"


def start(tool, daemon, key, *words, **options):
    return tool.start("-u", daemon.uri, "lock", key, *words, **options)


def begin(tool, daemon, key, script, *options):
    """A shell runs the script in the tool's folder, and has made the file `ready` there."""
    running = start(tool, daemon, key, *options, "--", "sh", "-c", script, cwd=tool.folder)
    await_file(tool.folder / "ready")
    return running


def run(tool, daemon, key, *words, **options):
    return tool.run("-u", daemon.uri, "lock", key, *words, **options)


def end(running):
    """Its exit status and what it said on stderr."""
    _, errors = running.communicate(timeout=patience(HANG_SECONDS))
    return running.returncode, errors


def await_file(path, text=""):
    wait_until(lambda: path.exists() and text in path.read_text(), f"{path.name}: {text!r}")


def test_the_program_finds_its_resource_and_a_token_that_writes(tool, daemon, key):
    said = run(tool, daemon, key, "--", "sh", "-c", 'echo "$STOCKADE_RESOURCE $STOCKADE_TOKEN"; '
               'redis-cli -p "$0" FENCED "$STOCKADE_TOKEN" SET "$STOCKADE_RESOURCE" done',
               daemon.address[1])
    name, token, ok = said.stdout.split()
    assert (said.returncode, name, ok, said.stderr) == (0, key, "OK", "")
    client = daemon.client()
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("free", int(token)), "released at the end"
    assert client("GET", key) == b"done"


@pytest.mark.parametrize("script, status", [
    ("exit 0", 0), ("exit 7", 7), ("exit 76", 76), ("kill -KILL $$", 137),
    ("kill -TERM $$", -15), ("exit 130", 130)])
def test_the_exit_status_is_the_programs(tool, local, key, script, status):
    assert run(tool, local, key, "--", "sh", "-c", script).returncode == status
    assert local.client().lease(key)["state"] == "free"


def test_a_program_that_cannot_be_run_is_126_or_127_and_leaves_no_lease(tool, local, key):
    plain = tool.folder / "plain"
    plain.write_text("no program")
    for program, status in (("no-such-program", 127), (tool.folder / "none" / "x", 127),
                            (plain, 126)):
        done = run(tool, local, key, "--", program)
        assert done.returncode == status and str(program) in done.stderr
        assert local.client().lease(key)["state"] == "free"


@pytest.mark.parametrize("descriptors", range(4, 14))
def test_without_descriptors_it_says_so_and_leaves_no_lease(tool, local, key, descriptors):
    env = {**tool.env, "LSAN_OPTIONS": "detect_leaks=0"}  # which needs descriptors, or hangs
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n {descriptors}; exec \"$@\"", "sh", BUILD / "stockade", "-u",
         local.uri, "lock", key, "--", "true"], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=patience(HANG_SECONDS), check=False, env=env)
    assert done.returncode in (0, 1, 69, 127) and (done.returncode == 0) == (done.stderr == "")
    assert local.client().lease(key) is None or local.client().lease(key)["state"] == "free"


def test_the_program_has_our_standard_streams(tool, local, key):
    done = subprocess.run(
        [BUILD / "stockade", "-u", local.uri, "lock", key, "--", "sh", "-c", "cat; echo e >&2"],
        input="through\n", capture_output=True, text=True,
        timeout=patience(HANG_SECONDS), check=False,
        env=tool.env)
    assert (done.stdout, done.stderr) == ("through\n", "e\n")


def test_a_lease_that_another_keeps_is_75_after_the_wait(tool, daemon, key):
    daemon.client().token(key)
    with Stopwatch() as watch:
        done = run(tool, daemon, key, "--wait", "300ms", "--", "touch", tool.folder / "ran")
    assert done.returncode == HELD and key in done.stderr
    assert 0.3 <= watch.seconds < patience(PROMPT_SECONDS)
    assert not (tool.folder / "ran").exists() and daemon.client().lease(key)["waiters"] == 0


def test_it_waits_in_line_and_runs_when_the_holder_releases(tool, daemon, key):
    holder = daemon.client()
    token = holder.token(key)
    running = start(tool, daemon, key, "--wait", "20s", "--", "true")
    holder.await_waiters(key)
    holder("RELEASE", key, token)
    assert end(running)[0] == 0


def test_a_wait_longer_than_the_ttl_leaves_a_lease_that_is_whole(tool, local, key):
    holder = local.client()
    token = holder.token(key)
    running = start(tool, local, key, "--ttl", "2s", "--wait", "20s", "--", "sleep", "0.2")
    holder.await_waiters(key)
    time.sleep(2.2)  # longer than the TTL: the time itself is what is tested
    holder("RELEASE", key, token)
    assert end(running) == (0, "")


def test_it_renews_for_as_long_as_the_program_runs(tool, daemon, client, key):
    running = start(tool, daemon, key, "--ttl", "2s", "--", "sleep", "3.5")
    wait_until(lambda: (client.lease(key) or {}).get("state") == "held", "it is held")
    token = client.lease(key)["token"]
    while running.poll() is None:
        assert client.acquire(key, 60000) is None or running.wait(patience(HANG_SECONDS)) == 0
    assert end(running) == (0, "")
    assert client.lease(key)["token"] <= token + 1


@pytest.mark.parametrize("how", ["REVOKE", "RELEASE"])
def test_a_lost_lease_ends_the_whole_tree_of_the_program_at_once(tool, daemon, key, how):
    running = begin(tool, daemon, key, "(sleep 100 & sleep 100) & sh -c 'sleep 100; true' & "
                    "touch ready; wait", "--ttl", "60s")
    wait_until(lambda: len(tool.processes()) >= 7, "the tree is there: we, two shells, their four")
    client = daemon.client()
    words = [client.lease(key)["token"]] if how == "RELEASE" else []
    with within(patience(PROMPT_SECONDS)):  # told at once, not at the next renewal
        client(how, key, *words)
        status, errors = end(running)
    assert status == LOST and "lost" in errors and key in errors
    assert not tool.processes()


def test_a_lease_lost_before_it_listens_is_noticed_once_it_does(rig, tool, local, key):
    relay = rig.relay(local.address)
    relay.hold("up", only=b"NOTIFY")
    running = start(tool, relay, key, "--ttl", "60s", "--", "sleep", "100")
    wait_until(lambda: relay.kept("up") > 0, "it asks to be told")
    local.client()("REVOKE", key)
    with within(patience(PROMPT_SECONDS)):  # at once, not at the next renewal
        relay.let("up")
        assert end(running)[0] == LOST


def test_a_program_that_ignores_term_is_killed_after_the_grace(tool, local, key):
    running = begin(tool, local, key, "trap '' TERM; touch ready; while :; do sleep 0.1; done",
                    "--grace", "500ms")
    with Stopwatch() as watch:
        local.client()("REVOKE", key)
        assert end(running)[0] == LOST
    assert 0.45 < watch.seconds < patience(4)  # without --grace it would be longer
    assert not tool.processes()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_program_may_tidy_up_when_it_gets_term(tool, local, key, stopped):
    running = begin(tool, local, key,
                    "trap 'touch tidied; exit 0' TERM; touch ready; sleep 100 & wait")
    if stopped:
        running.send_signal(signal.SIGTSTP)
        wait_until(lambda: stopped_ones(tool), "the program is stopped")
    local.client()("REVOKE", key)
    assert end(running)[0] == LOST and (tool.folder / "tidied").exists()


def told_between(client, low_ms, high_ms):
    left_ms = client.lease("r")["ttl_ms"]
    return left_ms if low_ms < left_ms < high_ms else 0


@pytest.mark.alone
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_stopped_daemon_ends_the_program_before_the_ttl_is_over(rig, tool, stubborn):
    daemon = rig.daemon()
    trap = "trap '' TERM; " if stubborn else ""
    running = begin(tool, daemon, "r",
                    trap + "touch ready; while :; do touch alive; sleep 0.02; done", "--ttl", "3s")
    client = daemon.client()
    # Not just before a renewal, which would make it last longer than was told.
    left_ms = wait_until(lambda: told_between(client, 2300, 2700), "a part of it is over")
    told, wall = time.monotonic(), time.time()
    daemon.freeze()
    while time.monotonic() - told > 0.2:  # it may have been renewed meanwhile
        daemon.thaw()
        left_ms = wait_until(lambda: told_between(client, 2300, 2700), "another part of it is over")
        told, wall = time.monotonic(), time.time()
        daemon.freeze()
    status, errors = end(running)
    daemon.thaw()
    assert status == LOST and "could not be renewed" in errors
    ran = (tool.folder / "alive").stat().st_mtime - wall  # a file's times are the wall clock's
    assert Seconds(told, told + ran) < left_ms / 1000, "it ran until the TTL was over"
    assert not tool.processes()


def test_why_a_lease_could_not_be_renewed_is_told(rig, tool):
    daemon = rig.daemon()
    running = begin(tool, daemon, "r", "touch ready; exec sleep 100", "--ttl", "2s")
    daemon.kill()
    status, errors = end(running)
    assert status == LOST
    assert "the lease on r could not be renewed: the daemon cannot be reached; ending" in errors


def test_a_dead_daemon_that_comes_back_in_time_is_not_noticed_by_the_program(rig, redis, tool):
    port = free_port()
    daemon = rig.daemon(lease=redis.uri, listen=(f"127.0.0.1:{port}",))
    running = begin(tool, daemon, "r", UNTIL_GO, "--ttl", "6s")
    client = daemon.client()
    token = client.lease("r")["token"]
    client = restart(rig, daemon, lease=redis.uri, listen=(f"127.0.0.1:{port}",)).client()
    renewed = wait_until(lambda: client.lease("r")["ttl_ms"] > 5000 and client.lease("r"),
                         "it is renewed")
    assert (renewed["token"], running.poll()) == (token, None)
    (tool.folder / "go").touch()
    assert end(running) == (0, "")


def answer(connection, answers):
    """A server that grants once, renews once, and is silent from then on but for greetings."""
    with contextlib.suppress(OSError), connection:
        while asked := connection.recv(4096):
            if b"HELLO" in asked:
                connection.sendall(b"*0\r\n")
            for command in [word for word in answers if word in asked]:
                connection.sendall(answers.pop(command))


def test_a_lease_is_held_for_as_long_as_its_renewal_told_and_no_longer(tool):
    answers = {b"PING": b"+PONG\r\n", b"ACQUIRE": b"*2\r\n:7\r\n:3000\r\n",
               b"RENEW": b":400\r\n"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0], answers),
                                     daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        running = tool.start("-u", "stockade://127.0.0.1:{}".format(server.getsockname()[1]),
                             "lock", "r", "--ttl", "3s", "--", "sleep", "100")
        wait_until(lambda: b"RENEW" not in answers, "it was renewed")
        with within(patience(1.5)):  # and not the 3 s that were asked for
            assert end(running)[0] == LOST


def test_a_release_whose_reply_was_lost_is_repeated_and_is_no_loss(rig, tool):
    daemon = rig.daemon()
    relay = rig.relay(daemon.address)
    running = begin(tool, relay, "r", UNTIL_GO, "--ttl", "60s")
    with relay.losing_reply():
        (tool.folder / "go").touch()
        wait_until(lambda: daemon.client().lease("r")["state"] == "free", "it was released")
    assert end(running) == (0, "")


def test_what_the_program_leaves_behind_is_ended_before_the_release(tool, local, key):
    done = run(tool, local, key, "--", "sh", "-c", "sleep 100 & sleep 100 & exit 3")
    assert done.returncode == 3 and not tool.processes()
    assert local.client().lease(key)["state"] == "free"


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_are_passed_on_to_the_program(tool, local, key, name):
    running = begin(tool, local, key, f"trap 'echo {name} >heard; exit 9' {name}; touch ready; "
                    "while :; do sleep 0.05; done")
    running.send_signal(getattr(signal, f"SIG{name}"))
    assert end(running)[0] == 9 and (tool.folder / "heard").read_text() == f"{name}\n"
    assert local.client().lease(key)["state"] == "free"


def test_a_signal_that_ends_the_program_ends_us_alike(tool, local, key):
    running = begin(tool, local, key, "touch ready; sleep 100")
    running.send_signal(signal.SIGTERM)
    assert end(running)[0] == -signal.SIGTERM and not tool.processes()
    assert local.client().lease(key)["state"] == "free"


def test_a_signal_while_waiting_ends_the_wait_and_leaves_the_line(tool, local, key):
    holder = local.client()
    holder.token(key)
    running = start(tool, local, key, "--", "true")
    holder.await_waiters(key)
    running.send_signal(signal.SIGINT)
    assert end(running)[0] == -signal.SIGINT
    holder.await_waiters(key, 0)


@pytest.mark.parametrize("name", ["INT", "QUIT", "HUP"])
def test_an_ignored_signal_stays_ignored_by_us_and_by_the_program(tool, local, key, name):
    """As under nohup, or behind a shell's `&`: while it waits in line, and with its program."""
    ready, number = tool.folder / "ready", getattr(signal, f"SIG{name}")
    holder = local.client()
    token = holder.token(key)
    running = subprocess.Popen(
        ["sh", "-c", f"trap '' {name}; exec \"$@\"", "sh", BUILD / "stockade", "-u", local.uri,
         "lock", key, "--", "sh", "-c", UNTIL_GO], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=tool.env, text=True, cwd=tool.folder)
    holder.await_waiters(key)
    running.send_signal(number)
    holder("RELEASE", key, token)
    await_file(ready)
    running.send_signal(number)
    (tool.folder / "go").touch()
    assert end(running) == (0, "")


def stopped_ones(tool):
    return {pid for pid, (_, state) in tool.processes().items() if state == "T"}


def test_tstp_stops_the_program_and_cont_continues_it_under_its_lease(tool, local, key):
    running = begin(tool, local, key, f"{UNTIL_GO}; exit 4", "--ttl", "3s")
    running.send_signal(signal.SIGTSTP)
    wait_until(lambda: stopped_ones(tool), "the program is stopped")
    assert running.pid not in stopped_ones(tool), "without a terminal the lease is kept"
    running.send_signal(signal.SIGCONT)
    wait_until(lambda: not stopped_ones(tool), "it goes on")
    (tool.folder / "go").touch()
    assert end(running) == (4, "")


def test_the_whole_tree_dies_with_us_when_we_are_killed(tool, local, key):
    running = begin(tool, local, key,
                    "(sleep 100 & sleep 100) & sleep 100 & touch ready; exec sleep 100")
    running.kill()
    running.wait()
    tool.await_no_process()
    for stream in (running.stdout, running.stderr):
        stream.close()


class Terminal:
    """A shell with job control at a terminal of its own."""

    def __init__(self, tool):
        self.tool = tool
        pid, self.master = pty.fork()
        if pid == 0:
            os.environ.clear()
            os.environ.update(tool.env, PS1="", PATH=f"{BUILD}:{tool.env['PATH']}")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.pid = pid

    def type(self, text):
        os.write(self.master, text.encode())

    def close(self):
        os.close(self.master)
        wait_until(lambda: os.waitpid(self.pid, os.WNOHANG)[0] == self.pid, "the shell ended")


@pytest.fixture
def terminal(tool):
    terminal = Terminal(tool)
    yield terminal
    for pid in set(tool.processes()) - {terminal.pid}:
        os.kill(pid, signal.SIGKILL)
    terminal.close()


def at_terminal(terminal, daemon, key, script, *options):
    path = terminal.tool.folder / "script"
    path.write_text(script)
    terminal.type(f"stockade -u {daemon.uri} lock {key} {' '.join(options)} -- sh {path}; "
                  f"echo $? >{terminal.tool.folder}/status\n")


def test_at_a_terminal_the_program_reads_it_and_ctrl_c_reaches_it(tool, terminal, local, key):
    got, status = tool.folder / "got", tool.folder / "status"
    at_terminal(terminal, local, key,
                f"trap 'exit 8' INT; read word; echo $word >{got}; while :; do sleep 0.05; done")
    wait_until(lambda: (local.client().lease(key) or {}).get("state") == "held", "it is held")
    terminal.type("hello\n")
    await_file(got, "hello")
    terminal.type("\x03")
    await_file(status, "8")


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_ctrl_c_ends_the_loop_of_a_script_around_it(tool, terminal, local, key, shell):
    """As it does around flock or sleep."""
    went_on, ready, status = (tool.folder / name for name in ("went_on", "ready", "status"))
    script = tool.folder / "loop"
    script.write_text(f"while :; do stockade -u {local.uri} lock {key} -- sh -c "
                      f"'touch {ready}; exec sleep 100'; touch {went_on}; done")
    terminal.type(f"{shell} {script}\n")
    await_file(ready)
    wait_until(lambda: any(pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
                           for pid in tool.processes()), "the program runs")
    terminal.type("\x03")
    terminal.type(f"echo $? >{status}\n")  # the shell reads it once it is back at its prompt
    await_file(status, "130")
    assert not went_on.exists() and local.client().lease(key)["state"] == "free"


@pytest.mark.parametrize("taken", [False, True])
def test_ctrl_z_stops_both_and_fg_goes_on_only_with_the_lease(tool, terminal, local, key, taken):
    ready, go, status = tool.folder / "ready", tool.folder / "go", tool.folder / "status"
    done = tool.folder / "done"
    os.mkfifo(go)
    # It waits without a child: dash starts one by vfork, and cannot be stopped while its child is
    # stopped before exec.
    at_terminal(terminal, local, key,
                f"touch {ready}; read word <{go}; touch {done}; exit 5",
                "--ttl", "1500ms")
    await_file(ready)
    client = local.client()
    terminal.type("\x1a")
    client.await_expiry(key)  # it is stopped
    if taken:
        client.token(key)
    opened = os.open(go, os.O_RDWR)  # opened for both it waits for nobody
    os.write(opened, b"on\n")
    status.unlink(missing_ok=True)  # of the stop
    terminal.type(f"fg; echo $? >{status}\n")
    await_file(status, str(LOST if taken else 5))
    os.close(opened)
    assert done.exists() != taken, "it went on only where nobody had taken its lease"


def test_fg_waits_no_longer_than_3_s_for_a_silent_daemon(rig, tool, terminal):
    daemon = rig.daemon()
    ready, status = tool.folder / "ready", tool.folder / "status"
    at_terminal(terminal, daemon, "r", f"touch {ready}; exec sleep 100")
    await_file(ready)
    terminal.type("\x1a")
    wait_until(lambda: len(stopped_ones(tool)) >= 2, "both are stopped")
    status.unlink(missing_ok=True)  # of the stop
    with daemon.frozen(), within(patience(4.5)):  # other calls wait for 5 s
        terminal.type(f"fg; echo $? >{status}\n")
        await_file(status, str(LOST))
