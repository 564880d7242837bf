# SPDX-License-Identifier: Apache-2.0
"""The page, in a real browser: it shows what happens when it happens, and names are text."""

import re
import time
import urllib.parse

import pytest

from harness.browser import Browser
from harness.limits import Seconds, patience
from harness.ports import free_port
from harness.resp import mapped

pytestmark = [pytest.mark.page, pytest.mark.xdist_group("page")]

MANY = 100000
BATCH = 2000
HOSTILE = ["<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "x" * 512,
           "\u05e9\u05dc\u05d5\u05dd:\u05e2\u05d5\u05dc\u05dd", "a\u202etxt.exe", "&amp;&lt;",
           "\u00e9" * 256, "javascript:alert(3)"]
ANY_BYTES = bytes(range(256)) * 2


@pytest.fixture(scope="module")
def browser(module_rig):
    return Browser(module_rig)


def view(resource):
    return "/#/resource/" + urllib.parse.quote(resource, safe="")


def milliseconds(text):
    """What the page's text says of a duration below a minute."""
    match = re.fullmatch(r"([\d.]+) (ms|s)", text)
    assert match, text
    return float(match[1]) * (1000 if match[2] == "s" else 1)


def test_a_lease_appears_within_a_second_of_its_grant(rig, browser):
    daemon = rig.daemon()
    client = daemon.client(name="shop-1")
    with browser.page(daemon) as page:
        page.await_text("#leases-range", "No lease is held")
        begun = time.monotonic()
        token = client.token("order:1", 60000, "OWNER", "checkout")
        page.await_lease("order:1")
        seconds = Seconds(begun)
        print(f"a lease appeared after {seconds * 1000:.0f} ms")
        assert seconds < patience(3)  # a second, where nothing else runs
        row = page.text("#leases tbody tr:not(.spacer)")
        assert "checkout" in row and "shop-1" in row and str(token) in row
        assert page.text("#leases-range") == "rows 1–1 of 1"
        client("RELEASE", "order:1", token)
        page.await_text("#leases-range", "No lease is held")


def test_the_first_line_says_whether_all_is_well(rig, browser):
    redis = rig.redis()
    daemon = rig.daemon(lease=redis.uri)
    with browser.page(daemon) as page:
        page.await_text("#verdict", "All is well.")
        page.await_text("#fact-service", "up")
        redis.kill()
        page.await_text("#verdict", "No lease can be granted")


def test_the_first_line_tells_of_a_command_that_the_store_failed(rig, browser):
    daemon = rig.daemon()
    client = daemon.client()
    with browser.page(daemon) as page:
        page.await_text("#verdict", "All is well.")
        with rig.store_locked():
            client.refused("STORE", "ACQUIRE", "k", 60000)
        client.token("other")
        page.await_text("#verdict", "Commands failed with STORE within the last minute")


def test_a_paused_clients_refusal_says_how_late_it_was_and_who_overtook_it(rig, browser):
    daemon = rig.daemon()
    paused, other = daemon.client(name="paused"), daemon.client(name="other")
    ttl_ms = 400
    with browser.page(daemon) as page:
        asked = time.monotonic()
        token = paused.token("stock", ttl_ms, "OWNER", "slow")
        granted = time.monotonic()
        newer = other.token("stock", 60000, "OWNER", "quick", "WAIT", 20000)
        time.sleep(0.7)  # the pause that the test is about
        wrote = time.monotonic()
        paused.refused("STALE", "FENCED", token, "SET", "stock", "1")
        told = time.monotonic()
        page.wait("document.querySelector('#refusals tbody tr')")
        late = page.text("#refusals .late-by")
        late_ms = milliseconds(late)
        earliest = (wrote - granted) * 1000 - ttl_ms
        latest = (told - asked) * 1000 - ttl_ms
        assert earliest - 50 <= late_ms <= latest + 50
        ended = [mapped(hold) for hold in other("HISTORY", "stock")][1][b"ended_ms"]
        refusal = mapped(other("REFUSALS")[0])
        assert abs(late_ms - (refusal[b"time_ms"] - ended)) <= 50
        row = page.text("#refusals tbody tr")
        assert "paused" in row and f"token {token}" in row and "STALE" in row
        assert "quick" in row and f"token {newer}" in row
        page.click("#refusals .name-link")
        page.wait("document.querySelector('#lane .refusal')")
        assert page.run("return page.locator('#lane .hold').count()") == 2
        words = page.run("return page.locator('#lane .refusal text').textContent()")
        assert words == f"{late} late"
        assert "quick" in page.text("#resource-now")
        assert [cell for cell in page.texts("#history td") if cell.endswith("expired")]


def test_who_holds_it_now_has_a_row_of_the_lane_of_its_own(rig, browser):
    daemon = rig.daemon()
    names = [f"till-{i}" for i in range(12)]
    clients = {name: daemon.client(name=name) for name in names}
    for name in names[:-1]:
        clients[name]("RELEASE", "sku", clients[name].token("sku"))
    clients[names[-1]].token("sku")
    with browser.page(daemon, view("sku")) as page:
        page.wait("document.querySelector('#lane .held')")
        labels = page.run("return page.locator('#lane .label').allTextContents()")
        labels = [label.strip("\u2068\u2069") for label in labels]
        assert labels == ["others", *names[5:]]


CUT = """return page.evaluate(selector => [...document.querySelectorAll(selector)]
    .filter(node => node.scrollWidth > node.clientWidth).map(node => node.textContent), args)"""


def test_owners_and_clients_are_not_cut_beside_empty_space(rig, browser):
    daemon = rig.daemon()
    owner, name = "3f2b8c1e-7a44-4d0e-9c55-0b6a2f1d8e77", "till-of-the-shop-1"
    for resource in ("sku:1", "sku:2"):
        daemon.client(name=name).token(resource, 60000, "OWNER", owner)
    with browser.page(daemon, width=1700) as page:
        page.await_lease("sku:1")
        assert page.run(CUT, "#leases tbody tr:not(.spacer) > *") == []
    with browser.page(daemon, view("sku:1"), width=1280) as page:
        page.wait("document.querySelector('#history .name')")
        assert page.run(CUT, "#history .name") == []


def test_long_names_are_cut_and_push_nothing_out_of_sight(rig, browser):
    daemon = rig.daemon()
    holder, waiter = daemon.client(name="c" * 60), daemon.client(name="d" * 60)
    token = holder.token("sku", 60000, "OWNER", "o" * 400)
    waiter.send("ACQUIRE", "sku", 60000, "WAIT", 60000, "OWNER", "p" * 400)
    daemon.client(name="e" * 60).refused("UNKNOWN", "FENCED", token + 1, "SET", "sku", 1)
    with browser.page(daemon, view("sku")) as page:
        page.wait("document.querySelector('#waiters .name')")
        page.wait("document.querySelector('#refused .name')")
        for tables in ("#history", "#waiters", "#refused"):
            assert page.run(CUT, f"{tables} td .name") != [], tables
            assert page.run(CUT, tables) == [], tables


def test_revoking_names_what_it_ends_and_wants_a_reason(rig, browser):
    daemon = rig.daemon()
    holder = daemon.client(name="shop-7")
    token = holder.token("till", 60000, "OWNER", "cashier")
    with browser.page(daemon, view("till")) as page:
        page.click("#revoke")
        named = page.text("#revoke-dialog")
        assert all(word in named for word in ("till", "cashier", "shop-7", str(token)))
        page.click("#revoke-confirm")  # without a reason
        page.click("#revoke-cancel")
        assert holder.fenced(token, "SET", "till", "1") == "OK"
        page.click("#revoke")
        page.fill("#revoke-reason", "the night shift left it open")
        page.click("#revoke-confirm")
        page.await_text("#notice", f"Token {token} is revoked.")
        page.await_text("#resource-now", "Free.")
        holder.refused("STALE", "FENCED", token, "SET", "till", "2")
        assert "the night shift left it open" in daemon.log()
        assert "the night shift left it open" in page.text("#history")


def test_a_lease_that_changed_hands_is_not_revoked(rig, browser):
    daemon = rig.daemon()
    first, second = daemon.client(), daemon.client()
    token = first.token("till", 60000)
    with browser.page(daemon, view("till"), expect="status of 409") as page:
        page.click("#revoke")
        first("RELEASE", "till", token)
        newer = second.token("till", 60000)
        page.await_text("#resource-now", f"with token {newer}")
        page.fill("#revoke-reason", "too late")
        page.click("#revoke-confirm")
        page.await_text("#revoke-error", "Nothing was revoked")
        assert second.fenced(newer, "SET", "till", "1") == "OK"


def test_who_locks_without_presenting_tokens_is_pointed_out(rig, browser):
    daemon = rig.daemon("--lock-keys", "lock:*")
    client = daemon.client()
    with browser.page(daemon) as page:
        page.await_text("#verdict", "All is well.")
        assert client("SET", "lock:sku", "v-1", "NX", "PX", 60000) == "OK"
        assert client("DEL", "lock:sku") == 1
        page.await_text("#verdict", "1 locks of lock keys ended without a write under their token")


def test_values_are_shown_where_the_daemon_was_told_so(rig, browser):
    hiding = rig.daemon()
    showing = rig.daemon("--page-values", "show", store=f"sqlite:{rig.folder / 'other.db'}")
    for daemon, shown in (hiding, False), (showing, True):
        client = daemon.client()
        client("FENCED", client.token("order:1"), "ID", "<i>7</i>", "SET", "order:1",
               "<b>for Ada</b>")
        with browser.page(daemon, view("order:1")) as page:
            page.await_text("#resource-now", "Held by")
            assert page.run("return page.locator('#value').isVisible()") == shown
            assert ("<b>for Ada</b>" in page.text("#resource")) == shown
            assert "<i>7</i>" in page.text("#receipts")
            assert ("+OK" in page.text("#receipts")) == shown


def test_a_resource_that_is_opened_again_is_shown_again(rig, browser):
    daemon = rig.daemon()
    daemon.client().token("order:1", 600000, "OWNER", "checkout")
    with browser.page(daemon) as page:
        for _ in range(2):
            page.await_lease("order:1")
            page.click("#leases .name-link")
            page.await_text("#resource-now", "Held by checkout")
            page.click(".back")


def test_nothing_of_a_resource_is_shown_with_another(rig, browser):
    daemon = rig.daemon("--page-values", "show")
    client = daemon.client()
    client("FENCED", client.token("order:1"), "SET", "order:1", "for Ada")
    with browser.page(daemon, view("order:1"), expect="status of 400") as page:
        page.await_text("#value", "for Ada")
        page.run("await page.evaluate(() => { location.hash = '#/resource/' + 'x'.repeat(600); })")
        page.await_text("#resource-now", "The resource cannot be shown")
        assert "for Ada" not in page.text("#resource")


def test_a_hundred_thousand_leases_scroll(rig, browser):
    daemon = rig.daemon()
    client = daemon.client()
    for at in range(0, MANY, BATCH):
        replies = client.pipeline([("ACQUIRE", f"order:{n:06}", 600000)
                                   for n in range(at, at + BATCH)])
        assert all(isinstance(reply, list) for reply in replies)
    with browser.page(daemon) as page:
        page.await_text("#leases-range", "of 100,000")
        page.click("#leases [data-sort=resource]")
        page.await_lease("order:000000")
        for share in (0.25, 0.5, 0.75, 1):
            page.run("await page.evaluate((share) => { const region = document.querySelector("
                     "'#leases-region'); region.scrollTop = region.scrollHeight * share; }, args)",
                     share)
            page.await_lease(f"order:{min(MANY - 1, int(MANY * share)):06}")
        assert page.text("#leases-range").endswith("–100,000 of 100,000")
        assert page.run("return page.locator('#leases tbody tr').count()") < 250
        page.fill("#filter", "order:04217*")
        page.await_text("#leases-range", "rows 1–10 of 10 that match, 100,000 in all")


def test_the_page_survives_the_daemons_restart(rig, browser):
    admin = f"127.0.0.1:{free_port()}"
    daemon = rig.daemon(admin=admin)
    with browser.page(daemon, expect="net::ERR_") as page:
        page.await_text("#verdict", "All is well.")
        daemon.stop()
        page.await_text("#verdict", "The daemon does not answer since")
        daemon = rig.daemon(admin=admin)
        page.await_text("#verdict", "The daemon was started again at")
        daemon.client().token("order:1")
        page.await_lease("order:1")


def test_names_are_shown_as_text(rig, browser):
    daemon = rig.daemon()
    client = daemon.client()
    for name in HOSTILE:
        client.token(name, 60000, "OWNER", name[:100])
    client.token(ANY_BYTES)
    for width in (1280, 375):
        with browser.page(daemon, width=width) as page:
            for name in HOSTILE:
                page.await_lease(name)
            assert page.run("return page.locator('main img, main script').count()") == 0
            assert not page.wider_than_the_window()
            for name in HOSTILE:
                page.run("await page.evaluate((hash) => { location.hash = hash; }, args)",
                         view(name)[2:])
                page.wait("document.querySelector('#resource-name bdi')?.textContent === args",
                          name)
                page.await_text("#resource-now", "Held by")
                assert page.run("return page.locator('main img, main script').count()") == 0
                assert not page.wider_than_the_window()


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 1280), ("light", 375)])
def test_nothing_serious_stands_in_the_way_of_a_screen_reader(rig, browser, scheme, width):
    daemon = rig.daemon()
    holder, waiter = daemon.client(name="shop-1"), daemon.client(name="shop-2")
    old = holder.token("order:1", 60000)
    holder("RELEASE", "order:1", old)
    holder.token("order:1", 60000)
    holder.refused("STALE", "FENCED", old, "SET", "order:1", "1")
    waiter.send("ACQUIRE", "order:1", 1000, "WAIT", 60000)
    holder.await_waiters("order:1")
    with browser.page(daemon, scheme=scheme, width=width) as page:
        page.await_lease("order:1")
        page.wait("document.querySelector('#refusals tbody tr')")
        assert page.serious() == []
        assert not page.wider_than_the_window()
        page.click("#leases .name-link")
        page.wait("document.querySelector('#lane .hold')")
        assert page.serious() == []
        assert not page.wider_than_the_window()
        page.click("#revoke")
        assert page.serious() == []


def test_the_keyboard_sorts_moves_opens_and_goes_back(rig, browser):
    daemon = rig.daemon()
    client = daemon.client()
    for n in range(60):
        client.token(f"order:{n:02}")
    with browser.page(daemon) as page:
        page.await_lease("order:00")
        page.run("await page.focus('#leases [data-sort=resource]')")
        page.press("Enter")
        page.wait("document.querySelector('[data-sort=resource]').parentNode"
                  ".getAttribute('aria-sort') === 'ascending'")
        page.wait("document.querySelector('#leases .name-link').textContent === 'order:00'")
        page.run("await page.focus('#leases .name-link[tabindex=\"0\"]')")
        page.press("Home", "ArrowDown", "ArrowDown")
        assert page.focused() == "order:02"
        page.press("End")
        page.wait("document.activeElement.textContent === 'order:59'")
        page.press("Enter")
        page.await_text("#resource-name", "order:59")
        page.press("Escape")
        page.await_text("#leases-title", "Leases")
