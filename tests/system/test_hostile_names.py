# SPDX-License-Identifier: Apache-2.0
"""Names, owners, reasons and values that anybody may have chosen draw nothing on a terminal,
whichever command prints them: no control character of theirs, and none that turns a line around,
arrives."""

import contextlib
import json
import os
import pty
import re
import select
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, Wait, patience

# ESC, CSI as one character (U+009B) and as one byte, BEL, CR, right-to-left (U+202E), a tag.
HOSTILE = b"k\x1b[2J\x07\r\xc2\x9b31m\xe2\x80\xae\xf3\xa0\x81\x81\xc3\xa9"
RAW = HOSTILE + b"\x9b2J"
OWN = re.compile(rb"\r\x1b\[K|\r\n")  # what the command line itself does with a terminal


def on_terminal(env, *words):
    """What a command sends to its terminal, which is its stdout and stderr; it ends by itself."""
    master, inner = pty.openpty()
    process = subprocess.Popen([BUILD / "stockade", *words], stdin=subprocess.DEVNULL,
                               stdout=inner, stderr=inner, env=env)
    os.close(inner)
    said, wait = b"", Wait()
    with contextlib.suppress(OSError):
        while piece := (select.select([master], [], [], wait.left)[0] and os.read(master, 65536)):
            said += piece
    os.close(master)
    process.wait(patience(HANG_SECONDS))
    return said


def harmful(said):
    """What of it a terminal would obey, or lay out in another order."""
    said = OWN.sub(b"\n", said)
    whole = said.decode("utf-8", "ignore").encode() == said
    return re.findall(rb"[\0-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8b-\x8f\xa8-\xae]"
                      rb"|\xf3\xa0", said) + ([] if whole else [said])


@pytest.fixture
def hostile(rig, tool):
    """A daemon where all has such names, and a person at the command line."""
    log = rig.folder / "log"
    audit = rig.folder / "audit"
    daemon = rig.daemon("--log-format", "json", "--log-file", log, "--audit", audit)
    client = daemon.client()
    for name in (HOSTILE, RAW):
        client("CLIENT", "SETNAME", "k")
        token = client.token(name, 60000, "OWNER", name)
        client("FENCED", token, "SET", name, name)
        field = client.token(name + b"h", 60000)
        client("FENCED", field, "HSET", name + b"h", name, name)
        client("REVOKE", name + b"h")
        client.refused("STALE", "FENCED", field, "HSET", name + b"h", "f", "v")
    return daemon, log, audit


def commands(daemon, rig, log, audit):
    uri = "stockade://{}:{}".format(*daemon.address)
    store = f"sqlite:{rig.store}"
    for name in (HOSTILE, RAW):
        key = os.fsdecode(name)
        for words in (["get", key], ["get", key, "--json"], ["get", key + "h"],
                      ["get", key + "h", "--json"], ["get", key + "h", "--field", key],
                      ["set", key, key, "--wait", "0"], ["set", key, key, "--token", "9"],
                      ["take", key, "1", "--wait", "0"], ["take", key, key],
                      ["lease", key], ["lease", key, "--json"],
                      ["lease", key + "x"], ["leases"], ["leases", "--json"], ["leases", key],
                      ["revoke", key + "x"], ["why", key], ["why", key, "--json"],
                      ["why", key + "h"],
                      ["why", key + "h", "--log", log], ["why", key + "h", "--audit", audit],
                      ["lock", key, "--wait", "0", "--", "true"], ["guard", "list"],
                      ["guard", "create", key], ["guard", "drop", key, "--store", store],
                      ["top", "--once", "--json"], ["top", key]):
            yield ["-u", uri, *words]
        for words in (["check", "--store", store + key], ["check", "--store", key],
                      ["backup", key + "/x", "--store", store], ["restore", key, "--store", store],
                      ["move", "--from", key, "--to", store], ["audit", "verify", key],
                      ["audit", "verify", audit], ["audit", "verify", audit, "--json"],
                      ["replay", "--orders", key], ["demo", "oversell", key],
                      ["demo", "basket", "--store", key], ["why", "--log", key], [key],
                      ["--" + key],
                      ["get", "--" + key, "k"], ["-u", key, "get", "k"], ["help", key],
                      ["--password-file", key, "get", "k"], ["-u", f"sqlite:{key}/k", "get", "k"]):
            yield words


def test_no_command_prints_what_a_terminal_would_obey(rig, tool, hostile):
    daemon, log, audit = hostile
    seen, wrong = b"", []
    for words in commands(daemon, rig, log, audit):
        if "top" in words and "--once" not in words:
            continue  # it draws: test_top reads its screen
        said = on_terminal({**tool.env, "TERM": "linux"}, *map(str, words))
        seen += said
        if harmful(said):
            wrong.append((words, said))
    assert not wrong
    assert rb"\x1b[2J" in seen and rb"\xe2\x80\xae" in seen and "é".encode() in seen


def test_a_long_value_comes_whole_wherever_it_is_cut(rig, tool):
    daemon = rig.daemon()
    client = daemon.client()
    value = "x" + "é€😀" * 5000
    client("FENCED", client.token("k"), "SET", "k", value)
    said = on_terminal(tool.env, "-u", "stockade://{}:{}".format(*daemon.address), "get", "k")
    assert said == value.encode() + b"\r\n"


def test_every_command_is_tested_here(rig, tool, hostile):
    listed = tool.output("--help").partition("commands:")[2].partition("options,")[0]
    names = set(re.findall(r"(?m)^  ([a-z]+(?: [a-z]+)?)  ", listed))
    tested = [" ".join(map(str, words)) for words in commands(hostile[0], rig, *hostile[1:])]
    assert names and all(any(f" {name} " in f" {words} " for words in tested) for name in names)


def test_a_pipe_gets_values_as_they_are_and_names_escaped(rig, tool, hostile):
    uri = "stockade://{}:{}".format(*hostile[0].address)
    for name in (HOSTILE, RAW):
        def bytes_of(*words):
            return subprocess.run([BUILD / "stockade", "-u", uri, *words], env=tool.env, check=True,
                                  capture_output=True).stdout
        key = os.fsdecode(name)
        assert bytes_of("get", key) == name + b"\n"
        assert bytes_of("get", key + "h") == name + b": " + name + b"\n"
        for words in (["lease", key], ["leases"]):
            assert rb"k\x1b[2J\x07\x0d\xc2\x9b31m\xe2\x80\xae" in bytes_of(*words)
        for words in (["lease", key], ["leases"], ["get", key]):
            said = bytes_of(*words, "--json")
            assert not harmful(said) and json.loads(said)
    assert json.loads(bytes_of("get", os.fsdecode(HOSTILE), "--json"))["value"] == HOSTILE.decode()


def test_the_daemons_log_is_harmless(rig, hostile):
    """As text, too, and what others say in it."""
    text = rig.daemon(store=f"sqlite:{rig.folder}/other.db")
    client = text.client()
    client.refused("UNKNOWN", "FENCED", 3, "SET", RAW, 1)
    client("ACQUIRE", RAW, 1000, "OWNER", RAW)
    client("REVOKE", RAW)
    for said in (hostile[1].read_bytes(), hostile[2].read_bytes(), text.stderr().encode()):
        assert not harmful(said)
