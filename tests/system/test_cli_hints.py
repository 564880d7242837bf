# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people make at the command line of `stockade` and `stockaded`: each answer is one
line that says what is wrong, and what to do."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, environment, patience

# Root reads and writes whatever it likes, unless it gives that power up.
UNPRIVILEGED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.getuid() == 0 else ()
DAEMON = ("{build}/stockaded", "--listen", "127.0.0.1:0", "--admin", "off")
CLIENT = ("{build}/stockade", "-u", "{uri}")

# The mistake: its words, exit status, and what the line has to say. `{closed}` is a folder that may
# not be written, `{text}` a text file, `{conf}` a config file; sku:42 has 6 pieces.
ROWS = {
    "a folder that may not be written": (
        (*UNPRIVILEGED, *DAEMON, "--store", "sqlite:{closed}/shop.db"), 1,
        r"user \d+ cannot create {closed}/shop.db in the folder {closed}: Permission denied"),
    "a folder that is not there": (
        (*DAEMON, "--store", "sqlite:{folder}/none/shop.db"), 1,
        "cannot create {folder}/none/shop.db: there is no folder {folder}/none"),
    "a unix socket in a folder that is not there": (
        ("{build}/stockaded", "--listen", "unix:/nonexist/s", "--admin", "off", "--store",
         "sqlite:{folder}/new.db"), 1,
        "cannot listen on unix:/nonexist/s: there is no such folder"),
    "a config line without =": (
        ("{build}/stockaded", "--config", "{conf}"), 2, r"{conf}:1: expected name = value"),
    "a lease URI's option with another name": (
        (*DAEMON, "--lease", "redis://127.0.0.1:1?timeout=5"), 2,
        r'"timeout" is unknown; did you mean timeout_ms\?'),
    "a parameter of ours in a store's URI": (
        (*DAEMON, "--store", "postgresql:///x?timeout_m=1"), 2,
        r'"timeout_m" \(did you mean timeout_ms\?\)'),
    "a parameter of ours out of its bounds": (
        (*DAEMON, "--store", "postgresql:///x?timeout_ms=1"), 2,
        "the timeout_ms is a number from 100 to 600000"),
    "a store without its scheme": (
        (*DAEMON, "--store", "shop.db"), 2, r'did you mean "sqlite:shop.db"\?'),
    "a store as -u without its scheme": (
        ("{build}/stockade", "-u", "./shop.db", "get", "k"), 2,
        r"did you mean sqlite:./shop.db\?"),
    "a daemon as -u without its scheme": (
        ("{build}/stockade", "-u", "127.0.0.1:7379", "get", "k"), 2,
        r"did you mean stockade://127.0.0.1:7379\?"),
    "the same for a tool": (
        ("{build}/stockade", "check", "--store", "shop.db"), 2,
        r'did you mean "sqlite:shop.db"\?'),
    "more than there are": (
        (*CLIENT, "take", "sku:42", "100"), 3, "sku:42: 6 left, 100 asked for; nothing taken"),
    "more than there are above a minimum": (
        (*CLIENT, "take", "sku:42", "5", "--min", "2"), 3,
        "6 left, 5 asked for, 2 have to stay; nothing taken"),
    "more than there are in a field": (
        (*CLIENT, "take", "hash", "8", "--field", "left"), 3,
        "7 left, 8 asked for; nothing taken"),
    "a negative value": (
        (*CLIENT, "set", "k", "-5"), 2,
        "-5 is not an option here; for negatives: stockade set k -- -5; see"),
    "a longer negative value": (
        (*CLIENT, "set", "k", "-512"), 2,
        "-512 is not an option here; for negatives: stockade set k -- -512; see"),
    "a program without --": (
        (*CLIENT, "lock", "r", "echo", "hi"), 2, "put -- before the program"),
    "the admin address": (
        ("{build}/stockade", "-u", "stockade://{admin}", "get", "k"), 69,
        "{admin} speaks HTTP, .* clients use another port .* 7379"),
    "the admin address, with a password": (
        ("{build}/stockade", "-u", "stockade://:pw@{admin}", "get", "k"), 69,
        "{admin} speaks HTTP, .* clients use another port .* 7379"),
    "the admin address, for a lock": (
        ("{build}/stockade", "-u", "stockade://{admin}", "lock", "r", "--", "true"), 69,
        "{admin} speaks HTTP, .* clients use another port .* 7379"),
    "a variable with a slip": (
        ("env", "STOCKADE_LISEN=127.0.0.1:0", *DAEMON, "--store", "sqlite:{text}"), 1,
        'unknown environment variable "STOCKADE_LISEN"; did you mean STOCKADE_LISTEN'),
    "the same for a client": (
        ("env", "STOCKADE_URL={uri}", "{build}/stockade", "-u", "{uri}", "get", "sku:42"), 0,
        'unknown environment variable "STOCKADE_URL"; did you mean STOCKADE_URI'),
    "a file that is no backup": (
        ("{build}/stockade", "restore", "{text}", "--store", "sqlite:{store}"), 1,
        "{text} is not a backup: it is not a database; the store is unchanged"),
    "a move to a store without its scheme": (
        ("{build}/stockade", "move", "--from", "sqlite:{store}", "--to", "new.db"), 2,
        r'did you mean "sqlite:new.db"\?'),
    "a move of what is no store": (
        ("{build}/stockade", "move", "--from", "sqlite:{text}", "--to", "sqlite:{folder}/n.db"), 1,
        "{text} is not a store: it is not a database"),
    "a move of a store that somebody has changed": (
        ("{build}/stockade", "move", "--from", "sqlite:{altered}", "--to", "sqlite:{folder}/n.db"),
        1, r'/altered.*: the trigger theirs on stockade_resource is not Stockade'),
    "a move to a database that is away": (
        ("{build}/stockade", "move", "--from", "sqlite:{store}", "--to",
         "postgresql://shop:secret@127.0.0.1:1/shop"), 1,
        r"postgresql://\*\*\*@127.0.0.1:1/shop: connection .* failed: Connection refused"),
    "an option with a slip": (
        (*CLIENT, "set", "k", "5", "--tokne", "1"), 2, r"did you mean --token\?"),
    "an option that every command has, with a slip": (
        (*CLIENT, "get", "k", "--pasword-file", "f"), 2, r"did you mean --password-file\?"),
    "the same before the command": (
        ("{build}/stockade", "--pasword-file", "f", "get", "k"), 2,
        r"--pasword-file is not an option; did you mean --password-file\?"),
    "a command in capitals": (
        ("{build}/stockade", "GET", "k"), 2, r"GET is not a command; did you mean get\?"),
    "a second word with a slip": (
        ("{build}/stockade", "guard", "lst"), 2,
        r"guard lst is not a command; did you mean guard list\?"),
    "a second word like none": (
        ("{build}/stockade", "guard", "frobnicate"), 2,
        "guard frobnicate is not a command, but `guard create` is"),
    "a command like none": (
        ("{build}/stockade", "frobnicate"), 2,
        "frobnicate is not a command; see stockade --help"),
    "a database's URI with a slip in an option": (
        (*DAEMON, "--store", "postgresql://127.0.0.1/shop?connect_tiemout=3"), 2,
        r'"connect_tiemout" \(did you mean connect_timeout\?\)'),
    "a daemon's URI with a slip in an option": (
        ("{build}/stockade", "-u", "stockades://127.0.0.1?tls_cert_=x", "get", "k"), 2,
        r'"tls_cert_" is unknown; did you mean tls_cert\?'),
    "a value for an option that takes none": (
        (*CLIENT, "get", "k", "--json=yes"), 2, "--json=yes has a value, and --json takes none"),
    "a guard in what is no store": (
        ("{build}/stockade", "guard", "list", "--store", "s.db"), 2,
        "--store: a URI begins with .* did you mean sqlite:s.db"),
    "a daemon's option with a slip": (
        (*DAEMON, "--lisen", "127.0.0.1:0"), 2, r"did you mean --listen\?"),
    "a command with a slip": (
        ("{build}/stockade", "lesae", "k"), 2, r"lesae is not a command; did you mean lease\?"),
}


@pytest.fixture
def values(local, rig):
    """What stands for the names in braces."""
    client = local.client()
    for command, key in (("SET sku:42 6", "sku:42"), ("HSET hash left 7", "hash")):
        token = client.token(key)
        client.fenced(token, *command.split())
        client("RELEASE", key, token)
    closed, text, conf = (rig.folder / name for name in ("closed", "text.db", "c.conf"))
    closed.mkdir(mode=0o555)
    text.write_text("These are notes, and no database.\n" * 100)
    conf.write_text("listen 127.0.0.1:7400\n")
    store = rig.folder / "kept.db"
    rig.daemon(store=f"sqlite:{store}").stop()
    altered = rig.folder / "altered.db"
    shutil.copy(store, altered)
    with contextlib.closing(sqlite3.connect(altered)) as db:
        db.execute("CREATE TRIGGER theirs AFTER INSERT ON stockade_resource BEGIN SELECT 1; END")
    return {"build": BUILD, "uri": local.uri, "admin": "{}:{}".format(*local.admin),
            "folder": rig.folder, "closed": closed, "text": text, "conf": conf, "store": store,
            "altered": altered}


@pytest.mark.parametrize("row", ROWS)
def test_a_mistake_is_answered_by_what_to_do(values, row):
    words, status, said = ROWS[row]
    done = subprocess.run([word.format(**values) for word in words], capture_output=True,
                          text=True,
                          timeout=patience(HANG_SECONDS), check=False, cwd=values["folder"],
                          env=environment())
    assert done.returncode == status, done
    pattern = re.sub(r"\{(\w+)\}", lambda name: re.escape(str(values[name[1]])), said)
    assert re.search(pattern, done.stderr), done.stderr
    lines = [line for line in done.stderr.splitlines() if " is new: " not in line]
    assert len(lines) == (2 if row == "a variable with a slip" else 1), done.stderr


def test_a_refused_restore_leaves_the_store_as_it_was(values):
    before = values["store"].read_bytes()
    done = subprocess.run([BUILD / "stockade", "restore", values["text"], "--store",
                           f"sqlite:{values['store']}"], capture_output=True, text=True,
                          timeout=patience(HANG_SECONDS), check=False, env=environment())
    assert done.returncode == 1 and values["store"].read_bytes() == before


@pytest.mark.parametrize("setting", ["STOCKADE_LISTEN=127.0.0.1:0", "STOCKADE_URI=x",
                                     "STOCKADE_TOKEN=3", "STOCKADE_SERVICE_HOST=10.0.0.1",
                                     "STOCKADE_PORT_7379_TCP_ADDR=10.0.0.1", "OTHER=1"])
def test_a_variable_that_is_known_is_not_complained_of(values, setting):
    done = subprocess.run(["env", setting, BUILD / "stockade", "-u", values["uri"], "get",
                           "sku:42"], capture_output=True, text=True,
                           timeout=patience(HANG_SECONDS),
                          check=False, env=environment())
    assert (done.stdout, done.stderr) == ("6\n", "")
