# SPDX-License-Identifier: Apache-2.0
"""`stockade demo`: who oversells when buyers are stopped; nothing is left behind."""

import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from harness.demo import baskets, in_postgresql, table
from harness.lax import LaxServer
from harness.limits import BUILD, HANG_SECONDS, patience, wait_until, within
from harness.programs import read_until
from harness.report import report
from harness.tool import Tool

PIECES = 8 * 20


def stops(text, title):
    return int(re.search(rf"^  {re.escape(title)} .* (\d+) stops", text, re.M)[1])


def expect_all(rows):
    assert rows["no lock"].oversold > 0
    assert rows["Redis lock"].oversold > 0
    for row in rows.values():
        assert row.oversold == row.sold - (100 - row.left)
    for stockade in [row for title, row in rows.items() if "Stockade" in title]:
        assert (stockade.sold, stockade.left, stockade.oversold) == (100, 0, 0)
        assert stockade.tried == stockade.refused


@pytest.mark.slow  # `make demo`, which runs before each change, runs the same
def test_with_default_options_the_locks_oversell_and_stockade_does_not(tool):
    with within(patience(60)):
        shown = tool.output("demo", "oversell")
    rows = table(shown)
    assert list(rows) == ["no lock", "Redis lock", "Redis lock, watchdog", "redis-py's Lock",
                          "atomic decrement", "version column", "Stockade", "Stockade, no daemon",
                          "redis-py, Stockade"]
    expect_all(rows)
    for lock in "Redis lock", "Redis lock, watchdog", "redis-py's Lock":
        assert rows[lock].oversold > 0 and rows[lock].tried > 0 and rows[lock].refused == 0
    assert rows["atomic decrement"][:5] == (100, 0, 0, 0, 0)
    assert rows["version column"][:3] == (100, 0, 0)
    assert rows["version column"].tried == rows["version column"].refused > 0
    for title in "Stockade", "Stockade, no daemon", "redis-py, Stockade":
        assert rows[title].refused > 0
    for title in rows.keys() - {"atomic decrement"}:  # over too soon to count on
        assert stops(shown, title) == 6
    assert "\r" not in shown and "\033" not in shown
    tool.expect_nothing_left()


@pytest.mark.parametrize("contender, title", [
    ("redis-lock", "Redis lock"), ("stockade", "Stockade"),
    ("redis-py-stockade", "redis-py, Stockade"),
    pytest.param("watchdog", "Redis lock, watchdog", marks=pytest.mark.slow),
    pytest.param("library", "Stockade, no daemon", marks=pytest.mark.slow),
    pytest.param("redis-py", "redis-py's Lock", marks=pytest.mark.slow)])
def test_each_stop_happens_however_short_the_time_between_read_and_write(tool, contender, title):
    shown = tool.output("demo", "oversell", "--contender", contender, "--stock", 20,
                        "--stops", 20, "--work", 0, "--ttl", 50)
    assert stops(shown, title) == 20


def expect_whole_baskets(row):
    """Every piece is in a stock or in exactly one order of a confirmed basket."""
    assert row.left >= 0 and row.pieces + row.left == PIECES
    assert (row.oversold, row.twice, row.orders_off) == (0, 0, 0)
    assert row.stale == row.refused


def test_baskets_on_redis_oversell_and_sell_twice_and_on_stockade_they_do_not(tool):
    with within(patience(20)):
        shown = tool.output("demo", "basket")
    rows = baskets(shown)
    assert list(rows) == ["Redis locks", "Stockade"]
    redis = rows["Redis locks"]
    assert redis.oversold > 0 and redis.twice > 0 and redis.stale > 0 and redis.refused == 0
    assert 3 < redis.orders_off <= 6, "the repeated ones"
    expect_whole_baskets(rows["Stockade"])
    assert rows["Stockade"].refused > 0
    assert len(re.findall(r", [3-6] stops, 6 replies lost: ", shown)) == 2
    assert "the books balance" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert "\r" not in shown
    tool.expect_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("run", range(20))
def test_in_20_runs_of_20_redis_oversells_and_stockade_does_not(tool, run):
    expect_all(table(tool.output("demo", "oversell", "--contender", "none", "--contender",
                                 "redis-lock", "--contender", "stockade")))
    rows = baskets(tool.output("demo", "basket"))
    assert rows["Redis locks"].oversold > 0 and rows["Redis locks"].twice > 0
    expect_whole_baskets(rows["Stockade"])


@pytest.mark.slow
def test_stops_alone_and_lost_replies_alone_are_told_apart(tool):
    shown = tool.output("demo", "basket", "--losses", 0)
    redis = baskets(shown)["Redis locks"]
    assert redis.oversold > 0 and (redis.twice, redis.orders_off) == (0, 0)
    expect_whole_baskets(baskets(shown)["Stockade"])
    shown = tool.output("demo", "basket", "--stops", 0, "--ttl", "5s")
    redis = baskets(shown)["Redis locks"]
    assert redis.twice > 0 and redis.orders_off > 3 and redis.stale == 0
    expect_whole_baskets(baskets(shown)["Stockade"])


@pytest.mark.parametrize("words, said", [
    (("oversell",), r"Stockade  +\d+  +-?\d+  +[1-9]\d*  +[1-9]"),
    (("basket", "--stock", 10, "--losses", 0), "[1-9][0-9]* pieces oversold, 0 sold twice"),
    (("basket", "--stock", 10, "--stops", 0, "--ttl", "5s"),
     "pieces oversold, [1-9][0-9]* sold twice")],
    ids=["no tokens checked", "no tokens of baskets checked", "no IDs kept"])
def test_a_server_that_does_not_check_breaks_the_promise_and_the_demo_exits_with_1(tool, words,
                                                                                   said):
    with LaxServer() as server:
        done = tool.run("-u", server.uri, "demo", *words, "--contender", "stockade")
    assert done.returncode == 1
    assert "did not keep its promise" in done.stderr
    assert re.search(said, done.stdout), done.stdout


@pytest.mark.parametrize("words", [
    ("basket", "--stock", 5, "--stops", 1, "--losses", 1),
    ("oversell", "--stock", 20, "--stops", 1, "--contender", "redis-lock", "--contender", "version",
     "--contender", "stockade")], ids=lambda words: words[0])
def test_running_servers_are_used_where_they_are_named_and_left_clean(tool, rig, redis, words):
    daemon = rig.daemon(lease=redis.uri)
    redis("SET", "theirs", "kept")
    shown = tool.output("-u", daemon.uri, "demo", *words, "--redis", redis.uri + "/1")
    assert "private" not in shown
    if words[0] == "oversell":
        assert table(shown)["Stockade"][:3] == (20, 0, 0)
    client = daemon.client()
    assert client("DBSIZE") == 0
    assert client("SQL", "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'demo%'")[3] == [
        [b"0"]]
    client = redis.client()
    assert client("GET", "theirs") == b"kept"
    client("SELECT", 1)
    assert client("DBSIZE") == 0
    assert tool.left_behind() == []


def test_a_contender_that_lacks_something_is_left_out_unless_it_was_named(tool, rig):
    (rig.folder / "redis.py").write_text("raise ImportError\n")
    tool.env["PYTHONPATH"] = str(rig.folder)
    small = ["--stock", 5, "--stops", 0]
    shown = tool.output("demo", "oversell", *small)
    assert shown.count("left out: there is no redis-py: apt-get install python3-redis") == 2
    assert len(table(shown)) == 7
    done = tool.run("demo", "oversell", *small, "--contender", "redis-py")
    assert done.returncode == 1 and "there is no redis-py" in done.stderr
    del tool.env["PYTHONPATH"]
    shown = tool.output("-u", rig.daemon().uri, "demo", "oversell", *small)
    assert re.search("redis-py, Stockade  +left out: .* with --lock-keys 'lock:\\*'", shown)
    assert "redis-py's Lock" in table(shown)


def test_a_unix_socket_and_a_private_redis_go_together(tool, rig):
    path = rig.folder / "stockade.sock"
    rig.daemon(listen=[f"unix:{path}"])
    shown = tool.output("-u", f"stockade+unix:{path}", "demo", "oversell", "--stock", 10,
                        "--stops", 1, "--contender", "decrement", "--contender", "stockade")
    assert table(shown)["Stockade"][:3] == (10, 0, 0)


@pytest.fixture
def sql_tool():
    """In a folder that the user postgres can pass through, who runs the server for root."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stockade-test-"))
    folder.chmod(0o711)
    tool = Tool(folder)
    yield tool
    for pid in tool.processes():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)


def test_in_postgresql_the_plain_lock_oversells_and_the_guard_refuses_what_is_late(sql_tool):
    page = sql_tool.folder.parent / "sale.html"
    shown = sql_tool.output("demo", "oversell", "--store", "postgresql", "--stock", 20,
                            "--stops", 2, "--report", page, timeout=100)
    rows = in_postgresql(shown)
    ways = {way["title"]: way for way in report(page)["ways"]}
    assert list(ways) == list(rows)
    for title, row in rows.items():
        assert (ways[title]["stale"], ways[title]["refused"]) == (row.tried, row.refused)
    assert list(rows) == ["plain lock", "row lock", "version column", "Stockade's guard"]
    plain, row, version, guard = rows.values()
    assert plain.oversold == plain.sold - 20 > 0 and plain.tried > 0 and plain.refused == 0
    for right in row, version, guard:
        assert (right.sold, right.left, right.oversold) == (20, 0, 0)
        assert right.tried == right.refused
    assert row.refused == 0 and version.refused > 0 and guard.refused > 0
    assert row.stood_ms >= 400, "as long as a holder was stopped"
    assert row.busy_ms > 1.2 * row.stood_ms, "15 buyers wait on their connections"
    assert row.busy_ms > guard.busy_ms
    for title in rows:
        assert stops(shown, title) == 2
    assert max(map(len, shown.splitlines())) <= 100
    sql_tool.expect_nothing_left()


def test_a_postgresql_that_is_named_is_used_and_left_as_it_was(tool, postgres):
    def everything():
        return postgres.sql("SELECT datname FROM pg_database ORDER BY 1")
    before = everything()
    shown = tool.output("demo", "oversell", "--store", postgres.uri("postgres", user="postgres"),
                        "--contender", "guard", "--stock", 10, "--stops", 1)
    assert "private PostgreSQL" not in shown and "private stockaded" in shown
    assert in_postgresql(shown)["Stockade's guard"][:3] == (10, 0, 0)
    assert everything() == before
    tool.expect_nothing_left()


@pytest.mark.parametrize("contender", [pytest.param("row-lock", marks=pytest.mark.slow), "guard"])
def test_a_private_postgresql_goes_with_a_signal_and_with_a_kill(sql_tool, contender):
    words = ("demo", "oversell", "--store", "postgresql", "--contender", contender, "--stock", 10,
             "--pause", "10m")
    running = sql_tool.start(*words)
    sql_tool.await_stopped_child(running, 60)
    running.send_signal(signal.SIGTERM)
    _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
    assert running.returncode == -signal.SIGTERM and "interrupted" in stderr
    assert sql_tool.left_behind() == []
    sql_tool.await_no_process()
    running = sql_tool.start(*words)
    sql_tool.await_stopped_child(running, 60)
    running.kill()
    running.communicate(timeout=patience(HANG_SECONDS))
    sql_tool.await_no_process()


def test_a_postgresql_that_cannot_be_used_is_named_in_one_line(tool, postgres):
    for uri, said in (("postgresql://x@127.0.0.1:1/x", "port 1 failed: Connection refused"),
                      (postgres.uri("postgres"), "permission denied to create database"),
                      (postgres.uri("nowhere"), 'database "nowhere" does not exist')):
        done = tool.run("demo", "oversell", "--store", uri)
        assert done.returncode == 1 and re.fullmatch(f".*{said}.*\n", done.stderr), done.stderr
    tool.expect_nothing_left()


@pytest.mark.skipif(os.getuid() != 0, reason="hides a folder from the demo")
def test_where_postgresql_is_not_installed_it_is_named_in_one_line(tool):
    tool.env["PATH"] = "/nowhere"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /usr/lib/postgresql && exec "$@"',
         "sh", BUILD / "stockade", "demo", "oversell", "--store", "postgresql"],
        env={**tool.env, "PATH": os.environ["PATH"].replace("/usr/local/bin:", "")},
        capture_output=True, text=True, timeout=patience(HANG_SECONDS), check=False)
    assert done.returncode == 1 and re.fullmatch(
        ".*is it installed.* apt-get install postgresql.*cannot run initdb.*\n", done.stderr)
    assert tool.left_behind() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
                         ids=lambda number: number.name)
@pytest.mark.parametrize("demo, contender", [
    ("oversell", "watchdog"), ("oversell", "redis-py"), ("oversell", "stockade"),
    ("basket", "redis-locks"),
    ("basket", "stockade")])
def test_a_signal_ends_it_with_nothing_left_behind_though_a_buyer_is_stopped(tool, demo, contender,
                                                                             number):
    # A small sale of baskets whose replies get lost may be over before anybody is stopped.
    only_stops = ["--losses", 0] if demo == "basket" else []
    running = tool.start("demo", demo, "--contender", contender, "--stock", 10, "--pause", "10m",
                         *only_stops)
    tool.end_with_a_stopped_child(running, number)


def test_no_process_outlives_a_demo_that_is_killed(tool):
    running = tool.start("demo", "oversell", "--contender", "stockade", "--stock", 1000,
                         "--stops", 999, "--pause", "10m")
    tool.await_stopped_child(running)
    wait_until(lambda: len(tool.processes()) > 16, "all buyers are there; they stop one by one")
    running.kill()
    running.communicate(timeout=patience(HANG_SECONDS))
    tool.await_no_process()


def test_a_reader_that_leaves_does_not_keep_it_from_cleaning_up(tool):
    running = tool.start("demo", "oversell", "--contender", "redis-lock", "--stock", 20)
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=patience(HANG_SECONDS)) == 0
    running.stderr.close()
    tool.expect_nothing_left()


def test_on_a_terminal_one_line_shows_the_progress(tool):
    ours, theirs = pty.openpty()
    words = [BUILD / "stockade", "demo", "oversell", "--contender", "redis-lock"]
    running = subprocess.Popen(words, env=tool.env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = read_until(ours, timeout=30)
    os.close(ours)
    assert running.wait(timeout=patience(HANG_SECONDS)) == 0
    shown = re.findall(r"\r\033\[KRedis lock +sold (\d+)  left \d+  stopped (\d) of 6", text)
    assert len(shown) > 5
    assert [int(sold) for sold, _ in shown] == sorted(int(sold) for sold, _ in shown)
    assert int(shown[-1][1]) >= 3
    assert table(text.replace("\r\n", "\n"))["Redis lock"].oversold > 0


def test_settings_of_the_users_own_daemon_do_not_reach_the_private_one(tool, tmp_path):
    tool.env.update(STOCKADE_LISTEN="unix:/nonexistent/socket",
                    STOCKADE_PASSWORD_FILE="/nonexistent",
                    STOCKADE_STORE=f"sqlite:{tmp_path}/theirs.db")
    tool.output("demo", "oversell", "--contender", "stockade", "--stock", 5, "--stops", 0)
    assert not (tmp_path / "theirs.db").exists()


@pytest.mark.parametrize("path, words, said", [
    (None, ("redis-lock", "--limit", "1s", "--stock", 10000), "not over within 1 s"),
    (None, ("none", "--redis", "redis://127.0.0.1:1"),
     "cannot connect to 127.0.0.1:1: Connection refused"),
    ("/nowhere", ("none",),
     "private redis-server did not start.*cannot run redis-server: No such file")],
    ids=["too slow", "unreachable", "no redis-server"])
def test_a_demo_that_cannot_go_on_says_why(tool, path, words, said):
    tool.env["PATH"] = path or tool.env["PATH"]
    done = tool.run("demo", "oversell", "--contender", *words)
    assert done.returncode == 1 and re.search(said, done.stderr), done.stderr
    assert tool.left_behind() == []
