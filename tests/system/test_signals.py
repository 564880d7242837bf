# SPDX-License-Identifier: Apache-2.0
"""SIGHUP has the options read again; SIGUSR1 and SIGUSR2 are ignored where the log has no file.
None ends the daemon."""

import signal
import time

import pytest

from harness.limits import Wait, wait_until
from test_sql_limits import ENDLESS


class Configured:
    """A daemon with a config file that can be written anew."""

    def __init__(self, rig, *lines, **options):
        self.path = rig.folder / "stockaded.conf"
        self.write(*lines)
        self.daemon = rig.daemon("--config", self.path, **options)

    def write(self, *lines):
        self.path.write_text("".join(line + "\n" for line in lines))

    def hang_up(self, *lines):
        """Write the file and send the signal; return what the log says of it."""
        if lines:
            self.write(*lines)
        start = len(self.daemon.stderr())
        self.daemon.signal(signal.SIGHUP)
        ends = "the options were read again", "stays in force"
        wait_until(lambda: any(end in self.daemon.stderr()[start:] for end in ends),
                   "SIGHUP is done")
        self.daemon.client().ask("PING")
        return self.daemon.stderr()[start:]

    def option(self, name):
        return self.daemon.client()("CONFIG", "GET", name)[1].decode()


def test_sighup_does_not_end_the_daemon_and_says_what_it_read(rig):
    configured = Configured(rig, "log-level = info")
    client = configured.daemon.client()
    token = client.token("r")
    assert "changed: 0" in configured.hang_up()
    assert client("FENCED", token, "SET", "r", "v") == "OK", "who is connected stays so"


def test_sighup_takes_the_options_that_may_change(rig):
    configured = Configured(rig, "log-level = info")
    client = configured.daemon.client()
    client.refused("NOTOKEN", "SET", "k", "v")
    told = configured.hang_up("log-level = debug", "unfenced-writes = allow", "max-waiters = 7",
                              "sql-time-limit = 50", "max-reply-memory = 130")
    assert "changed: 5" in told and "log-level is now 'debug', was 'info'" in told
    assert client("SET", "k", "v") == "OK"
    for name, value in (("log-level", "debug"), ("max-waiters", "7"), ("sql-time-limit", "50"),
                        ("max-reply-memory", "130")):
        assert configured.option(name) == value
    client.refused("ERR", "SQL", ENDLESS + "SELECT max(x) FROM c", text="more than 50 ms")
    configured.hang_up("log-level = error")
    client.refused("NOTOKEN", "SET", "k", "v")
    start = len(configured.daemon.stderr())
    client.ask("SET", "k", "v")
    configured.daemon.signal(signal.SIGUSR1)
    client("PING")
    assert configured.daemon.stderr()[start:] == "", "errors only"


def test_what_takes_a_restart_is_told_and_stays_as_it_is(rig):
    configured = Configured(rig, "max-connections = 100")
    told = configured.hang_up("max-connections = 200", "cache-size = 64", "max-waiters = 9")
    for line, name, value, old in ((1, "max-connections", 200, 100), (2, "cache-size", 64, 128)):
        assert (f"SIGHUP: {configured.path}:{line}: {name} is '{value}' now, and stays '{old}' "
                "until you restart the daemon") in told
    assert configured.option("max-connections") == "100"
    assert configured.option("max-waiters") == "9"


@pytest.mark.parametrize("lines", [["max-waiters = many"], ["nosuch = 1"], ["max-waiters 3"],
                                   ["max-waiters = 3", "password-file = /nosuch/file"], None],
                         ids=str)
def test_a_file_that_cannot_be_read_changes_nothing_and_is_told(rig, lines):
    configured = Configured(rig, "max-waiters = 5")
    if lines is None:
        configured.path.unlink()
    told = configured.hang_up(*lines or ())
    assert " error SIGHUP: " in told and "what was in force stays in force" in told
    assert configured.option("max-waiters") == "5"
    assert configured.daemon.client().ask("GET", "k") is None, "no password either"


def test_a_new_password_counts_from_sighup_on(rig):
    path = rig.folder / "password"
    path.write_text("first\n")
    configured = Configured(rig, f"password-file = {path}")
    old = configured.daemon.client()
    old("AUTH", "first")
    path.write_text("second\n")
    assert "the password has changed" in configured.hang_up()
    assert old("GET", "k") is None, "who is logged in stays so"
    client = configured.daemon.client()
    client.refused("WRONGPASS", "AUTH", "first")
    assert client("AUTH", "second") == "OK"
    assert "stays in force" in configured.hang_up(f"password-file = {rig.folder / 'nosuch'}")
    configured.daemon.client().refused("NOAUTH", "GET", "k")
    assert "no password any more" in configured.hang_up("")
    assert configured.daemon.client()("GET", "k") is None


def test_flags_and_environment_win_over_the_file_as_at_the_start(rig):
    configured = Configured(rig, "max-waiters = 5", env={"STOCKADE_SQL_TIME_LIMIT": "77"})
    assert "changed: 1" in configured.hang_up("max-waiters = 6", "sql-time-limit = 99",
                                              "lease = redis://127.0.0.1:1")
    assert configured.option("sql-time-limit") == "77" and configured.option("lease") == "local:"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_are_ignored_with_a_line_in_the_log(rig, number):
    daemon = rig.daemon()
    daemon.signal(number)
    wait_until(lambda: f"signal {number.value} " in daemon.stderr(), "it is told")
    assert "is ignored" in daemon.stderr() and daemon.client()("PING") == "PONG"


def test_sighup_does_not_end_a_daemon_that_stops_whenever_it_comes(rig):
    for _ in range(10):
        daemon = rig.daemon()
        daemon.signal(signal.SIGTERM)
        limit = Wait()
        while daemon.alive():
            daemon.signal(signal.SIGHUP)
            limit.check("the daemon ends")
            time.sleep(0.0002)  # without a pause SIGTERM may never have its turn
        assert daemon.wait() == 0
