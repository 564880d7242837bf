# SPDX-License-Identifier: Apache-2.0
"""/metrics, read by the parsers of Prometheus's own client: what there is, and what it counts."""

import json
import re
import shutil
import subprocess
import time
import urllib.request

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from harness.limits import HANG_SECONDS, REPO, patience, wait_until

# What Prometheus 2.42 sends.
PROMETHEUS = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
              "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
HISTOGRAMS = {"stockade_command_seconds", "stockade_lease_service_grant_seconds",
              "stockade_wait_seconds", "stockade_store_queue_seconds",
              "stockade_store_commit_seconds", "stockade_store_barrier_seconds"}
GROUPS = {"read", "write", "lease", "wait", "sql", "other"}


def scrape(daemon, accept="*/*"):
    request = urllib.request.Request("http://{}:{}/metrics".format(*daemon.admin),
                                     headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=patience(HANG_SECONDS)) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def families(daemon, accept="*/*"):
    kind, text = scrape(daemon, accept)
    return list((parse_openmetrics if "openmetrics" in kind else parse_text)(text))


class Samples:
    """A scrape: values by name and labels."""

    def __init__(self, daemon):
        self.values = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                       for family in families(daemon) for sample in family.samples}

    def __call__(self, name, **labels):
        return self.values["stockade_" + name, tuple(sorted(labels.items()))]

    def names(self):
        return {name for name, _ in self.values}


@pytest.mark.parametrize("accept, kind", [
    ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
    (PROMETHEUS, "application/openmetrics-text; version=1.0.0; charset=utf-8")])
def test_metrics_are_what_the_scraper_asks_for_and_each_is_explained(local, accept, kind):
    assert scrape(local, accept)[0] == kind
    found = families(local, accept)
    assert len({family.name for family in found}) == len(found) > 40
    for family in found:
        assert family.type in ("counter", "gauge", "histogram"), family.name
        assert len(family.documentation) > 5 and family.samples, family.name


def test_both_formats_say_the_same(rig):
    def shown(accept):
        return {(sample.name, tuple(sample.labels.items()))
                for family in families(daemon, accept) for sample in family.samples}

    daemon = rig.daemon()
    assert shown("*/*") == shown(PROMETHEUS)
    text, openmetrics = (scrape(daemon, accept)[1] for accept in ("*/*", PROMETHEUS))
    assert openmetrics.endswith("\n# EOF\n") and "# EOF" not in text


def test_names_follow_prometheus_conventions(local):
    """https://prometheus.io/docs/practices/naming: base units, _total, a prefix."""
    for family in families(local, PROMETHEUS):
        name = family.name
        assert re.fullmatch(r"(stockade|process)_[a-z_]*[a-z]", name)
        assert not re.search(r"(_ms|_us|millis|micros|_kb|_mb|minutes|hours)(_|$)", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
    assert {family.name for family in families(local) if family.type == "histogram"} == HISTOGRAMS


def test_histograms_are_whole(rig):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("r")
    for i in range(20):
        client.fenced(token, "SET", "r", i)
    for family in families(daemon):
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            series.setdefault(sample.labels.get("group"), []).append(sample)
        for samples in series.values():
            buckets = [s for s in samples if s.name.endswith("_bucket")]
            bounds = [float(s.labels["le"]) for s in buckets]
            assert bounds == sorted(set(bounds))
            assert bounds[0] == 5e-05 and bounds[-2:] == [10, float("inf")]
            counts = [s.value for s in buckets]
            assert counts == sorted(counts)
            (total,) = (s.value for s in samples if s.name.endswith("_count"))
            (taken,) = (s.value for s in samples if s.name.endswith("_sum"))
            assert counts[-1] == total and taken >= 0


def test_commands_are_counted_by_group(rig):
    daemon = rig.daemon()
    client = daemon.client()
    before = Samples(daemon)
    token = client.token("r")
    client.fenced(token, "SET", "r", "v")
    client.multi(("FENCED", token, "SET", "r", "w"))
    client("EXEC")
    client("GET", "r")
    client("MGET", "r", "s")
    client("SQL", "SELECT 1")
    client("RENEW", "r", token, 60000)
    client("LEASE", "r")
    client("RELEASE", "r", token)
    client("PING")
    after = Samples(daemon)
    grown = {group: after("command_seconds_count", group=group) -
             before("command_seconds_count", group=group) for group in GROUPS}
    assert {group: grown[group] for group in ("read", "write", "lease", "wait", "sql")} == {
        "read": 2, "write": 2, "lease": 4, "wait": 0, "sql": 1}
    assert after("leases_granted_total") == before("leases_granted_total") + 1


def test_leases_and_waiters_are_shown_as_they_come_and_go(rig, lease):
    daemon = rig.daemon(lease=lease)
    holder, waiter, late = daemon.client(), daemon.client(), daemon.client()
    token = holder.token("r")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    wait_until(lambda: Samples(daemon)("waiters") == 1, "it waits")
    assert Samples(daemon)("leases_held") == 1 and Samples(daemon)("connections") == 3
    assert late("ACQUIRE", "r", 60000, "WAIT", 300) is None
    holder("RELEASE", "r", token)
    assert waiter.read()[0] > token
    after = Samples(daemon)
    assert after("waiters") == 0 and after("leases_held") == 1
    assert after("wait_seconds_count") == 2 and after("wait_seconds_sum") > 0.5
    assert after("command_seconds_count", group="wait") == 2
    assert after("command_seconds_sum", group="wait") > 0.5
    assert after("lease_service_grant_seconds_count") >= 2
    waiter.close()
    wait_until(lambda: Samples(daemon)("connections") == 2, "one has gone")


def test_a_waiter_that_goes_away_is_counted_no_more(rig):
    daemon = rig.daemon()
    holder, waiter = daemon.client(), daemon.client()
    holder.token("r")
    waiter.send("ACQUIRE", "r", 60000, "WAIT", 60000)
    wait_until(lambda: Samples(daemon)("waiters") == 1, "it waits")
    waiter.close()
    wait_until(lambda: Samples(daemon)("waiters") == 0, "it has gone")
    assert Samples(daemon)("wait_seconds_count") == 1


def test_a_slow_disk_is_seen_in_the_commits_and_a_queue_behind_it(rig):
    daemon = rig.faulty_daemon()
    client, other = daemon.client(), daemon.client()
    tokens = [client.token(name) for name in ("r", "s")]
    before = Samples(daemon)
    rig.faults.order("sync stall")
    client.send("FENCED", tokens[0], "SET", "r", "v")
    rig.faults.await_hit()
    began = time.monotonic()
    other.send("FENCED", tokens[1], "SET", "s", "v")
    wait_until(lambda: time.monotonic() - began > 0.3, "it stands for a time")
    rig.faults.clear()
    assert client.read() == other.read() == "OK"
    after = Samples(daemon)
    assert after("store_commit_seconds_sum") - before("store_commit_seconds_sum") > 0.2
    assert after("store_commit_seconds_count") > before("store_commit_seconds_count")
    assert after("store_queue_seconds_count") - before("store_queue_seconds_count") == 2
    assert after("command_seconds_sum", group="write") > 0.2
    long = [after("store_commit_seconds_bucket", le=bound) for bound in ("0.1", "+Inf")]
    assert long[0] < long[1], "the commit is not among the quick ones"


def test_a_slow_lease_service_is_seen_in_the_time_to_grant(rig):
    redis = rig.redis()
    daemon = rig.daemon(lease=redis.uri)
    client = daemon.client()
    client.token("r")
    client("PING")
    quick = Samples(daemon)("lease_service_grant_seconds_sum")
    other = daemon.client()
    with redis.frozen():
        client.send("ACQUIRE", "s", 60000)
        wait_until(lambda: b"cmd=acquire" in other("CLIENT", "LIST"), "Redis is asked")
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 0.3, "it stands for a time")
    client.read()
    assert Samples(daemon)("lease_service_grant_seconds_sum") - quick > 0.2
    assert Samples(daemon)("lease_service_grant_seconds_count") == 2
    assert Samples(daemon)("command_seconds_sum", group="lease") > 0.2


def test_the_build_and_the_process_are_told(rig):
    began = time.time()
    daemon = rig.daemon()
    values = {sample.name: (sample.labels, sample.value)
              for family in families(daemon) for sample in family.samples
              if family.name.startswith(("stockade_build", "process"))}
    version = daemon.client().info()["stockade_version"]
    assert values["stockade_build_info"] == ({"version": version}, 1)
    assert began - 2 < values["process_start_time_seconds"][1] < time.time() + 2
    assert values["process_cpu_seconds_total"][1] > 0
    assert 1 << 18 < values["process_resident_memory_bytes"][1] < 1 << 32


def test_refusals_are_counted(rig):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("r")
    client("RELEASE", "r", token)
    before = Samples(daemon)
    client.refused("STALE", "FENCED", token, "SET", "r", "v")
    client.refused("NOTOKEN", "SET", "r", "v")
    after = Samples(daemon)
    for name in ("refused_stale_total", "refused_notoken_total"):
        assert after(name) == before(name) + 1


MONITORING = REPO / "tools/monitoring"
OF_PROMETHEUS = {"up"}


def dashboard():
    return json.loads((MONITORING / "dashboard.json").read_text())


def alerts():
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions():
    """What the dashboard and the alerts ask Prometheus, by where it stands."""
    found = {f"{panel['title']}: {target['legendFormat']}": target["expr"]
             for panel in dashboard()["panels"] for target in panel["targets"]}
    found["annotations"] = dashboard()["annotations"]["list"][0]["expr"]
    found |= {alert["alert"]: alert["expr"] for alert in alerts()}
    return found


def test_the_dashboard_and_the_alerts_ask_for_what_there_is(rig):
    exported = Samples(rig.daemon("--audit", rig.folder / "audit.log")).names()
    for where, expression in expressions().items():
        used = set(re.findall(r"\b(?:stockade|process)_\w+|\bup\b", expression))
        assert used and used - OF_PROMETHEUS <= exported, (where, used - exported)
        for label in re.findall(r"sum by \(([^)]*)\)", expression):
            assert set(label.split(", ")) <= {"le", "group", "instance"}, (where, label)
        assert bool(re.search(r"\b(rate|increase)\(", expression)) == bool(
            re.search(r"_(total|bucket|count|sum)\b", expression)), where


def test_each_alert_says_what_it_means_and_how_bad_it_is():
    assert len(alerts()) > 5
    for alert in alerts():
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert len(alert["annotations"]["summary"]) > 10
        assert len(alert["annotations"]["description"]) > 10


def test_the_dashboard_can_be_imported_anywhere():
    """It has no Grafana's own ids in it; which Prometheus it asks is chosen at its top."""
    board = dashboard()
    kinds = {variable["name"]: variable["type"] for variable in board["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "instance": "query"} and "id" not in board
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) > 10
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and panel["title"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_prometheus_takes_the_alerts_and_the_dashboards_questions(tmp_path):
    rules = [{"record": f"question:{i}", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
             for i, expression in enumerate(expressions().values())]
    questions = tmp_path / "questions.yml"
    questions.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    run = subprocess.run(["promtool", "check", "rules", MONITORING / "alerts.yml", questions],
                         capture_output=True, text=True,
                         timeout=patience(HANG_SECONDS), check=False)
    assert run.returncode == 0, run.stdout + run.stderr


READER = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN")
file.execute("SELECT * FROM stockade_fences").fetchall()
print("reads", flush=True)
sys.stdin.read()
"""


def test_a_reader_that_holds_the_log_is_named_and_measured(rig):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("r", 600000)
    reader = subprocess.Popen(["/usr/bin/python3", "-c", READER, rig.store], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout.readline() == "reads\n"
    for i in range(45):
        client.fenced(token, "SET", "r", str(i % 10) * (4 << 20))
    wait_until(lambda: "a reader has kept its snapshot" in daemon.stderr(), "it is logged")
    assert re.search(rf"log has 1\d\d MB .*: python3 \(process {reader.pid}\); end that",
                     daemon.stderr())
    assert daemon.metric("store_log_bytes") > 128 << 20
    wait_until(lambda: daemon.metric("store_oldest_snapshot_seconds") >= 1, "its age is told")
    reader.communicate()
    wait_until(lambda: "nobody holds its write-ahead log" in daemon.stderr(), "it has gone")
    assert daemon.metric("store_oldest_snapshot_seconds") == 0
    client.fenced(token, "SET", "r", "x")
    size = daemon.metric("store_log_bytes")
    client.fenced(token, "SET", "r", "y" * (4 << 20))
    wait_until(lambda: daemon.metric("store_log_bytes") <= size, "its room is used again")
