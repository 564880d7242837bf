# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs, finds what does not depend on the machine's speed, and can fail."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import types

import pytest

from harness.limits import BUILD, REPO, patience

sys.path.insert(0, str(REPO / "tools"))
from bench import durable, guard, peers, postgres, report, waiting  # noqa: E402
from bench.measure import Case, Contender  # noqa: E402
from bench.server import BenchError  # noqa: E402


def bench(*words, seconds=50):
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "bench", *map(str, words)], capture_output=True, text=True,
        timeout=patience(seconds), check=False,
        env={**os.environ, "STOCKADE_BUILD": str(BUILD), "PYTHONPATH": str(REPO / "tools"),
             "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def rate(out, label):
    return float(re.search(rf"^  {label} +([\d,]+) ", out, re.M)[1].replace(",", ""))


@pytest.mark.slow  # it starts every contender
def test_contenders_take_turns_and_each_has_its_figures_in_table_and_report(tmp_path):
    out = bench("--quick", "--keys", 1000, "--rounds", 1, "--seconds", "0.2",
                "--only", "write-16-100000", "--out", tmp_path, "--page", tmp_path / "page.md")
    labels = ("Stockade", "Redis SET", "Redis, token checked in Lua", "raw SQLite, unchecked")
    assert all(rate(out, label) > 0 for label in labels)
    report = (tmp_path / "report.html").read_text()
    page = (tmp_path / "page.md").read_text()
    assert all(label in report and f"| {label} |" in page for label in labels)
    assert "<svg" in report and "http" not in report, "with plots, and self-contained"


@pytest.mark.slow  # six servers, and each fills its keys
def test_the_store_in_postgresql_is_measured_beside_direct_connections_near_and_far(tmp_path):
    out = bench("--keys", 1000, "--rounds", 1, "--seconds", "0.2", "--peers",
                "stockade-pg,stockade-pg-2,stockade-pg-2000us,postgres,postgres-2000us",
                "--only", "pg-cycle", "--only", "pg-two", "--only", "pg-read-2000us",
                "--out", tmp_path, seconds=150)
    for label in ("Stockade on PostgreSQL", "PostgreSQL, lease by hand", "PostgreSQL",
                  "Stockade on PostgreSQL, two daemons", "Stockade on PostgreSQL, one daemon"):
        assert rate(out, label) > 0
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert all(figures["p50"] > 2 for figures in results["pg-read-2000us"].values())


def test_a_snapshot_is_held_while_the_contenders_write():
    folder = tempfile.mkdtemp(prefix="stockade-bench-")
    server = postgres.Postgres(f"{folder}/postgres")
    try:
        server.fill(100)
        held = "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND state = " \
            "'idle in transaction'"
        with postgres.old_snapshot({"postgres": server}):
            assert server.sql(held) == "2"
        assert server.sql(held) == "0"
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_a_server_that_lost_what_it_acknowledged_fails_the_benchmark(tmp_path):
    class Forgetful(peers.Redis):
        def spawn(self, command, **options):
            super().spawn([word if word != "yes" else "no" for word in command], **options)

    server = Forgetful(tmp_path / "redis")
    try:
        with pytest.raises(BenchError, match="lost what was acknowledged"):
            durable.check("redis", server, 100)
    finally:
        server.stop()


def test_a_server_that_does_not_reply_fails_the_benchmark(monkeypatch):
    monkeypatch.setattr(waiting, "REPLY_S_MAX", 0.2, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = types.SimpleNamespace(port=silent.getsockname()[1])
        with pytest.raises(BenchError, match="no reply within"):
            waiting.order(server, 1)


def test_the_guard_lets_little_pass_and_nothing_that_it_does_not_know(capsys):
    row = guard.Row(now=10000, base=10000, percent=2.0)
    assert [row.judge(now)[:4] for now in (9790, 9810, 10000, 10190, 10210)] == [
        "LESS", "ok", "ok", "ok", "MORE"]
    assert guard.tell({"ping-16": row}, {"ping-16": 10000}) == 0
    assert guard.tell({}, {"ping-16": 10000}) == 1, "a case without its row"
    assert guard.tell({"gone": row}, {}) == 1, "a row without its case"
    assert "no figure" in (told := capsys.readouterr().out) and "no case" in told


def test_the_guard_lets_no_figure_climb_step_by_step_without_a_word():
    """Each step was within the percent, and was kept."""
    row = guard.Row(now=10300, base=10000, percent=2.0)
    assert "say why" in row.judge(10300)
    row.why = "what the users get for it"
    assert row.judge(10300) == "ok" and row.judge(10600) == "MORE"


def test_the_guard_s_file_has_a_row_for_each_case_and_what_is_written_is_read(tmp_path):
    rows = guard.read_rows()
    assert list(rows) == list(guard.CASES)
    assert all(row.percent >= guard.PERCENT_MIN for row in rows.values())
    guard.write_rows(rows, tmp_path / "rows")
    assert (tmp_path / "rows").read_text() == guard.KNOWN.read_text()


def test_what_a_figure_may_differ_by_comes_from_the_noise():
    assert guard.percent_for([1000, 1001, 1000]) == guard.PERCENT_MIN
    assert guard.percent_for([1000, 1010, 1004]) == guard.NOISE_TIMES


@pytest.mark.slow  # a daemon under callgrind
def test_the_guard_counts_what_a_command_costs_and_what_it_costs_more(monkeypatch):
    monkeypatch.setattr(guard, "ROUNDS", 2)
    monkeypatch.setattr(guard, "CASES", {
        "one": guard.of("PING", trips=50), "two": guard.Case(["PING", "PING"], 16, 50)})
    figures = guard.measure()
    assert figures["one"] > 500
    assert figures["two"] == pytest.approx(2 * figures["one"], rel=0.3)


def test_the_page_has_a_place_for_the_table_of_ratios():
    page = (REPO / "tools/bench/README.md").read_text()
    figures = {"write-1-100000": {"Stockade": {"rate": 30, "p99": 1.5}, "Redis SET": {"rate": 20}}}
    new = report.put_into_page(page, figures)
    assert "| fenced write | 30 | 1.5 ms | 1.50 |  |  |  |  |\n\n<!-- /speed -->" in new
    assert report.put_into_page(new, figures) == new
    grown = {"growth-1000": {"Stockade on PostgreSQL": {"rate": 30}, "PostgreSQL": {"rate": 10},
                             "Stockade on PostgreSQL, pipeline 16": {"rate": 90}}}
    assert "\n\n| store in" in (new := report.put_into_page(page, {**figures, **grown}))
    assert "| 1,000 | 30 | 90 | 3.00 |\n\n<!-- /speed -->" in new
    with pytest.raises(ValueError):
        report.put_into_page("no place", figures)


def test_a_goal_that_is_not_reached_is_called_missed():
    ours, theirs = (Contender(label, label, None) for label in ("ours", "theirs"))
    case = Case("c", "a case", 1, [ours, theirs], {"theirs": 1.0}, ceiling={"p99": 2})
    slow, fast = {"rate": 90, "p99": 3}, {"rate": 100, "p99": 1}
    missed = report.text(case, {"ours": slow, "theirs": fast})
    assert "0.90  1 MISSED" in missed and "p99, ms: 3.00, at most 2: MISSED" in missed
    reached = report.text(case, {"ours": fast, "theirs": slow})
    assert "1.11  1 ok" in reached and "at most 2: ok" in reached
    assert "1 unknown" in report.text(case, {"ours": fast, "theirs": {"rate": 0, "p99": 1}})


@pytest.mark.slow
@pytest.mark.alone
def test_every_case_runs_with_postgresql():
    out = bench("--keys", 2000, "--rounds", 1, "--seconds", 2, "--only", "pg-*", "--only",
                "growth-*", "--peers", ",".join(tag for tag in peers.MAKERS if "p" in tag),
                seconds=400)
    assert len(re.findall(r"^(\S.*)\n +/s ", out, re.M)) == 25, out


@pytest.mark.slow
@pytest.mark.alone
def test_every_case_runs_with_redis_and_sqlite():
    out = bench("--keys", 2000, "--rounds", 1, "--seconds", "0.3",
                "--peers", "stockade,stockade-redis,redis,sqlite", seconds=400)
    titles = re.findall(r"^(\S.*)\n +/s ", out, re.M)
    assert len(titles) >= 20, out
    assert "all served in turn" in out
    assert re.search(r"^stockade: killed after [\d,]+ acknowledged writes", out, re.M)
