# SPDX-License-Identifier: Apache-2.0
"""`stockade why`: the story of a resource, from the daemon's history or from its log."""

import json
import re
import subprocess

import pytest

from harness.limits import BUILD, patience
from harness.rig import free_port

OK, FAILED, USAGE, NO, UNREACHABLE = 0, 1, 2, 3, 69
UTC = {"TZ": "UTC", "LC_ALL": "C"}


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
        "late_ms": 312, "ended": "expired", "newest": 34, "newest_owner": "ben",
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
        'Refused: SET of "sku:42" by "shop-1" (10.0.0.1:5012) with token 33 (STALE), 312 ms after '
        'its lease had expired. Token 34 of "ben" (10.0.0.2:5013) had overtaken it.']
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
                            "address", "late_ms", "ended", "newest", "newest_owner",
                            "newest_address"}
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
                          input=line() + "\n", capture_output=True, timeout=patience(20))
    assert (done.returncode, done.stderr) == (OK, "") and len(sentences(done.stdout)) == 1


def test_wrong_usage_and_a_log_that_is_not_there(why, log, tmp_path):
    assert "RESOURCE or --log FILE is missing" in why(code=USAGE)
    assert "one word too many" in why("a", "b", code=USAGE)
    assert "from 1 to" in why("a", "--count", "0", code=USAGE)
    assert "No such file" in why("--log", tmp_path / "none", code=FAILED)
    assert "directory" in why("--log", tmp_path, code=FAILED)
    port = free_port()
    assert "cannot connect" in why("a", "-u", f"stockade://127.0.0.1:{port}", code=UNREACHABLE)
