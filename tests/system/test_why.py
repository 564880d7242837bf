# SPDX-License-Identifier: Apache-2.0
"""`stockade why`: the story of a resource, from the daemon's history or from its log."""

import json
import re
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, patience, wait_until
from harness.ports import free_port
from test_demo import stops, table

OK, FAILED, USAGE, NO, UNREACHABLE = 0, 1, 2, 3, 69
UTC = {"TZ": "UTC", "LC_ALL": "C"}
WIDTH = 80


@pytest.fixture
def why(tool):
    tool.env |= UTC

    def run(*words, code=OK, **options):
        done = tool.run("why", *words, **options)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout if code == OK else done.stdout + done.stderr
    return run


def sentences(text):
    """What is told, line by line, each behind its time of day."""
    return re.findall(r"^  \d\d:\d\d:\d\d\.\d{3}  (.*)$", text, re.M)


def lane(text):
    """The picture's rows without the axis: {label: cells}."""
    block = text.split("\n\n")[1].splitlines()
    axis = next(i for i, line in enumerate(block) if re.search(r"\+-+\+$", line))
    return {line.split()[0]: line.partition("  ")[2] for line in block[:axis]}


# From the log.


def line(**fields):
    return json.dumps({
        "time": "2026-01-31T12:00:00.500Z", "level": "info", "message": "refused",
        "time_ms": 1769860800500, "resource": "sku:42", "token": 33, "code": "STALE",
        "command": "SET", "user": "default", "client": "shop-1", "address": "10.0.0.1:5012",
        "granted_ms": 1769860799988, "late_ms": 312, "ended": "expired", "newest": 34,
        "newest_owner": "ben",
        "newest_address": "10.0.0.2:5013", **fields})


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "night.log"

    def write(*lines):
        path.write_text("".join(f"{text}\n" for text in lines))
        return path
    return write


def test_a_refusal_of_a_past_night_is_told(why, log):
    told = why("--log", log(line()))
    assert told.startswith("1 refused command (312 ms late) since 2026-01-31 12:00:00.\n")
    assert "2026-01-31 (UTC+0000)\n  12:00:00.500  " in told
    assert sentences(told) == [
        'Refused: SET of "sku:42" by "shop-1" (10.0.0.1:5012) with token 33, granted at '
        '11:59:59.988 (STALE), 312 ms after its lease had expired. Token 34 of "ben" '
        '(10.0.0.2:5013) had overtaken it.']
    assert lane(told)["shop-1"].strip() == "x"


def test_times_are_local(why, log, tool):
    tool.env["TZ"] = "Asia/Kolkata"
    assert "2026-01-31 (UTC+0530)\n  17:30:00.500  " in why("--log", log(line()))


def test_one_resource_of_the_log_and_as_json(why, log):
    path = log(line(resource="a"), line(resource="b", late_ms=None), line(resource="a", token=7))
    assert len(sentences(why("--log", path))) == 3
    assert len(sentences(why("--log", path, "a"))) == 2
    told = json.loads(why("b", "--log", path, "--json"))
    [refusal] = told.pop("refusals")
    assert told == {"resource": "b", "log": str(path), "bad_lines": 0, "left_out": 0}
    assert refusal["late_ms"] is None and refusal["newest_owner"] == "ben"
    assert set(refusal) == {"time_ms", "resource", "token", "code", "command", "user", "client",
                            "address", "granted_ms", "late_ms", "ended", "newest",
                            "newest_owner", "newest_address"}
    assert "nothing was refused" in why("c", "--log", path, code=NO)
    assert json.loads(why("c", "--log", path, "--json", code=NO))["error"] == "NONE"


def test_bad_lines_are_counted_and_skipped(why, log, tool):
    path = log("2026-01-31T12:00:00.000Z info text", "{", "[1]", "", '{"message": "fine"}',
               '{"a": ' * 30 + "1" + "}" * 30, "\0", '{"x": "' + "y" * 70000 + '"}',
               line() + " more", line())
    done = tool.run("why", "--log", path)
    assert done.returncode == OK and len(sentences(done.stdout)) == 1
    assert "7 lines are no JSON and were skipped" in done.stderr
    assert json.loads(why("--log", path, "--json"))["bad_lines"] == 7


def test_of_many_the_newest_are_told(why, log):
    path = log(*(line(token=n) for n in range(1000)))
    told = json.loads(why("--log", path, "--json", "--count", 3))
    assert [refusal["token"] for refusal in told["refusals"]] == [997, 998, 999]
    assert told["left_out"] == 997
    assert "900 earlier ones are left out" in why("--log", path)


@pytest.mark.parametrize("name", ["naïve ☃", "\u202ertl", "tab\there", 'quo"te\\', "\u00ff\u00fe"])
def test_any_name_is_found_and_shown_escaped(why, log, name):
    told = why("--log", log(line(resource=name, client=name)), name)
    assert len(sentences(told)) == 1
    assert all(char == "\n" or " " <= char <= "~" for char in told)
    assert json.loads(why("--log", log(line(resource=name)), name,
                          "--json"))["refusals"][0]["resource"] == name


def test_numbers_that_nobody_can_mean_do_no_harm(why, log):
    big = 2 ** 63 - 1
    path = log(line(time_ms=big, late_ms=-big, newest=-big), line(token="33", time_ms=1.5),
               line(token=2 ** 70, late_ms="x", newest=None), line(client=7, command="\x1b[2J"))
    assert len(sentences(why("--log", path))) == 4
    assert len(json.loads(why("--log", path, "--json"))["refusals"]) == 4


def test_the_log_comes_by_stdin_too(log, tool):
    done = subprocess.run([BUILD / "stockade", "why", "--log", "-"], env=tool.env, text=True,
                          input=line() + "\n", capture_output=True, timeout=patience(HANG_SECONDS))
    assert (done.returncode, done.stderr) == (OK, "") and len(sentences(done.stdout)) == 1


def test_wrong_usage_and_a_log_that_is_not_there(why, log, tmp_path):
    assert "RESOURCE, --log FILE or --audit FILE is missing" in why(code=USAGE)
    assert "one word too many" in why("a", "b", code=USAGE)
    assert "from 1 to" in why("a", "--count", "0", code=USAGE)
    assert "No such file" in why("--log", tmp_path / "none", code=FAILED)
    assert "directory" in why("--log", tmp_path, code=FAILED)
    port = free_port()
    assert "cannot connect" in why("a", "-u", f"stockade://127.0.0.1:{port}", code=UNREACHABLE)


# From the daemon.


@pytest.fixture
def late_write(local, key):
    """Ann's lease has run out, Ben has the next, and Ann's write is refused."""
    ann, ben = local.client(), local.client()
    ann("CLIENT", "SETNAME", "shop-1")
    ben("CLIENT", "SETNAME", "shop-2")
    first = ann.token(key, 100, "OWNER", "ann")
    ann.fenced(first, "SET", key, 10)
    second = wait_until(lambda: ben("ACQUIRE", key, 60000, "OWNER", "ben"), "the first ran out")[0]
    ann.refused("STALE", "FENCED", first, "SET", key, 9)
    ben.fenced(second, "SET", key, 8)
    return first, second


def test_a_late_write_is_told(why, local, key, late_write):
    first, second = late_write
    told = why("-u", local.uri, key)
    summary = told.splitlines()[0]
    assert re.match(rf'"{key}": held by "ben" \(client "shop-2", \S+\) under token {second} for'
                    r" \S+ m?s, .* left; 2 leases and 1 refused command \(\S+ m?s late\) since ",
                    summary), summary
    ann, ben, refused = sorted(sentences(told))
    assert re.fullmatch(rf'"ann" \(client "shop-1", 127\.0\.0\.1:\d+\) got token {first} for'
                        r" 100 ms, it expired after \d+ ms; 1 write, 1 refused\.", ann), ann
    assert re.fullmatch(rf'"ben" \(client "shop-2", 127\.0\.0\.1:\d+\) got token {second} for'
                        r" 1 min 0 s, holds it still, for .* now; 1 write\.", ben), ben
    assert re.fullmatch(rf'Refused: SET by "shop-1" \(127\.0\.0\.1:\d+\) with token {first}'
                        rf" \(STALE\), \S+ m?s after its lease had expired\. Token {second} of"
                        r' "ben" \(127\.0\.0\.1:\d+\) had overtaken it\.', refused), refused
    assert all(len(row) <= WIDTH for row in told.split("\n\n")[1].splitlines())
    rows = lane(told)
    assert list(rows) == ["shop-1", "shop-2"]
    assert "x" in rows["shop-1"] and rows["shop-2"].endswith("#")


def test_the_lane_has_block_characters_where_the_locale_is_utf8(why, tool, local, key, late_write):
    tool.env["LC_ALL"] = "C.UTF-8"
    told = why("-u", local.uri, key)
    assert "\N{FULL BLOCK}" in told and "\N{MULTIPLICATION SIGN}" in told
    tool.env["LC_ALL"] = "C"
    assert why("-u", local.uri, key).isascii()


def test_the_same_as_json(why, local, key, late_write):
    first, second = late_write
    told = json.loads(why("-u", local.uri, key, "--json"))
    assert (told["resource"], told["lease"]["token"]) == (key, second)
    assert told["lease"]["state"] == "held" and told["lease"]["owner"] == "ben"
    ann, ben = told["history"]
    assert (ann["token"], ann["end"], ann["writes"], ann["refused"]) == (first, "expired", 1, 1)
    assert ann["ended_ms"] - ann["granted_ms"] == pytest.approx(100, abs=50)
    assert (ben["token"], ben["ended_ms"], ben["end"], ben["owner"]) == (second, None, None, "ben")
    [refusal] = told["refusals"]
    assert (refusal["token"], refusal["newest"], refusal["code"]) == (first, second, "STALE")
    assert refusal["late_ms"] == pytest.approx(refusal["time_ms"] - ann["ended_ms"], abs=50)
    assert told["time_ms"] >= refusal["time_ms"]


def test_who_waits_and_how_holds_end(why, local, key):
    client, waiter = local.client(), local.client()
    client("RELEASE", key, client.token(key, 60000))
    client.token(key, 60000)
    client("REVOKE", key)
    client.token(key, 60000)
    waiter.send("ACQUIRE", key, 60000, "WAIT", 50000, "OWNER", "ben")
    client.await_waiters(key)
    assert client("ACQUIRE", key, 60000, "QUEUE", "ID", "place-1", "OWNER", "cas")[0] == b"queued"
    told = why("-u", local.uri, key)
    line = told.split("In line now:\n")[1].splitlines()
    assert re.fullmatch(r'  1\. "ben" \(127\.0\.0\.1:\d+\), for \S+ m?s\.', line[0]), line
    assert re.fullmatch(r'  2\. "cas" \(127\.0\.0\.1:\d+\), for \S+ m?s, by QUEUE\.', line[1]), line
    as_json = json.loads(why("-u", local.uri, key, "--json"))["waiters"]
    assert [(one["place"], one["owner"], one["way"]) for one in as_json] == \
        [(1, "ben", "wait"), (2, "cas", "queue")]
    one = json.loads(why("-u", local.uri, key, "--json", "--count", 1))["waiters"]
    assert [waits["owner"] for waits in one] == ["ben"]
    assert "and 1 more" in why("-u", local.uri, key, "--count", 1)
    assert "2 are waiting; 3 leases and 0 refused commands" in told
    assert [re.search(r"released|revoked|holds it still", text)[0]
            for text in sentences(told)] == ["released", "revoked", "holds it still"]


def test_an_unknown_resource_is_3(why, local, key):
    assert "was never leased" in why("-u", local.uri, key, code=NO)
    assert json.loads(why("-u", local.uri, key, "--json", code=NO))["error"] == "NONE"


def test_what_the_history_has_forgotten_is_said(why, rig, key):
    daemon = rig.daemon("--history", "10")
    client = daemon.client()
    for _ in range(30):
        token = client.token(key)
        client("RELEASE", key, token)
    told = why("-u", daemon.uri, key)
    count = len(sentences(told))
    assert 0 < count <= 10
    assert f"has nothing before token {token - count + 1}" in told
    assert f"Leases before token {token} are left out" in why("-u", daemon.uri, key, "--count", 1)
    for _ in range(30):
        other = client.token("other")
        client("RELEASE", "other", other)
    told = why("-u", daemon.uri, key)
    assert f"free, newest token {token}; nothing of it is in the daemon's history" in told
    assert sentences(told) == []


def test_a_name_with_the_signs_of_patterns_is_only_itself(why, local, key):
    names = [f"{key}*", f"{key}x", f"{key}[x]", f"{key}?", f"{key}\\x"]
    client = local.client()
    for name in names:
        token = client.token(name)
        client("RELEASE", name, token)
        client.refused("STALE", "FENCED", token, "SET", name, 1)
    for name in names:
        told = json.loads(why("-u", local.uri, name, "--json"))
        assert [refusal["resource"] for refusal in told["refusals"]] == [name]


def test_the_daemons_log_tells_the_same_as_its_history(why, rig, key, tmp_path):
    daemon = rig.daemon("--log-format", "json")
    client = daemon.client()
    for _ in range(3):
        token = client.token(key)
        client("RELEASE", key, token)
        client.refused("STALE", "FENCED", token, "SET", key, 1)
    by_history = json.loads(why("-u", daemon.uri, key, "--json"))["refusals"]
    log = tmp_path / "daemon.log"
    log.write_text(daemon.log())
    by_log = json.loads(why("--log", log, key, "--json"))["refusals"]
    assert by_log == by_history and len(by_log) == 3


def test_each_stop_of_the_demo_is_named_and_the_numbers_add_up(why, tool, rig):
    daemon = rig.daemon()
    shown = tool.output("-u", daemon.uri, "demo", "oversell", "--contender", "stockade",
                        "--stock", 40)
    row = table(shown)["Stockade"]
    client = daemon.client()
    [resource] = {dict(zip(r[::2], r[1::2]))[b"resource"].decode()
                  for r in client("REFUSALS", "COUNT", 10000)}
    told = why("-u", daemon.uri, resource, "--count", 10000)
    story = json.loads(why("-u", daemon.uri, resource, "--count", 10000, "--json"))
    refused = [text for text in sentences(told) if text.startswith("Refused: SET ")]
    assert len(refused) == row.refused >= stops(shown, "Stockade") == 6
    assert all(re.search(r"had expired\. Token \d+ of .* had overtaken it\.", text)
               for text in refused)
    # The opening stock, each sale, and the removal of the key at the end.
    assert sum(hold["writes"] for hold in story["history"]) == 1 + row.sold + 1
    assert sum(hold["refused"] for hold in story["history"]) == len(story["refusals"])
    assert lane(told)


def test_an_audit_of_very_many_resources_takes_bounded_memory(why, tmp_path):
    """What was told of longest ago is forgotten: its refusal does not say when it was granted."""
    audit = tmp_path / "audit.log"
    line = '{"time_ms": %d, "event": "%s", "user": "u", "address": "a:1", "resource": "r:%d",' \
           ' "token": 1, "code": "STALE", "reason": "%s"}\n'
    count = 70000
    with open(audit, "w", encoding="ascii") as file:
        for i in range(count):
            file.write(line % (1000 + i, "grant", i, f"ttl_ms=100 owner=o{i}"))
        file.write(line % (900000, "refused", count - 1, "SET"))
        file.write(line % (900001, "refused", 0, "SET"))
    late, forgotten = json.loads(why("--audit", audit, "--json"))["refusals"]
    assert (late["granted_ms"], late["newest"]) == (1000 + count - 1, 1)
    assert (forgotten["granted_ms"], forgotten["newest"]) == (None, None)
