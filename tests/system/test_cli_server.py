# SPDX-License-Identifier: Apache-2.0
"""Which server `stockade` talks to, and with which password: -u anywhere on the line, the
environment, files of the store; and help that is asked for."""

import socket

import pytest

from harness.limits import BUILD, HANG_SECONDS, Stopwatch, patience
from harness.ports import free_port

PASSWORD = "p@ss:w/ö %d?&rd"


@pytest.fixture
def locked(rig):
    """A daemon with a password, and the file that holds it."""
    path = rig.folder / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    unix = rig.folder / "s.sock"
    daemon = rig.daemon("--password-file", path, listen=("127.0.0.1:0", f"unix:{unix}"))
    daemon.password_file, daemon.unix_uri = path, f"stockade+unix:{unix}"
    return daemon


def with_env(tool, **env):
    return {**tool.env, **{f"STOCKADE_{name}": str(value) for name, value in env.items()}}


@pytest.mark.parametrize("words", [
    "-u URI set KEY 1", "set -u URI KEY 1", "set KEY -u URI 1", "set KEY 1 --uri URI",
    "set KEY 1 --uri=URI", "set KEY --json -u URI 1", "set -u stockade://127.0.0.1:1 KEY 1 -u URI"])
def test_the_uri_stands_anywhere_and_the_last_one_counts(tool, local, key, words):
    words = [{"URI": local.uri, "KEY": key, "--uri=URI": f"--uri={local.uri}"}.get(word, word)
             for word in words.split()]
    tool.output(*words)
    assert local.client()("GET", key) == b"1"


def test_what_follows_two_dashes_is_the_programs(tool, local, key):
    said = tool.output("lock", key, "-u", local.uri, "--", "echo", "-u", "x")
    assert said == "-u x\n"


def test_the_uri_may_come_from_the_environment_and_a_flag_wins(tool, local, key):
    env = with_env(tool, URI=local.uri)
    assert tool.output("set", key, "1", env=env) == "OK\n"
    elsewhere = with_env(tool, URI=f"stockade://127.0.0.1:{free_port()}")
    assert tool.output("get", key, "-u", local.uri, env=elsewhere) == "1\n"
    done = tool.run("get", key, env=with_env(tool, URI="nonsense"))
    assert done.returncode == 2 and "STOCKADE_URI: a URI begins with stockade://" in done.stderr


def test_the_port_may_be_left_out(tool, key):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert other.getsockname()[1] != 7379
    done = tool.run("-u", "stockade://[::1]", "get", key)
    assert done.returncode == 69 and "[::1]:7379" in done.stderr


def test_the_program_under_a_lock_finds_the_server_of_its_lease(tool, local, key):
    script = f'{BUILD}/stockade set "$STOCKADE_RESOURCE" 7 --token "$STOCKADE_TOKEN"'
    assert tool.output("-u", local.uri, "lock", key, "--", "sh", "-c", script) == "OK\n"
    assert local.client()("GET", key) == b"7"


def test_a_store_without_a_daemon(tool, key):
    uri = f"sqlite:{tool.folder}/shop.db"
    tool.output("-u", uri, "set", key, "6")
    assert tool.output("take", key, "2", "-u", uri) == "4\n"
    script = f'{BUILD}/stockade take "$STOCKADE_RESOURCE" 1 --token "$STOCKADE_TOKEN"'
    assert tool.output("lock", key, "-u", uri, "--", "sh", "-c", script) == "3\n"
    assert tool.output("lease", key, "-u", uri).startswith("free, newest token 3")
    assert tool.output("leases", "-u", uri) == ""
    held = tool.start("-u", uri, "lock", key, "--ttl", "3s", "--", "sh", "-c",
                      "echo on; exec sleep 20", cwd=tool.folder)  # it asks once a second
    assert held.stdout.readline() == "on\n"
    assert "held" in tool.output("lease", key, "-u", f"{uri}?lease=local:")
    assert "token 4" in tool.output("revoke", key, "-u", uri)
    assert held.wait(patience(HANG_SECONDS)) == 76
    held.communicate()


def test_backup_and_check_take_the_uri_of_a_store(tool, key):
    uri = f"sqlite:{tool.folder}/shop.db"
    tool.output("set", key, "6", "-u", uri)
    assert tool.output("check", "-u", f"{uri}?lease=local:").startswith("ok: 1 resources")
    assert tool.output("check", env=with_env(tool, URI=uri)).startswith("ok: 1 resources")
    copy = tool.folder / "copy.db"
    tool.output("backup", copy, env=with_env(tool, URI="stockade://h", STORE=uri))
    assert tool.output("check", "--store", f"sqlite:{copy}", "-u", uri).startswith("ok: 1 ")


@pytest.mark.parametrize("way", ["file", "file in the environment", "environment", "uri"])
@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_a_password_is_never_needed_in_the_list_of_processes(tool, locked, key, way, over):
    uri = locked.uri if over == "tcp" else locked.unix_uri
    words, env = ["get", key], {"URI": uri}
    if way == "file":
        words += ["--password-file", locked.password_file]
    elif way == "file in the environment":
        env["PASSWORD_FILE"] = locked.password_file
    elif way == "environment":
        env["PASSWORD"] = PASSWORD
    else:
        encoded = "".join(f"%{byte:02x}" for byte in PASSWORD.encode())
        env["URI"] = (uri.replace("://", f"://:{encoded}@") if over == "tcp"
                      else f"{uri}?password={encoded}")
    done = tool.run(*words, env=with_env(tool, **env))
    assert done.returncode == 3 and "nothing there" in done.stderr, done


def test_a_password_that_is_wrong_or_missing_is_told(tool, locked, key):
    for env in {}, {"PASSWORD": "wrong"}:
        done = tool.run("get", key, env=with_env(tool, URI=locked.uri, **env))
        assert done.returncode == 1 and "uthentication" in done.stderr or \
            "username-password" in done.stderr, done
    done = tool.run("-u", locked.uri, "top", "--json")
    assert done.returncode == 1 and "UNREACHABLE" not in done.stdout, done
    empty = tool.folder / "empty"
    empty.write_text("\n")
    for path, said in ((empty, "one line"), (tool.folder / "none", "No such file")):
        done = tool.run("get", key, "--password-file", path)
        assert done.returncode == 2 and said in done.stderr and str(path) in done.stderr


def test_the_demos_take_a_password_too(tool, locked):
    done = tool.run("demo", "oversell", "-u", locked.uri, "--password-file", locked.password_file,
                    "--contender", "stockade", "--stock", "3", "--stops", "0")
    assert done.returncode == 0, done.stderr


def test_a_contender_that_takes_no_password_is_left_out_and_none_is_shown(tool, redis):
    redis("CONFIG", "SET", "requirepass", "secret")
    uri = redis.uri.replace("://", "://:secret@")
    done = tool.run("demo", "oversell", "--redis", uri, "--stock", "3", "--stops", "0")
    assert done.returncode == 0, done.stderr
    assert "left out: its program takes no password" in done.stdout
    orders = tool.folder / "orders.csv"
    orders.write_text("invoice,invoiced_at,sku,quantity,customer\n1,100,A,5,\n")
    done = tool.run("replay", "--orders", orders, "--lease", uri)
    assert done.returncode == 0 and "secret" not in done.stdout + done.stderr, done


@pytest.mark.parametrize("words, said", [
    ("help", "usage: stockade [-u URI] COMMAND"), ("help --help", "usage: stockade [-u URI]"),
    ("help take", "usage: stockade take KEY N"), ("help demo", "  demo oversell "),
    ("help demo basket", "usage: stockade [-u URI] demo basket"),
    ("demo --help", "  demo oversell "), ("demo -h", "demo basket")])
def test_help_that_is_asked_for_is_no_mistake(tool, words, said):
    assert said in tool.output(*words.split())


def test_the_uri_stands_between_the_words_of_a_command_too(tool):
    said = tool.run("demo", "-u", "sqlite:x", "oversell", "--stock", "0")
    assert "--stock takes a whole number" in said.stderr
    assert "needs a value" in tool.run("demo", "-u").stderr


@pytest.mark.parametrize("words", ["help nonsense", "nonsense --help", "demo", "demo nonsense"])
def test_help_on_what_is_not_there_is_one(tool, words):
    assert tool.run(*words.split()).returncode == 2


def test_a_web_server_is_not_waited_for(tool, local, key):
    with Stopwatch() as watch:
        done = tool.run("-u", "stockade://{}:{}".format(*local.admin), "get", key)
    assert "speaks HTTP" in done.stderr and watch.seconds < patience(3)
