# SPDX-License-Identifier: Apache-2.0
"""The log as text and as JSON, in a file that is moved away, and one that cannot be written."""

import datetime
import json
import os
import signal
import subprocess

from harness.limits import BUILD, wait_until
from test_signals import Configured


def entries(text):
    """The lines of a JSON log; each is an object with time, level and message first."""
    assert text.endswith("\n")
    found = [json.loads(line) for line in text.splitlines()]
    for entry in found:
        assert list(entry)[:3] == ["time", "level", "message"]
        assert datetime.datetime.strptime(entry["time"], "%Y-%m-%dT%H:%M:%S.%fZ").year >= 2024
        assert entry["level"] in ("debug", "info", "warn", "error")
    return found


def test_each_line_of_a_json_log_is_an_object(rig):
    daemon = rig.daemon("--log-format", "json")
    client = daemon.client()
    name = 'sku:"1"\\\n\u00e9\x7f'.encode() + b"\xff"
    token = client.token(name)
    client("RELEASE", name, token)
    client.refused("STALE", "FENCED", token, "SET", name, "v")
    wait_until(lambda: "STALE" in daemon.stderr(), "the refusal is in the log")
    told = [entry for entry in entries(daemon.stderr()) if "STALE" in entry["message"]]
    assert len(told) == 1 and told[0]["level"] == "info" and "sku:" in told[0]["message"]


def test_the_format_changes_while_it_runs(rig):
    configured = Configured(rig, "log-format = text")
    assert "log-format is now 'json', was 'text'" in configured.hang_up("log-format = json")
    start = len(configured.daemon.stderr())
    configured.daemon.signal(signal.SIGUSR2)
    wait_until(lambda: "signal 12" in configured.daemon.stderr()[start:], "it is told")
    assert entries(configured.daemon.stderr()[start:])[-1]["level"] == "info"
    configured.hang_up("log-format = text")
    assert " info SIGHUP: the options" in configured.hang_up()


def test_a_log_that_was_moved_away_goes_on_in_a_new_file(rig):
    """As logrotate does: rename, signal, compress the old one."""
    path, moved = rig.folder / "stockade.log", rig.folder / "stockade.log.1"
    daemon = rig.daemon("--log-file", path)
    client = daemon.client()
    assert daemon.stderr() == "" and "leases by local" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0, "names are nobody else's business"
    client.refused("NOTOKEN", "SET", "before", "v")
    path.rename(moved)
    client.refused("NOTOKEN", "SET", "meanwhile", "v")
    daemon.signal(signal.SIGUSR1)
    wait_until(lambda: path.exists() and "goes on here" in path.read_text(), "a new file")
    client.refused("NOTOKEN", "SET", "after", "v")
    assert all(f'"{name}"' in moved.read_text() for name in ("before", "meanwhile"))
    assert '"after"' in path.read_text() and '"after"' not in moved.read_text()
    assert daemon.stderr() == ""


def test_a_log_that_cannot_be_opened_again_stays_where_it_is(rig):
    folder, aside = rig.folder / "log", rig.folder / "aside"
    folder.mkdir()
    daemon = rig.daemon("--log-file", folder / "stockade.log")
    folder.rename(aside)
    daemon.signal(signal.SIGUSR1)
    told = "cannot be opened: No such file or directory; the log stays where it is"
    wait_until(lambda: told in (aside / "stockade.log").read_text(), "it is told")
    assert daemon.client()("PING") == "PONG"


def test_a_log_file_that_cannot_be_opened_ends_the_start(rig):
    for path, why in ((rig.folder, "Is a directory"), ("/nosuch/log", "No such file or directory")):
        run = subprocess.run([BUILD / "stockaded", "--log-file", path, "--listen", "127.0.0.1:0",
                              "--store", f"sqlite:{rig.folder / 's.db'}", "--admin", "off"],
                             capture_output=True, text=True, timeout=30, check=False)
        assert run.returncode == 1 and f"--log-file {path}: {why}" in run.stderr


def test_a_log_that_nobody_reads_holds_nobody_up(rig):
    """stderr is a pipe that is full; when it is read again, the log says what was lost."""
    path = rig.folder / "stderr"
    os.mkfifo(path)
    with open(os.open(path, os.O_RDWR | os.O_NONBLOCK), "r+b", buffering=0) as pipe:
        daemon = rig.daemon(wrapper=("sh", "-c", 'exec "$@" 2> "$0"', path))
        client = daemon.client()
        while pipe.write(b"x" * 4096):
            pass
        for i in range(5):
            client.refused("NOTOKEN", "SET", "k", i)
        assert daemon.get("/health")[0] == 200
        while b"x" in (pipe.read(4096) or b""):
            pass
        daemon.signal(signal.SIGUSR2)
        told = []
        wait_until(lambda: b"signal 12" in (told.append(pipe.read(65536) or b"") or told[-1]),
                   "it is told")
        assert b" warn lines of this log that could not be written before: 5\n" in b"".join(told)
        daemon.stop()


def test_a_full_disk_ends_no_daemon_and_the_lines_lost_are_counted(rig):
    daemon = rig.daemon("--log-file", "/dev/full")
    client = daemon.client()
    before = daemon.metric("log_lines_lost_total")
    client.refused("NOTOKEN", "SET", "k", "v")
    assert daemon.metric("log_lines_lost_total") == before + 1 and client("PING") == "PONG"
