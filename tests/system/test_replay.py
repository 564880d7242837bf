# SPDX-License-Identifier: Apache-2.0
"""`stockade replay`: order history as stock movements, and the books at the end."""

import collections
import gzip
import random
import re
import signal

import pytest

from harness.lax import LaxServer
from harness.limits import HANG_SECONDS, REPO, patience, wait_until
from harness.report import PAUSED, REFUSED, SOLD, WOKEN, of_kind, report

HEADER = "invoice,invoiced_at,sku,quantity,customer\n"
REAL_ORDERS = REPO.parent / "shared" / "data" / "online-retail.csv.gz"


def generate(invoices=300, skus=20, seed=7):
    """Invoices of few SKUs, in order of time: (invoice, time, sku, quantity); some are returns."""
    choose = random.Random(seed)
    orders = []
    for number in range(invoices):
        sign = -1 if choose.random() < 0.05 else 1
        for _ in range(choose.randint(1, 6)):
            orders.append((f"{'C' if sign < 0 else ''}{536000 + number}", 1291191960 + number * 30,
                           f"SKU {choose.randrange(skus)}", sign * choose.randint(1, 12)))
    return orders


def as_csv(orders):
    return HEADER + "".join(f'{i},{at},"{sku}",{quantity},\n' for i, at, sku, quantity in orders)


@pytest.fixture
def orders_file(tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text(as_csv(generate()))
    return path


def numbers(text):
    """Return the figures of the summary."""
    patterns = {
        "lines": r"replayed ([\d,]+) lines", "rate": r": ([\d,]+) lines/s",
        "sales": r"sales ([\d,]+)", "no_stock": r"sold out \(found no stock\) ([\d,]+)",
        "returns": r"returns ([\d,]+)", "stops": r"stopped past their TTL ([\d,]+)",
        "stale": r"refused and done again ([\d,]+)",
        "audited": r"audit: opening - sold \+ returned = left for all ([\d,]+) SKUs",
    }
    return collections.namedtuple("Numbers", patterns)(
        *(int(re.search(p, text)[1].replace(",", "")) for p in patterns.values()))


def replay(tool, *words, daemon=None):
    """Run it, which must succeed; return what it printed."""
    done = tool.run(*(["-u", daemon.uri] if daemon else []), "replay", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(tool, *words, said, status=1, daemon=None):
    done = tool.run(*(["-u", daemon.uri] if daemon else []), "replay", *words)
    assert done.returncode == status
    assert said in done.stderr
    return done


def expect_books(orders, found):
    assert found.lines == len(orders) == found.sales + found.no_stock + found.returns
    assert found.returns == sum(quantity < 0 for *_, quantity in orders)
    assert found.audited == len({sku for _, _, sku, _ in orders})


@pytest.mark.parametrize("lease", ["local:", "redis"])
def test_concurrent_workers_that_are_stopped_keep_the_books(tool, orders_file, lease):
    printed = replay(tool, "--orders", orders_file, "--lease", lease, "--pause-every", 40)
    found = numbers(printed)
    expect_books(generate(), found)
    assert found.sales > 0 and found.no_stock > 0
    assert found.stops > 0 and found.stale > 0
    assert "60 % of each SKU's gross demand" in printed
    assert tool.left_behind() == []
    assert tool.processes() == {}


def test_the_report_holds_what_is_printed(tool, orders_file, tmp_path):
    page = tmp_path / "replay.html"
    printed = replay(tool, "--orders", orders_file, "--pause-every", 40, "--report", page)
    assert f"to be looked at in a browser: {page}" in printed
    found = numbers(printed)
    data = report(page)
    [way] = data["ways"]
    assert (way["lines"], way["sales"], way["returns"], data["skus"]) == (
        found.lines, found.sales, found.returns, found.audited)
    assert len(of_kind(way, REFUSED)) == way["refused"] == found.stale > 0
    assert len(of_kind(way, PAUSED)) == len(of_kind(way, WOKEN)) == found.stops
    assert len(of_kind(way, SOLD)) == found.sales + found.returns and way["right"]
    assert sum(event.value for event in of_kind(way, SOLD) if event.value < 0) == sum(
        quantity for *_, quantity in generate() if quantity < 0)
    refused(tool, "--orders", orders_file, "--report", "/nowhere/x.html",
            said="cannot write /nowhere/x.html: No such file or directory")


def model(orders, percent):
    """Return what one worker leaves of each SKU, and how often it found too few."""
    demand = collections.Counter()
    for _, _, sku, quantity in orders:
        demand[sku] += max(quantity, 0)
    left = {sku: total * percent // 100 for sku, total in demand.items()}
    sold_out = 0
    for _, _, sku, quantity in orders:
        if quantity > left[sku]:
            sold_out += 1
        else:
            left[sku] -= quantity
    return left, sold_out


def test_one_worker_leaves_what_a_model_leaves_piece_by_piece(tool, rig, orders_file):
    daemon = rig.daemon()
    printed = replay(tool, "--orders", orders_file, "--workers", 1, "--limit", 400, "--opening", 35,
                     "--pause-every", 0, daemon=daemon)
    left, sold_out = model(generate()[:400], 35)
    assert numbers(printed).no_stock == sold_out
    client = daemon.client()
    assert {sku: int(client("GET", f"stock:{sku}")) for sku in left} == left


def test_workers_take_the_invoices_in_order_of_time_not_of_the_file(tool, rig, tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text(HEADER + "late,300,A,4,\nearly,100,A,5,\n")
    daemon = rig.daemon()
    replay(tool, "--orders", path, "--workers", 1, daemon=daemon)
    assert daemon.client()("GET", "stock:A") == b"0"  # 5 at the opening: early had them


def test_gzip_is_read_and_a_limit_kept(tool, tmp_path):
    path = tmp_path / "orders.csv.gz"
    path.write_bytes(gzip.compress(as_csv(generate()).encode()))
    printed = replay(tool, "--orders", path, "--limit", 500, "--pause-every", 100)
    expect_books(generate()[:500], numbers(printed))


@pytest.mark.skipif(not REAL_ORDERS.exists(), reason="the data file is not there")
def test_the_first_20000_lines_of_real_orders_keep_the_books(tool):
    found = numbers(replay(tool, "--orders", REAL_ORDERS, "--limit", 20000))
    assert found.lines == 20000
    assert found.audited == 2408
    assert found.stops > 0
    print(f"{found.rate} lines/s, {found.stale} stale writes refused")


MALFORMED = HEADER + """1,100,A,5,
1,100,A
2,101,"A,4,
2,noon,A,4,
3,102,B,0,
3,102,B,2,17850
C4,103,A,-1,
"""


def test_malformed_lines_are_named_counted_and_skipped(tool, tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text(MALFORMED)
    done = tool.run("replay", "--orders", path)
    assert done.returncode == 0
    assert re.findall(r"^line (\d+) skipped: ", done.stderr, re.M) == ["3", "4", "5", "6"]
    assert "3 lines in 3 invoices, 2 SKUs; 4 malformed lines skipped" in done.stdout
    assert numbers(done.stdout).lines == 3


def test_strict_stops_at_the_first_malformed_line(tool, tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text(MALFORMED)
    done = refused(tool, "--orders", path, "--strict",
                   said=f"stockade replay: line 3 of {path}: it has not five columns (--strict)\n")
    assert done.stdout == "" and done.stderr.count("\n") == 1


@pytest.mark.parametrize("content, said", [
    (None, "cannot open"),
    (b"", "is no orders file"),
    (b"sku,quantity\nA,1\n", "is no orders file"),
    (HEADER.encode(), "no order line"),
    (gzip.compress(random.Random(1).randbytes(20000)), "is no orders file"),
    (gzip.compress(as_csv(generate()).encode())[:-500], ": it is cut short"),
], ids=["missing", "empty", "columns", "header", "noise", "cut"])
def test_a_file_that_is_no_orders_is_refused(tool, tmp_path, content, said):
    path = tmp_path / "orders.csv.gz"
    if content is not None:
        path.write_bytes(content)
    refused(tool, "--orders", path, said=said)


def test_where_one_key_is_held_the_others_are_given_back(tool, rig, orders_file):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("stock:SKU 3", 60000)
    refused(tool, "--orders", orders_file, daemon=daemon,
            said="no lease on stock:SKU 3: another holds it")
    assert client("LEASES") == [b"stock:SKU 3"]
    client("RELEASE", "stock:SKU 3", token)
    replay(tool, "--orders", orders_file, "--pause-every", 0, daemon=daemon)


def test_keys_that_are_there_already_are_not_touched(tool, rig, orders_file):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("stock:SKU 3", 10000)
    client.fenced(token, "SET", "stock:SKU 3", "theirs")
    client("RELEASE", "stock:SKU 3", token)
    refused(tool, "--orders", orders_file, daemon=daemon,
            said="stock:SKU 3 is there already; choose another --prefix")
    assert client("GET", "stock:SKU 3") == b"theirs"
    replay(tool, "--orders", orders_file, "--prefix", "mine:", "--pause-every", 0, daemon=daemon)
    assert client("GET", "stock:SKU 3") == b"theirs"


def test_a_server_that_checks_no_tokens_fails_the_audit(tool, orders_file):
    with LaxServer() as server:
        done = refused(tool, "--orders", orders_file, "--opening", 1000, "--limit", 400,
                       "--pause-every", 20, daemon=server, said="audit: SKU ")
    assert "audit FAILED" in done.stdout
    assert re.search(r"^audit: SKU \d+: opening \d+ - sold", done.stderr, re.M)


def test_a_daemon_that_dies_ends_the_replay_with_the_line(tool, rig, orders_file):
    """There is far more to do than is done until then: where only those who are stopped had
    anything left, nobody would notice for ten minutes."""
    daemon = rig.daemon()
    orders_file.write_text(as_csv(generate(100 * 300)))
    running = tool.start("-u", daemon.uri, "replay", "--orders", orders_file, "--pause", "10m",
                         "--pause-every", 5000)
    tool.await_stopped_child(running)
    client = daemon.client()
    wait_until(lambda: client.counter("connected_clients") == 33, "32 workers are connected")
    daemon.kill()
    _, stderr = running.communicate(timeout=patience(HANG_SECONDS))
    assert running.returncode == 1
    assert re.search(r"line \d+: .*(lost|closed|refused|connect)", stderr), stderr
    tool.await_no_process()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_ends_it_with_nothing_left_behind(tool, orders_file, number):
    running = tool.start("replay", "--orders", orders_file, "--pause", "10m", "--pause-every", 50)
    tool.end_with_a_stopped_child(running, number)
