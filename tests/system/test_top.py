# SPDX-License-Identifier: Apache-2.0
"""`stockade top`: leases, waiters and rates on a terminal, and as JSON."""

import json
import signal

import pytest

from harness.limits import BUILD, environment, within
from harness.ports import free_port
from harness.terminal import Terminal

OK, USAGE, UNREACHABLE = 0, 2, 69
HEADS = ["RESOURCE", "OWNER", "TOKEN", "LEFT", "WAITERS"]


@pytest.fixture
def top():
    opened = []

    def start(uri, *words, **options):
        opened.append(Terminal([BUILD / "stockade", "-u", uri, "top", "--every", "100ms", *words],
                               environment(), **options))
        return opened[-1]
    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture
def key(key):
    """A short one, which the screen does not cut."""
    return "r" + key.rpartition(":")[2]


def rows(lines):
    """The leases that are shown, by their resource: the other cells."""
    head = next((i for i, line in enumerate(lines) if line.split() == HEADS), len(lines))
    return {line.split()[0]: line.split()[1:] for line in lines[head + 1:-1] if line}


def test_it_shows_leases_with_those_first_for_which_one_waits(top, local, key):
    client = local.client()
    for n in range(3):
        client.token(f"{key}/{n}", 60000, "OWNER", f"ann{n}")
    waiter = local.client()
    waiter.send("ACQUIRE", f"{key}/1", 60000, "WAIT", 50000)
    terminal = top(local.uri, key + "/*")
    lines = terminal.await_text("ann0", "ann1", "ann2", " 1 waiting", "each second: ", "quit")
    shown = rows(terminal.await_lines(lambda lines: len(rows(lines)) == 3, "three leases"))
    assert list(shown) == [f"{key}/1", f"{key}/0", f"{key}/2"]
    assert shown[f"{key}/1"][0] == "ann1" and shown[f"{key}/1"][-1] == "1"
    assert all(len(line) <= 80 for line in lines)
    client("REVOKE", f"{key}/0")
    terminal.await_text("ann1", gone=["ann0"])


def test_a_lease_appears_and_rates_are_counted(top, local, key):
    terminal = top(local.uri)
    terminal.await_text("0.0 grants")
    client = local.client()
    token = client.token(key, 60000, "OWNER", "late")

    def counted(lines):
        client.fenced(token, "SET", key, 1)
        return any("each second" in line and " 0.0 writes" not in line for line in lines)
    terminal.await_lines(counted, "writes are counted")
    terminal.await_text("late")


def test_keys_sort_filter_pause_and_quit(top, local, key):
    client = local.client()
    for name, owner in ("a", "zoe"), ("b", "yan"), ("c", "xia"):
        client.token(f"{key}-{name}", 60000, "OWNER", owner)
    terminal = top(local.uri, key + "*")

    def await_order(names):
        terminal.await_lines(lambda lines: [name[-1] for name in rows(lines)] == list(names), names)
    terminal.await_text("zoe", "by waiters")
    terminal.press("r")
    terminal.await_text("by resource")
    await_order("abc")
    terminal.press("r")
    terminal.await_text("turned")
    await_order("cba")
    terminal.press("o")
    terminal.await_text("by owner", gone=["by resource"])
    await_order("cba")
    terminal.press("/-b")
    terminal.await_text("filter: -b_", "yan", gone=["zoe"])
    terminal.press("\n")
    terminal.await_text("filter: -b", "q quit", gone=["-b_"])
    terminal.press("/\x1b")
    terminal.await_text("zoe", gone=["filter:"])
    terminal.press("/*-[ac]")
    terminal.await_text("xia", "zoe", gone=["yan"])
    terminal.press("\x7f\x7f\x7f\x7f\x7f\x7f\n")
    terminal.await_text("xia", "yan", gone=["filter:"])
    terminal.press("p")
    terminal.await_text("PAUSED")
    client("REVOKE", f"{key}-a")
    terminal.press("r")
    terminal.await_text("zoe", "by resource")
    terminal.press("p")
    terminal.await_text("xia", gone=["zoe", "PAUSED"])
    terminal.press("q")
    assert terminal.await_end() == OK


def test_it_scrolls_and_fits_the_terminal_when_that_changes(top, local, key):
    client = local.client()
    client.pipeline([("ACQUIRE", f"{key}/{n:03}", 60000) for n in range(100)])
    terminal = top(local.uri, key + "/*", "--sort", "resource")
    terminal.await_text("1 to 18 of 100", "/017", gone=["/018"])
    terminal.press("\x1b[6~")
    terminal.await_text("19 to 36 of 100", "/035")
    terminal.press("\x1b[A")
    terminal.await_text("18 to 35 of 100")
    terminal.resize(40, 120)
    terminal.await_text("18 to 51 of 100", "/050")
    assert len(terminal.lines()) == 40
    for lines, columns in (10, 40), (3, 10), (1, 1), (24, 80):
        terminal.resize(lines, columns)
    terminal.await_text("RESOURCE", "WAITERS", "of 100")


# Names a, b, c, which were granted three times, once and twice, and have time left accordingly.
ORDERS = {"w": ("waiters", "abc"), "r": ("resource", "abc"), "o": ("owner", "cab"),
          "t": ("token", "acb"), "l": ("left", "bca")}


def test_each_key_sorts_and_again_turns_that_round(top, local, key):
    client = local.client()
    for name, grants, owner in ("b", 1, "zoe"), ("c", 2, "ann"), ("a", 3, "ben"):
        for n in range(grants):
            token = client.token(f"{key}-{name}", 600000 + 1000 * grants, "OWNER", owner)
            if n + 1 < grants:
                client("RELEASE", f"{key}-{name}", token)
    terminal = top(local.uri, key + "*", "--sort", "owner")

    def await_order(name, order, turned):
        def is_so(lines):
            return (f" by {name}" in lines[3] and ("turned round" in lines[3]) == turned and
                    [name[-1] for name in rows(lines)] == list(order))
        terminal.await_lines(is_so, (name, order))

    await_order(*ORDERS["o"], False)
    for pressed in "wrtlo":
        name, order = ORDERS[pressed]
        for turned in (False, True, False):
            terminal.press(pressed)
            await_order(name, order[::-1] if turned else order, turned)


# From the first of 100 on 18 lines: a key, and which one is the first then. (Where that stays, the
# next key shows that it was so.)
SCROLLED = [(" ", 19), ("\x1b[B", 20), ("\x1b[5~", 2), ("\x1b[A", 1), ("\x1b[A", 1), ("\x1b[5~", 1),
            ("\x1b[6~", 19), ("\x1b[4~", 83), ("\x1b[B", 83), ("\x1b[5~", 65),
            ("\x1b[1~", 1), ("x", 1)]


def test_each_key_scrolls_as_far_as_it_says_and_not_beyond_the_ends(top, local, key):
    client = local.client()
    client.pipeline([("ACQUIRE", f"{key}/{n:03}", 60000) for n in range(100)])
    terminal = top(local.uri, key + "/*", "--sort", "resource")
    terminal.await_text("1 to 18 of 100", "/017")
    for pressed, first in SCROLLED:
        terminal.press(pressed)
        lines = terminal.await_text(f"{first} to {first + 17} of 100", f"/{first + 16:03}")
        assert len(rows(lines)) == 18 and min(rows(lines)).endswith(f"/{first - 1:03}")
    terminal.press("/")
    terminal.await_text("filter: _", "Esc: no filter")
    terminal.press("9" * 200)
    assert terminal.await_text("0 to 0 of 0")
    terminal.press("\x1b")
    terminal.await_text("1 to 18 of 100")


def test_names_cannot_draw_on_the_screen(top, local, key):
    client = local.client()
    client.token(f"{key}\x1b[2J\x1b[31mred\r\n", 60000, "OWNER", "\u202edrow\x07")
    lines = top(local.uri, key + "*").await_text("\\x1b[2J", "\\xe2\\x80\\xae", "q quit")
    assert len(rows(lines)) == 1


def test_it_says_when_the_daemon_is_away_and_goes_on_when_it_is_back(top, rig, key):
    port = free_port()
    daemon = rig.daemon(listen=(f"127.0.0.1:{port}",))
    daemon.client().token(key, 600000, "OWNER", "ann")
    terminal = top(daemon.uri)
    terminal.await_text("ann")
    daemon.stop()
    terminal.await_text("AWAY", "trying again", "ann")
    again = rig.daemon(listen=(f"127.0.0.1:{port}",))
    again.client().token(key + "2", 600000, "OWNER", "ben")
    terminal.await_text("ben", gone=["AWAY"])
    terminal.press("q")
    assert terminal.await_end() == OK


def test_a_daemon_that_is_silent_keeps_nobody_from_leaving(top, rig):
    daemon = rig.daemon()
    with daemon.frozen():
        terminal = top(daemon.uri)
        terminal.await_text("connecting to stockade://")
        with within(2):  # a call takes 3 s at most
            terminal.press("q")
            assert terminal.await_end() == OK


def test_it_says_that_a_daemon_is_silent(top, rig, key):
    daemon = rig.daemon()
    daemon.client().token(key, 600000, "OWNER", "ann")
    terminal = top(daemon.uri)
    terminal.await_text("ann")
    with daemon.frozen():
        terminal.await_text("AWAY")
    terminal.await_text("ann", gone=["AWAY"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                                    signal.SIGQUIT])
def test_a_signal_ends_it_and_the_terminal_is_as_before(top, local, number):
    terminal = top(local.uri)
    terminal.await_text("q quit")
    terminal.process.send_signal(number)
    assert terminal.await_end() == -number
    assert pyte_is_at_home(terminal)


def pyte_is_at_home(terminal):
    """The cursor is shown again."""
    return not terminal.screen.cursor.hidden


def test_a_terminal_that_hangs_up_ends_it(top, local):
    terminal = top(local.uri)
    terminal.await_text("q quit")
    terminal.hang_up()
    assert terminal.await_end() != OK


def test_json_has_one_object_a_line(tool, local, key):
    client = local.client()
    token = client.token(key, 60000, "OWNER", "ann")
    lines = tool.output("-u", local.uri, "top", key, "--json", "--count", 2, "--every",
                        "100ms").splitlines()
    assert len(lines) == 2
    for line in lines:
        shown = json.loads(line)
        [lease] = shown.pop("leases")
        assert 50000 < lease.pop("ttl_ms") <= 60000
        assert lease == {"resource": key, "state": "held", "owner": "ann", "token": token,
                         "holds": 1, "waiters": 0}
        assert set(shown["each_second"]) == {"commands", "grants", "writes", "refused"}
        assert shown["each_second"]["commands"] > 0
        assert shown["total"] == shown["looked_at"] == 1 and shown["version"]
        assert shown["time_ms"] > 10 ** 12 and shown["clients"] >= 1


def test_json_sorts_and_shows_so_many_rows(tool, local, key):
    client = local.client()
    for n, owner in enumerate("cab"):
        client.token(f"{key}/{n}", 60000, "OWNER", owner)
    shown = json.loads(tool.output("-u", local.uri, "top", key + "/*", "--json", "--every", "100",
                                   "--sort", "owner", "--rows", 2))
    assert [lease["owner"] for lease in shown["leases"]] == ["a", "b"] and shown["total"] == 3


def test_many_leases_are_looked_at_bit_by_bit(tool, rig, key):
    daemon = rig.daemon()
    client = daemon.client()
    for n in range(0, 6000, 1000):
        client.pipeline([("ACQUIRE", f"{key}/{i}", 600000) for i in range(n, n + 1000)])
    before = daemon.client().info()["commands_processed"]
    shown = json.loads(tool.output("-u", daemon.uri, "top", "--json", "--every", "100"))
    asked = int(daemon.client().info()["commands_processed"]) - int(before)
    assert shown["total"] == 6000 and 2000 <= shown["looked_at"] <= 4000
    assert asked < 4100, "two looks ask for 2000 each"


@pytest.mark.slow
def test_100000_leases_hold_up_neither_the_screen_nor_the_daemon(top, rig, key):
    daemon = rig.daemon()
    client = daemon.client()
    for n in range(0, 100000, 1000):
        client.pipeline([("ACQUIRE", f"{key}/{i}", 3600000) for i in range(n, n + 1000)])
    terminal = top(daemon.uri)
    terminal.await_text("100,000 or more leases", "looked at so far")
    for n in range(50):  # while it looks: ten times a second
        with within(0.5):  # whoever is served after a look at all of them waits for longer
            client("PING")
        with within(2):  # a user would not wait for longer
            terminal.press("/99999\n" if n % 2 == 0 else "/\x1b")
            terminal.await_text("of 1 by" if n % 2 == 0 else "of 100,000 by")
    terminal.press("q")
    assert terminal.await_end() == OK


def test_without_a_terminal_it_says_what_to_do(tool, local):
    done = tool.run("-u", local.uri, "top")
    assert done.returncode == 1 and "--json" in done.stderr and done.stdout == ""


def test_an_unreachable_server_is_69_with_json(tool):
    done = tool.run("-u", f"stockade://127.0.0.1:{free_port()}", "top", "--json")
    assert done.returncode == UNREACHABLE
    assert json.loads(done.stdout)["error"] == "UNREACHABLE"


@pytest.mark.parametrize("words, said", [
    (["--sort", "size"], "takes one of waiters, resource"), (["a", "b"], "one word too many"),
    (["--every", "1"], "takes milliseconds"), (["--rows", "0"], "takes a whole number from 1")])
def test_wrong_usage(tool, words, said):
    done = tool.run("top", *words)
    assert done.returncode == USAGE and said in done.stderr
