# SPDX-License-Identifier: Apache-2.0
"""`stockade get`, `set`, `take`, `lease`, `revoke` and `leases`: answers for people, JSON and exit
codes for scripts. And what every command does with --help, and with words that make no sense."""

import json
import os
import pty
import re
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, REPO, patience
from harness.ports import free_port
from harness.programs import read_until

OK, REFUSED, USAGE, NO, UNREACHABLE, HELD, STALE = 0, 1, 2, 3, 69, 75, 76


@pytest.fixture
def cli(tool, local):
    return Cli(tool, local.uri)


class Cli:
    def __init__(self, tool, uri):
        self.tool, self.uri = tool, uri

    def __call__(self, *words, code=OK):
        """What it printed, and nothing on stderr where it went well."""
        done = self.tool.run("-u", self.uri, *words)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert bool(done.stderr) == (code != OK and "--json" not in words), done.stderr
        return done.stdout if code == OK or "--json" in words else done.stderr

    def json(self, *words, code=OK):
        return json.loads(self(*words, "--json", code=code))


@pytest.mark.parametrize("words", [
    "--help", "--version", "help", "help lock", "demo --help", "get k", "get k --json",
    "take k 1", "set k 9", "lease k", "lease k --json", "leases", "why k",
    "top --json --count 1 --every 100ms"])
def test_an_answer_that_has_no_room_is_a_failure(cli, local, key, words):
    cli("set", "k", "5")
    local.client().token(key)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BUILD / "stockade", "-u", cli.uri, *words.split()], stdout=full,
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=cli.tool.env, timeout=patience(HANG_SECONDS))
    assert done.returncode == REFUSED and "cannot write" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_daemons_words_that_have_no_room_are_a_failure(word):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BUILD / "stockaded", word], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=patience(HANG_SECONDS))
    assert done.returncode == REFUSED and "No space left on device" in done.stderr


def test_a_reader_that_leaves_is_no_failure(cli):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([BUILD / "stockade", "--help"], stdout=writer, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, timeout=patience(HANG_SECONDS))
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_set_then_get_then_take_to_the_last_piece(cli, local, key):
    assert cli("set", key, "3") == "OK\n" and cli("get", key) == "3\n"
    assert [cli("take", key, "1") for _ in range(3)] == ["2\n", "1\n", "0\n"]
    assert "RANGE" not in cli("take", key, "1", code=NO) and cli("get", key) == "0\n"
    lease = local.client().lease(key)
    assert (lease["state"], lease["token"]) == ("free", 5), "each took a lease and gave it back"


def test_take_leaves_at_least_min(cli, key):
    cli("set", key, "10")
    assert cli("take", key, "5", "--min", "5") == "5\n"
    cli("take", key, "1", "--min", "5", code=NO)
    assert cli("take", key, "7", "--min", "-2") == "-2\n"


def test_a_token_is_used_where_it_is_given_and_a_stale_one_is_76(cli, local, key):
    client = local.client()
    token = client.token(key)
    assert cli("set", key, "7", "--token", token) == "OK\n"
    assert cli("take", key, "2", "--token", token) == "5\n"
    assert client.lease(key)["holds"] == 1, "the lease stays as it was"
    client("REVOKE", key)
    assert key in cli("take", key, "2", "--token", token, code=STALE)
    assert cli.json("set", key, "9", "--token", token, code=STALE)["error"] == "STALE"
    assert cli.json("set", key, "9", "--token", 999, code=REFUSED)["error"] == "UNKNOWN"
    assert cli("get", key) == "5\n"


def test_without_a_token_a_held_key_is_75_after_the_wait(cli, local, key):
    local.client().token(key)
    assert "another holds" in cli("set", key, "x", "--wait", "50ms", code=HELD)
    assert cli.json("take", key, "1", "--wait", "0", code=HELD) == {
        "error": "HELD", "message": "another holds the lease", "key": key}


def test_hashes_field_by_field(cli, key):
    assert cli("set", key, "10", "--field", "stock") == "OK\n"
    cli("set", key, "blue", "--field", "colour")
    assert cli("take", key, "4", "--field", "stock") == "6\n"
    cli("take", key, "7", "--field", "stock", code=NO)
    assert sorted(cli("get", key).splitlines()) == ["colour: blue", "stock: 6"]
    assert cli("get", key, "--field", "stock") == "6\n"
    cli("get", key, "--field", "none", code=NO)
    assert cli.json("get", key) == {"key": key, "fields": {"stock": "6", "colour": "blue"}}
    assert cli.json("get", key, "--field", "stock") == {"key": key, "field": "stock", "value": "6"}


def test_json_of_writes_and_of_what_is_not_there(cli, key):
    assert cli.json("get", key, code=NO) == {"error": "NONE", "message": "nothing there",
                                             "key": key}
    assert cli.json("set", key, "5") == {"key": key, "token": 1}
    assert cli.json("take", key, "2") == {"key": key, "taken": 2, "left": 3, "token": 2}
    assert cli.json("take", key, "9", code=NO)["error"] == "RANGE"
    assert cli.json("get", key) == {"key": key, "value": "3"}


@pytest.mark.parametrize("value, shown", [
    (b'quote " back \\ tab \t', 'quote " back \\ tab \t'), ("schön \N{SNOWMAN}".encode(),
                                                           "schön \N{SNOWMAN}"),
    (b"\xff\xfe", "\u00ff\u00fe"), (b"\xc3", "\u00c3"), (b"", ""), (b"\x00\x1f", "\x00\x1f"),
    (b"\xed\xa0\x80", "\u00ed\u00a0\u0080")], ids=repr)
def test_json_carries_any_bytes(cli, local, key, value, shown):
    client = local.client()
    client.fenced(client.token(key), "SET", key, value)
    assert cli.json("get", key)["value"] == shown


def test_get_prints_any_bytes_as_they_are(cli, local, key):
    client = local.client()
    client.fenced(client.token(key), "SET", key, "a\x00b\nc")
    assert cli("get", key) == "a\x00b\nc\n"


def test_what_is_no_number_is_refused(cli, key):
    cli("set", key, "word")
    assert "integer" in cli("take", key, "1", code=REFUSED)


def test_lease_tells_who_holds_and_for_how_long(cli, local, key):
    assert "never" in cli("lease", key, code=NO)
    client = local.client()
    token = client.token(key, 60000, "OWNER", "alice")
    said = cli("lease", key)
    assert "alice" in said and f"token {token}" in said
    lease = cli.json("lease", key)
    assert 50000 < lease.pop("ttl_ms") <= 60000
    assert lease == {"resource": key, "state": "held", "owner": "alice", "token": token,
                     "holds": 1, "waiters": 0}
    client("RELEASE", key, token)
    assert cli("lease", key) == f"free, newest token {token}\n"
    assert cli.json("lease", key)["state"] == "free"


def test_an_owner_cannot_draw_on_the_terminal(cli, local, key):
    local.client().token(key, 60000, "OWNER", b"\x1b[2Jmallory \xc3\xa9\x07")
    assert '"\\x1b[2Jmallory é\\x07"' in cli("lease", key)
    assert "\x1b" not in cli("leases", key)


# Erases the screen, in both spellings, and turns the rest of the line round.
HOSTILE = "\x1b[2J\u009b2J\u202e!\u2028"


def on_terminal(cli, *words):
    ours, theirs = pty.openpty()
    running = subprocess.Popen([BUILD / "stockade", "-u", cli.uri, *words], env=cli.tool.env,
                               stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = read_until(ours, timeout=30)
    os.close(ours)
    running.wait(timeout=patience(HANG_SECONDS))
    return text


def test_no_command_lets_a_name_or_a_value_draw_on_the_terminal(cli, local, key):
    name, table, client = key + HOSTILE, key + "h" + HOSTILE, local.client()
    token = client.token(name, 60000, "OWNER", HOSTILE)
    client.fenced(token, "SET", name, HOSTILE)
    client.fenced(client.token(table), "HSET", table, "f" + HOSTILE, "v" + HOSTILE)
    gone = client.token(key)
    client("REVOKE", key)
    client.refused("STALE", "FENCED", gone, "SET", key, "x")
    for words in [("get", name), ("get", table), ("get", table, "--json"),
                  ("get", table, "--field", "f" + HOSTILE),
                  ("lease", name), ("leases", f"{key}*"), ("why", name),
                  ("take", name, "1", "--token", str(token)), ("set", name, "x", "--token", "99"),
                  ("get", "none" + HOSTILE), ("lease", "none" + HOSTILE),
                  ("lock", "--wait", "0", name, "--", "true"), ("get", name, HOSTILE),
                  ("get", name, "--" + HOSTILE), (HOSTILE, name), ("revoke", name)]:
        text = on_terminal(cli, *words)
        raw = re.search("[\\x00-\\x09\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u2028-\\u202e]", text)
        assert not raw, (words, text)
        assert "1b[2J" in text or words[0] == "revoke", (words, text)
    assert cli("get", table) == f"f{HOSTILE}: v{HOSTILE}\n", "a pipe gets the bytes themselves"


def test_what_went_wrong_is_told_by_one_function_which_escapes():
    said = {path.name for path in (REPO / "tools").rglob("*.c") if "bench" not in path.parts
            and re.search(r"fprintf\(stderr|fputs\(.*stderr|perror\(", path.read_text())}
    assert not said


def test_revoke_retires_the_token(cli, local, key):
    assert "never" in cli("revoke", key, code=NO)
    client = local.client()
    token = client.token(key)
    assert str(token) in cli("revoke", key)
    assert client.lease(key)["state"] == "free"
    token = client.token(key)
    assert cli.json("revoke", key) == {"resource": key, "token": token}


def test_leases_lists_by_pattern(cli, local, key):
    client = local.client()
    tokens = {f"{key}/{n}": client.token(f"{key}/{n}", 60000, "OWNER", f"o{n}") for n in range(3)}
    lines = cli("leases", key + "/*").splitlines()
    assert lines[0].split() == ["RESOURCE", "STATE", "TOKEN", "TTL_MS", "HOLDS", "WAITERS",
                                "OWNER"]
    assert sorted(line.split()[0] for line in lines[1:]) == sorted(tokens)
    listed = cli.json("leases", key + "/*")
    assert {lease["resource"]: lease["owner"] for lease in listed} == \
        {f"{key}/{n}": f"o{n}" for n in range(3)}
    assert len(cli.json("leases", key + "/*", "--count", "2")) == 2
    client("RELEASE", f"{key}/1", tokens[f"{key}/1"])
    assert len(cli.json("leases", key + "/*")) == 2
    assert cli("leases", "no such*") == "" and cli.json("leases", "no such*") == []


def test_leases_lists_many(cli, local, key):
    client = local.client()
    client.pipeline([("ACQUIRE", f"{key}/{n}", 60000) for n in range(1200)])
    assert len(cli.json("leases", key + "/*")) == 1200


def test_a_list_that_fails_half_way_is_one_json_value(tool, rig, key):
    users = rig.folder / "users"
    users.write_text("user default on nopass ~* +@all -lease\n")
    users.chmod(0o600)
    daemon = rig.daemon("--acl-file", users)
    daemon.client().token(key, 60000)
    done = tool.run("-u", daemon.uri, "leases", "--json")
    assert done.returncode == REFUSED and json.loads(done.stdout)["error"] == "NOPERM", done


def test_a_value_that_begins_with_a_dash_goes_behind_two(cli, key):
    cli("set", key, "--", "-5")
    assert cli("get", key) == "-5\n"


@pytest.mark.parametrize("words", [["get", "k"], ["set", "k", "v"], ["take", "k", "1"],
                                   ["lease", "k"], ["revoke", "k"], ["leases"]], ids=" ".join)
def test_an_unreachable_server_is_69(tool, words):
    cli = Cli(tool, f"stockade://127.0.0.1:{free_port()}")
    assert "cannot reach the server" in cli("lock", "r", "--", "true", code=UNREACHABLE)
    assert "cannot connect" in cli(*words, code=UNREACHABLE)
    assert cli.json(*words, code=UNREACHABLE)["error"] == "UNREACHABLE"


USAGE_ERRORS = {
    "a command is missing": "",
    "--nonsense is not an option": "--nonsense | demo oversell --nonsense | backup a --nonsense",
    "nonsense is not a command": "nonsense",
    "-u: a URI begins with stockade://": "-u redis://x:1 demo oversell | get k -u nonsense | "
                                  "lock r -u x -- true",
    "-u takes stockade:// or stockade+unix: here": "demo oversell -u sqlite:x",
    "-u takes sqlite:PATH": "check -u stockade://127.0.0.1",
    "--password-file": "get k --password-file /nonexist | demo oversell -u stockade://h "
                       "--password-file /dev/null",
    "`demo oversell` is": "demo",
    "--skus takes a whole number from 8 to 32": "demo basket --skus 2",
    "takes one of redis-locks, stockade": "demo basket --contender none",
    "--stock takes a whole number from 1 to 1000000": "demo oversell --stock 0",
    "--ttl takes milliseconds": "demo oversell --ttl 9",
    "takes one of none, redis-lock": "demo oversell --contender zookeeper",
    "takes one of plain-lock, row-lock": "demo oversell --contender none --store postgresql",
    "--redis takes redis://": "demo oversell --redis http://x",
    '--store takes "postgresql" or postgresql://': "demo oversell --store sqlite:x",
    "do not go together": "demo oversell --store postgresql -u stockade://h | "
                          "demo oversell --store postgresql --redis redis://h",
    "extra is one word too many": "demo oversell extra",
    "--orders FILE is missing": "replay",
    "--workers takes a whole number from 1": "replay --orders x --workers 0",
    "--opening takes a whole number from 0": "replay --orders x --opening -1",
    "--prefix takes at most": "replay --orders x --prefix " + "p" * 200,
    "FILE is missing": "backup | restore",
    "b is one word too many": "backup a b",
    "x is one word too many": "check x",
    "--store takes sqlite:PATH": "backup a --store x.db | backup a --store sqlite:",
    "--store: invalid URI query parameter": "check --store postgresql:///x?nosuch=1",
    "--from is missing": "move | move --to sqlite:b",
    "--to is missing": "move --from sqlite:a",
    "--to takes sqlite:PATH or postgresql": "move --from sqlite:a --to b",
    "--from takes sqlite:PATH or postgresql": "move --from redis://x --to sqlite:b",
    "stockade get --help": "get | get a b | get a --nosuch",
    "stockade set --help": "set a | set a b c | set a b --token 0",
    "stockade take --help": "take a | take a none | take a 0 | take a 1 --min x",
    "stockade lease --help": "lease",
    "stockade revoke --help": "revoke",
    "stockade leases --help": "leases a b",
    "stockade lock --help": "lock r | lock r -- | lock -- true | lock r true | "
                            "lock r --ttl 0 -- true | lock r --ttl soon -- true | "
                            "lock r --nosuch -- true | lock r s -- true"}


@pytest.mark.parametrize("words, said", [
    pytest.param(words.split(), said, id=words[:40])
    for said, commands in USAGE_ERRORS.items() for words in commands.split(" | ")])
def test_wrong_usage_is_2_and_one_line(tool, words, said):
    done = tool.run(*words)
    assert done.returncode == USAGE and done.stdout == ""
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert "--help" in done.stderr or "--prefix" in words, "all but that one say where to read"


@pytest.mark.parametrize("command", [
    "", "demo oversell", "demo basket", "replay", "backup", "restore", "check", "move", "get",
    "set", "take", "lease", "revoke", "leases", "lock"])
def test_help_goes_to_stdout_and_exits_with_0(tool, command):
    done = tool.run(*command.split(), "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert re.match(rf"usage: stockade (\[-u URI\] )?{command}", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert command.partition(" ")[0] in tool.run("--help").stdout
    if command in ("get", "set", "take", "lease", "revoke", "leases", "lock"):
        assert "exit codes" in done.stdout
    if command == "lock":
        assert all(str(code) in done.stdout for code in (2, 69, 75, 76, 126, 127))


# What only looks at a store, or changes what is there; and what makes one where there is none, or
# has none.
LOOKS = {
    "get": "-u {new} get k", "lease": "-u {new} lease k", "leases": "-u {new} leases",
    "revoke": "-u {new} revoke k", "why": "-u {new} why k", "top": "-u {new} top --json",
    "guard create": "guard create t c p: --store {new}", "guard drop": "guard drop t --store {new}",
    "guard list": "guard list --store {new}", "check": "check --store {new}",
    "backup": "backup {copy} --store {new}", "move": "move --from {new} --to sqlite:{copy}",
    "audit verify": "audit verify {text} --store {new}"}
MAKES = {"set", "take", "lock", "restore", "demo oversell", "demo basket", "replay"}


def test_of_each_command_it_is_known_whether_it_makes_a_store(tool):
    commands = tool.output("--help").split("\noptions")[0]
    listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", commands, re.M)
    assert sorted(listed) == sorted([*LOOKS, *MAKES])


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_looks_at_a_store_makes_none(tool, rig, command):
    text, copy = rig.folder / "text", rig.folder / "copy.db"
    text.write_text("no audit\n")
    words = LOOKS[command].format(new=f"sqlite:{rig.folder}/new.db", copy=copy, text=text).split()
    done = tool.run(*words)
    assert done.returncode == REFUSED and done.stdout == ""
    assert f"there is no {rig.folder}/new.db" in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in rig.folder.glob("*.db*")] == []


@pytest.mark.parametrize("memory", [":memory:", "sqlite::memory:"])
@pytest.mark.parametrize("words", [
    "-u {} get k", "-u {} lock k -- true", "guard list --store {}", "check --store {}",
    "backup f --store {}", "restore f --store {}", "move --from {} --to sqlite:f",
    "move --from sqlite:f --to {}", "audit verify f --store {}"])
def test_what_needs_a_store_of_its_own_says_so_of_one_in_memory(tool, memory, words):
    done = tool.run(*words.format(memory).split(), cwd=tool.folder)
    assert done.returncode in (REFUSED, USAGE) and done.stdout == ""
    assert "a store in memory is a daemon's own (stockaded --store :memory:)" in done.stderr
    assert "did you mean" not in done.stderr and done.stderr.count("\n") == 1
    tool.expect_nothing_left()


def test_the_version_is_told(tool):
    done = tool.run("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"stockade \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize("reply", [
    pytest.param(b"*2\r\n", id="ACQUIRE"), pytest.param(b":9\r\n", id="FENCED"),
    pytest.param(b":0\r\n", id="RELEASE")])
def test_a_take_whose_reply_was_lost_takes_once(local, rig, tool, key, reply):
    client = local.client()
    token = client.token(key)
    client.pipeline([("FENCED", token, "SET", key, "10"), ("RELEASE", key, token)])
    relay = rig.relay(local.address)
    with relay.losing_reply(reply):
        running = tool.start("-u", relay.uri, "take", key, "1")
    assert running.communicate(timeout=patience(HANG_SECONDS)) == ("9\n", "")
    assert client("GET", key) == b"9"
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("free", token + 1)
