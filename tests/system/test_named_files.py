# SPDX-License-Identifier: Apache-2.0
"""Files that an operator names: whatever stands at their paths, nothing hangs, the error says which
file is meant, and what was in force stays."""

import functools
import os
import re
import signal
import subprocess

import pytest

from harness.limits import DAEMON, HANG_SECONDS, patience, wait_until
from harness.rig import refusal

# Of the daemon's options that name a file: the others that it takes, and whether it writes there.
TLS = ("tls:127.0.0.1:0",)
OPTIONS = {
    "config": ((), False),
    "tls-cert": (TLS, False),
    "tls-key": (TLS, False),
    "tls-ca": (TLS, False),
    "password-file": ((), False),
    "acl-file": ((), False),
    "log-file": ((), True),
    "audit": ((), True),
}


def fifo(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def device(path):
    path.symlink_to("/dev/zero")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 34)


def zeros(path):
    path.write_bytes(bytes(100))
    path.chmod(0o600)


def dangling(path):
    path.symlink_to("nothing")


def loop(path):
    path.symlink_to(path.name)


KINDS = [fifo, folder, device, huge, zeros, dangling, loop]


def test_all_options_that_name_a_file_are_tested_here():
    said = subprocess.run([DAEMON, "--help"], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"(?m)^  --(\S+) FILE$", said)) == set(OPTIONS)


@functools.cache
def server(certs):
    return certs.server("files")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("option", OPTIONS)
def test_what_is_no_such_file_is_refused_by_name(rig, certs, option, kind):
    listen, written = OPTIONS[option]
    if written and kind in (device, huge, zeros, dangling) and (option, kind) != ("audit", device):
        pytest.skip("it can be written to, or an audit's own test has it")
    path = rig.folder / "named"
    kind(path)
    cert = server(certs)
    words = {"tls-cert": cert.cert, "tls-key": cert.key, "tls-ca": certs.ca} if listen else {}
    words[option] = path
    if option == "tls-ca":
        words["tls-clients"] = "required"
    args = [word for name, value in words.items() for word in (f"--{name}", value)]
    why = refusal(rig, *args, listen=[*listen, "127.0.0.1:0"])
    assert str(path) in why
    if kind is fifo and not written:
        assert "not an ordinary file" in why


def test_a_file_without_a_newline_at_its_end_is_whole(rig):
    path = rig.folder / "password"
    path.write_text("secret")
    config = rig.folder / "config"
    config.write_text(f"password-file = {path}")
    assert rig.daemon("--config", config).client()("AUTH", "secret") == "OK"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_users_that_cannot_be_read_leave_the_old_ones(rig, kind):
    path = rig.folder / "users"
    path.write_text("user default on >secret ~* &* +@all\n")
    daemon = rig.daemon("--acl-file", path)
    client = daemon.client()
    client("AUTH", "secret")
    path.unlink()
    kind(path)
    client.sock.settimeout(patience(5))
    client.refused("ERR", "ACL", "LOAD")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: daemon.stderr().count(str(path)) >= 1, "it says what is wrong")
    assert daemon.client()("AUTH", "secret") == "OK"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_command_line_names_the_file(tmp_path, tool, kind):
    path = tmp_path / "named"
    kind(path)
    for words in (("--password-file", path, "get", "k"), ("audit", "verify", path)):
        if words[0] == "audit" and kind in (huge, zeros):
            continue  # an audit of any length is read, and judged
        done = tool.run(*words, timeout=5)
        assert done.returncode in (1, 2) and str(path) in done.stderr, words


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_clients_tls_files_are_named(rig, certs, tool, kind):
    cert = server(certs)
    daemon = rig.daemon("--tls-cert", cert.cert, "--tls-key", cert.key, listen=["tls:127.0.0.1:0"])
    path = rig.folder / "named"
    kind(path)
    for name in ("tls_ca", "tls_cert", "tls_key"):
        uri = "stockades://{}:{}?".format(*daemon.address) + "&".join(
            f"{part}={path if part == name else given}" for part, given in
            (("tls_ca", certs.ca), ("tls_cert", cert.cert), ("tls_key", cert.key)))
        done = tool.run("-u", uri, "get", "k", timeout=10)
        assert done.returncode not in (0, 3) and str(path) in done.stderr, done


@pytest.mark.parametrize("kind", [fifo, device], ids=lambda kind: kind.__name__)
def test_a_store_is_a_file(rig, tool, kind):
    path, other = rig.folder / "named", rig.folder / "other"
    kind(path)
    here = f"sqlite:{path}"
    assert f"cannot open {path}: it is not an ordinary file" in refusal(rig, store=here)
    for words in (["restore", path, "--store", f"sqlite:{other}"], ["check", "--store", here],
                  ["backup", other, "--store", here], ["-u", here, "get", "k"],
                  ["move", "--from", here, "--to", f"sqlite:{other}"]):
        done = tool.run(*words, timeout=5)
        assert done.returncode > 0 and str(path) in done.stderr, words
    assert not other.exists()


@pytest.mark.parametrize("name", ["sslcert", "sslkey", "sslrootcert", "sslcrl", "passfile"])
def test_what_libpq_would_wait_for_is_refused(rig, tool, name):
    path = rig.folder / "named"
    fifo(path)
    store = f"postgresql://nowhere.invalid/db?{name}={path}"
    daemon = subprocess.run([DAEMON, "--listen", "127.0.0.1:0", "--lease", "local:", "--store",
                             store], capture_output=True, text=True, timeout=patience(HANG_SECONDS))
    assert daemon.returncode > 0 and f"{name} {path}: it is not an ordinary file" in daemon.stderr
    done = tool.run("check", "--store", store, timeout=5)
    assert done.returncode > 0 and str(path) in done.stderr
