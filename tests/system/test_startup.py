# SPDX-License-Identifier: Apache-2.0
"""Start and end: options, config, databases and ports that cannot be used; the drain."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from harness.certs import Certs
from harness.leases import line_up
from harness.limits import BUILD, HANG_SECONDS, environment, patience, wait_until, within
from harness.maintenance import execute, query
from harness.resp import Client, Closed, ReplyError
from harness.rig import refusal, restart

DRAIN_SECONDS = 10
# Root reads and writes whatever it likes, unless it gives that power up.
UNPRIVILEGED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.getuid() == 0 else ()


@pytest.mark.parametrize("args, named", [
    (["--nosuch"], "nosuch"), (["--nosuch=1"], "nosuch"), (["stray"], "stray"),
    (["--listen"], "listen"), (["--listen", "nonsense"], "nonsense"),
    (["--listen", "127.0.0.1:99999"], "99999"), (["--listen", "127.0.0.1:"], "listen"),
    (["--listen", ""], "listen"), (["--admin", "nonsense"], "nonsense"),
    (["--store", "mysql:x"], "mysql"), (["--store", "sqlite:"], "store"),
    (["--lease", "nosuch:"], "nosuch"), (["--lease", "redis://"], "lease"),
    (["--lease", "redis://127.0.0.1:99999"], "99999"), (["--lease", "redis://h:1/x"], "lease"),
    (["--lease", "redis://h:1?nosuch=1"], "nosuch"), (["--lease", "zookeepers://h:1"], "stunnel"),
    (["--unfenced-writes", "maybe"], "maybe"), (["--log-level", "loud"], "loud"),
    (["--password-file", "/nonexistent/file"], "/nonexistent/file"),
    (["--config", "/nonexistent/file"], "/nonexistent/file"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_an_unusable_option_is_one_clear_line_that_names_it(rig, args, named):
    replaced = {"--listen": "listen", "--admin": "admin", "--store": "store", "--lease": "lease"}
    options = {replaced[args[0]]: None if args[0] != "--store" else ""} \
        if args[0] in replaced else {}
    assert named in refusal(rig, *args, **options)
    assert not rig.store.exists(), "nothing was begun"


@pytest.mark.parametrize("text, named", [
    ("nosuch = 1\n", "nosuch"), ("\n\nlog-level = loud\n", "loud"), ("listen\n", "3?|1"),
    ("unfenced-writes = perhaps\n", "perhaps"), ("lease = nosuch:\n", "nosuch"),
    ("\x00\x01\x02\n", "."),
], ids=lambda t: repr(t)[:24])
def test_an_unusable_line_in_the_config_is_one_clear_line_that_names_it(rig, text, named):
    config = rig.folder / "stockaded.conf"
    config.write_text(text)
    line = refusal(rig, "--config", config, lease=None)
    assert re.search(named, line) and "stockaded.conf" in line


def test_an_unreadable_config_is_one_clear_line(rig):
    config = rig.folder / "stockaded.conf"
    config.write_text("log-level = info\n")
    config.chmod(0)
    line = refusal(rig, "--config", config, wrapper=UNPRIVILEGED)
    assert "stockaded.conf" in line and "ermission" in line
    assert str(rig.folder) in refusal(rig, "--config", rig.folder), "nor a folder"


@pytest.mark.parametrize("text, mode", [("\n", 0o600), ("secret\n", 0)],
                         ids=["empty", "unreadable"])
def test_a_password_file_without_a_password_is_refused(rig, text, mode):
    path = rig.folder / "password"
    path.write_text(text)
    path.chmod(mode)
    assert str(path) in refusal(rig, "--password-file", path, wrapper=UNPRIVILEGED)


@pytest.mark.parametrize("script, said", [
    ("CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT);"
     "INSERT INTO customers VALUES(1, 'Alice')", ""),
    ("PRAGMA user_version = 7", ""),  # another program has begun it
    *((f"PRAGMA encoding = '{encoding}'; CREATE TABLE t(x); DROP TABLE t", "UTF-16.*remove it")
      for encoding in ("UTF-16le", "UTF-16be"))])
def test_a_foreign_database_is_refused_by_name_and_left_as_it_was(rig, script, said):
    execute(rig.store, script)
    before = rig.store.read_bytes()
    line = refusal(rig)
    assert str(rig.store) in line and re.search(said, line)
    assert rig.store.read_bytes() == before


@pytest.mark.parametrize("content", [b"This is not a database.\n" * 100, os.urandom(8192),
                                     b"SQLite format 3\x00" + b"\xff" * 5000],
                         ids=["text", "noise", "a header and noise"])
def test_a_file_that_is_no_database_is_refused_by_name_and_left_as_it_was(rig, content):
    rig.store.write_bytes(content)
    assert str(rig.store) in refusal(rig)
    assert rig.store.read_bytes() == content


def test_a_newer_database_is_refused_by_name_and_left_as_it_was(rig):
    rig.daemon().stop()
    (version,), = query(rig.store, "PRAGMA user_version")
    assert version > 0, "the schema carries a version"
    execute(rig.store, f"PRAGMA user_version = {version + 1}")
    line = refusal(rig)
    assert str(rig.store) in line and "newer" in line
    assert query(rig.store, "PRAGMA user_version") == [(version + 1,)]


def test_a_read_only_database_is_refused_by_name(rig):
    rig.daemon().stop()
    for path in rig.folder.glob("stockade.db*"):
        path.chmod(0o444)
    assert str(rig.store) in refusal(rig, wrapper=UNPRIVILEGED)


def test_a_read_only_folder_is_refused_by_name(rig):
    folder = rig.folder / "closed"
    folder.mkdir(mode=0o555)
    assert str(folder) in refusal(rig, store=f"sqlite:{folder}/stockade.db", wrapper=UNPRIVILEGED)


@pytest.mark.parametrize("path", ["nosuch/folder/stockade.db", "."])
def test_a_path_that_cannot_be_a_database_is_refused_by_name(rig, path):
    assert path in refusal(rig, store=f"sqlite:{path}", cwd=rig.folder)


def test_no_room_on_the_disk_at_start_is_one_clear_line(rig):
    rig.faults.order("write ENOSPC")
    assert str(rig.store) in refusal(rig, env=rig.fault_env())
    rig.faults.clear()
    client = rig.daemon().client()
    assert client.fenced(client.token("r"), "SET", "r", "v") == "OK"


SQLITE_PATH_MAX = 504  # with its -journal it has 512 bytes


def store_at(rig, length):
    """A path of so many bytes, in a folder that is there."""
    folder = rig.folder
    while length - len(str(folder)) > 240:
        folder /= "f" * 200
    folder.mkdir(parents=True, exist_ok=True)
    return folder / ("s" * (length - len(str(folder)) - 1))


@pytest.mark.parametrize("length", [101, SQLITE_PATH_MAX - 1, SQLITE_PATH_MAX])
def test_a_long_path_is_named_whole_and_what_to_do_behind_it(rig, length):
    path = store_at(rig, max(length, len(str(rig.folder)) + 3))
    daemon = rig.daemon(store=f"sqlite:{path}")
    os.link(path, f"{path.parent}/other")
    wait_until(lambda: re.search(r"remove all but one: find / -xdev -inum \d+;",
                                 str(daemon.client().ask("ACQUIRE", "r", 1000))), "it is told")
    daemon.close_clients()
    daemon.stop()
    assert re.search(rf"{path} has 2 names .* remove all but one: find / -xdev -inum \d+$",
                     refusal(rig, store=f"sqlite:{path}"))
    os.unlink(f"{path.parent}/other")
    execute(path, "CREATE TRIGGER theirs AFTER INSERT ON stockade_resource BEGIN SELECT 1; END")
    line = refusal(rig, store=f"sqlite:{path}")
    assert f"{path} was changed by another program: " in line
    assert "the trigger theirs on stockade_resource " in line
    assert line.endswith("remove it (DROP TRIGGER)"), line


def test_a_path_that_is_too_long_for_sqlite_is_told(rig):
    path = store_at(rig, SQLITE_PATH_MAX + 1)
    assert str(path) in refusal(rig, store=f"sqlite:{path}")


@pytest.mark.parametrize("option", ["listen", "admin"])
def test_a_port_in_use_is_one_clear_line_that_names_it(rig, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        options = {"listen": (address,)} if option == "listen" else {"admin": address}
        assert address in refusal(rig, **options)


def test_an_address_that_is_not_ours_is_one_clear_line_that_names_it(rig):
    assert "203.0.113.77" in refusal(rig, listen=("203.0.113.77:7379",))


def test_a_unix_socket_that_is_in_use_is_refused_and_a_left_over_one_is_replaced(rig):
    path = rig.folder / "s.sock"
    daemon = rig.daemon(listen=(f"unix:{path}",))
    other = f"sqlite:{rig.folder}/other.db"
    assert str(path) in refusal(rig, listen=(f"unix:{path}",), store=other)
    assert daemon.client()("PING") == "PONG", "the first one goes on"
    daemon.kill()
    assert path.exists()
    assert rig.daemon(listen=(f"unix:{path}",)).client()("PING") == "PONG"


def test_flag_beats_environment_beats_file_beats_default(rig):
    config = rig.folder / "stockaded.conf"
    config.write_text(f"# a comment\n\nstore = sqlite:{rig.folder}/file.db\n"
                      f"unfenced-writes = allow\nlog-level=warn\nadmin = off\n")
    env = {"STOCKADE_STORE": f"sqlite:{rig.folder}/env.db"}
    base = {"admin": None, "lease": None}

    def made(daemon):
        daemon.stop()
        names = {path.name for path in rig.folder.glob("*.db")}
        for path in rig.folder.glob("*.db*"):
            path.unlink()
        return names

    assert made(rig.daemon(store="", admin=None, lease=None, cwd=rig.folder, env={
        "STOCKADE_ADMIN": "off"})) == {"stockade.db"}
    assert made(rig.daemon("--config", config, store="", **base)) == {"file.db"}
    assert made(rig.daemon("--config", config, store="", env=env, **base)) == {"env.db"}
    flag = f"sqlite:{rig.folder}/flag.db"
    daemon = rig.daemon("--config", config, store=flag, env=env, **base)
    assert daemon.admin is None and daemon.client()("SET", "k", "v") == "OK", "the file's others"
    assert made(daemon) == {"flag.db"}


def test_the_config_file_may_come_from_the_environment_and_hold_every_option(rig):
    password = rig.folder / "password"
    password.write_text("secret\n")
    config = rig.folder / "stockaded.conf"
    config.write_text(f"listen = 127.0.0.1:0\nlisten = unix:{rig.folder}/s.sock\n"
                      f"store = sqlite:{rig.folder}/x.db\nlease = local:\nadmin = 127.0.0.1:0\n"
                      f"password-file = {password}\nunfenced-writes = allow\nlog-level = info\n")
    daemon = rig.daemon(listen=None, admin=None, store="", lease=None,
                        env={"STOCKADE_CONFIG": str(config)})
    assert len(daemon.listeners) == 2 and daemon.admin
    client = Client(str(rig.folder / "s.sock"))
    assert client("AUTH", "secret") == "OK" and client("SET", "k", "v") == "OK"


OPEN = "other machines could connect to "


@pytest.fixture
def locks(rig):
    """The options that close a door: a password, or certificates that clients have to show."""
    certs = Certs(rig.folder / "certs")
    cert, password = certs.server(), rig.folder / "password"
    password.write_text("secret\n")
    return {"password": ["--password-file", password],
            "tls": ["--tls-cert", cert.cert, "--tls-key", cert.key],
            "certificates": ["--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca,
                             "--tls-clients", "required"]}


@pytest.mark.parametrize("listen, admin, lock, is_open", [
    ("0.0.0.0:0", None, None, True), ("[::]:0", None, None, True),
    ("127.0.0.1:0", "0.0.0.0:0", None, True), ("127.0.0.1:0", "127.0.0.1:0", None, False),
    ("0.0.0.0:0", "0.0.0.0:0", "password", False), ("tls:0.0.0.0:0", None, "tls", True),
    ("tls:0.0.0.0:0", None, "certificates", False), ("0.0.0.0:0", None, "certificates", True),
    ("tls:0.0.0.0:0", "0.0.0.0:0", "certificates", True),
    ("tls:0.0.0.0:0", "tls:0.0.0.0:0", "certificates", False),
])
def test_nothing_is_open_to_a_network_without_a_word(rig, locks, listen, admin, lock, is_open):
    args = [*locks.get(lock, ()), *(["--admin", "off"] if admin is None else [])]
    if is_open:
        assert OPEN in refusal(rig, *args, listen=[listen], admin=admin)
        daemon = rig.daemon(*args, "--insecure-listen", "allow", listen=[listen], admin=admin)
        assert "other machines can connect to " in daemon.log()
    else:
        assert "other machines" not in rig.daemon(*args, listen=[listen], admin=admin).log()


def test_a_password_that_is_taken_away_opens_no_door_either(rig, locks):
    config = rig.folder / "stockaded.conf"
    config.write_text(f"password-file = {locks['password'][1]}\n")
    daemon = rig.daemon("--config", config, listen=["0.0.0.0:0"])
    config.write_text("\n")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: OPEN in daemon.log(), "it is said")
    client = Client(("127.0.0.1", daemon.address[1]))
    client.refused("NOAUTH", "GET", "k")
    client.close()


def test_help_names_every_option_and_marks_those_that_sighup_changes():
    run = subprocess.run([BUILD / "stockaded", "--help"], capture_output=True, text=True,
                         timeout=patience(HANG_SECONDS), check=False)
    assert run.returncode == 0 and run.stderr == ""
    for option in ("config", "listen", "store", "lease", "admin", "password-file",
                   "unfenced-writes", "log-level"):
        assert f"--{option}" in run.stdout
    marked = {part.split()[0] for part in run.stdout.split("\n  --")[1:]
              if "[SIGHUP]" in part.split("\n\n")[0]}
    assert marked == {"password-file", "unfenced-writes", "log-level", "log-format", "max-waiters",
                      "max-reply-memory", "sql-time-limit", "tls-cert", "tls-key", "tls-ca",
                      "tls-clients", "tls-user", "acl-file", "max-leases", "max-rate",
                      "max-connections-per-user", "max-leases-per-user", "max-waiters-per-user",
                      "max-rate-per-user", "max-memory-per-user"}


def test_sigterm_answers_waiters_with_an_error_and_exits_with_0(rig, lease):
    daemon = rig.daemon(lease=lease)
    holder, idle = daemon.client(), daemon.client()
    holder.token("r")
    waiters = line_up(daemon, "r", 10)
    with within(patience(3)):
        daemon.signal(signal.SIGTERM)
        for waiter in waiters:
            assert isinstance(waiter.read(), ReplyError)
            assert waiter.is_closed()
        assert idle.is_closed()
        assert daemon.wait() == 0


BEGUN = b"begun" * 1000  # so long that it is committed while the event loop goes on


def test_what_was_begun_is_finished_before_the_daemon_exits(rig, lease):
    daemon = rig.daemon(lease=lease, env=rig.fault_env())
    client = daemon.client()
    token = client.token("r")
    rig.faults.order("sync stall")
    client.send("FENCED", token, "SET", "r", BEGUN)
    rig.faults.await_hit()
    daemon.signal(signal.SIGTERM)
    wait_until(lambda: not accepts(daemon.address), "it takes no new connections")
    rig.faults.clear()
    assert client.read() == "OK"
    assert client.is_closed()
    assert daemon.wait() == 0
    assert rig.daemon(lease=lease).client()("GET", "r") == BEGUN


def accepts(address):
    try:
        with contextlib.closing(Client(address, timeout=1)) as client:
            return not client.is_closed(0.05)
    except OSError:
        return False


def test_every_write_that_was_acknowledged_during_the_drain_is_there(rig):
    daemon = rig.daemon()
    client = daemon.client()
    token = client.token("r")
    client.send_all([("FENCED", token, "INCR", "r")] * 5000)
    acked = client.read()
    daemon.signal(signal.SIGTERM)
    with contextlib.suppress(Closed):
        while True:
            reply = client.read()
            if not isinstance(reply, ReplyError):
                acked = reply
    assert daemon.wait() == 0
    stored = int(rig.daemon().client()("GET", "r"))
    assert acked <= stored <= 5000


def assert_ends_in_time(daemon):
    with within(patience(DRAIN_SECONDS + 2)):
        daemon.signal(signal.SIGTERM)
        assert daemon.wait(DRAIN_SECONDS + 5) == 0


def test_a_client_that_never_reads_does_not_keep_the_daemon_from_exiting(rig):
    daemon = rig.daemon("--unfenced-writes", "allow")
    client = daemon.client()
    client("SET", "k", b"v" * (1 << 20))
    client.send_all([("GET", "k")] * 100)
    assert_ends_in_time(daemon)


def test_a_silent_redis_does_not_keep_the_daemon_from_exiting(rig, redis):
    daemon = rig.daemon(lease=redis.uri)
    client = daemon.client()
    client.token("r")
    redis.freeze()
    client.send("ACQUIRE", "s", 60000)
    assert_ends_in_time(daemon)


def test_a_restart_keeps_data_leases_and_their_owners(rig, lease):
    daemon = rig.daemon(lease=lease)
    client = daemon.client()
    token = client.token("r", 60000, "OWNER", "me")
    client.fenced(token, "HSET", "r", "f", "v")
    for how in (signal.SIGTERM, signal.SIGKILL):
        daemon = restart(rig, daemon, how, lease=lease)
        client = daemon.client()
        assert client("HGETALL", "r") == [b"f", b"v"]
        lease_now = client.lease("r")
        assert (lease_now["state"], lease_now["owner"]) == ("held", b"me")
        assert client.acquire("r", 60000, "OWNER", "me").token == token
        assert client.fenced(token, "HSET", "r", "f", "v") == 0


FREE_PAGE = "--admin", "127.0.0.1:0"  # the usual port may be taken


def occupied_listen(_rig, taken):
    return ("--listen", f"127.0.0.1:{taken}"), "cannot listen on"


def occupied_admin(_rig, taken):
    return ("--listen", "127.0.0.1:0", "--admin", f"127.0.0.1:{taken}"), "cannot serve admin HTTP"


def no_certificate(rig, _taken):
    return ("--listen", "tls:127.0.0.1:0", *FREE_PAGE, "--tls-cert", rig.folder / "no.pem",
            "--tls-key", rig.folder / "no.pem"), "no.pem"


def open_to_all(_rig, _taken):
    return ("--listen", "0.0.0.0:0", *FREE_PAGE), "insecure-listen"


def page_open_to_all(_rig, _taken):
    return ("--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"), "insecure-listen"


def bad_users(rig, _taken):
    path = rig.folder / "users"
    path.write_text("user ann on nonsense")
    path.chmod(0o600)
    return ("--listen", "127.0.0.1:0", *FREE_PAGE, "--acl-file", path), "nonsense"


WRONG_DOORS = [occupied_listen, occupied_admin, no_certificate, open_to_all, page_open_to_all,
               bad_users]


def start_with(rig, *words):
    return subprocess.run([BUILD / "stockaded", "--store", f"sqlite:{rig.folder}/new.db",
                           "--admin", "off", *words],
                          env=environment(), capture_output=True, text=True, check=False,
                          timeout=patience(HANG_SECONDS))


@pytest.mark.parametrize("wrong", WRONG_DOORS)
def test_a_start_that_fails_before_the_store_is_open_leaves_no_store(rig, wrong):
    with socket.create_server(("127.0.0.1", 0)) as server:
        words, named = wrong(rig, server.getsockname()[1])
        done = start_with(rig, *words)
    assert done.returncode == 1 and named in done.stderr and done.stderr.count("\n") == 1
    assert not list(rig.folder.glob("new.db*"))


@pytest.mark.parametrize("wrong", [wrong for wrong in WRONG_DOORS if "occupied" not in
                                   wrong.__name__])
def test_check_says_what_a_start_would_say(rig, wrong):
    words, named = wrong(rig, None)
    done = start_with(rig, "--check", *words)
    assert done.returncode == 1 and named in done.stderr and not done.stdout
    said = [re.sub(r"0\.0\.0\.0:\d+", "", errors.partition("Z ")[2])
            for errors in (done.stderr, start_with(rig, *words).stderr)]
    assert said[0] == said[1]
    assert not list(rig.folder.glob("new.db*"))


def test_a_check_tells_its_terminal_and_makes_no_log_file(rig):
    """It may be another user's than the daemon's, who could not open it then."""
    log = rig.folder / "check.log"
    done = start_with(rig, "--check", "--log-file", log, "--listen", "tls:127.0.0.1:0")
    assert done.returncode == 1 and "needs --tls-cert" in done.stderr
    assert not log.exists()


def test_a_start_that_fails_says_why_at_its_terminal_and_in_the_log(rig):
    log = rig.folder / "start.log"
    done = start_with(rig, "--log-file", log, "--listen", "tls:127.0.0.1:0", "--admin", "off")
    assert done.returncode == 1 and done.stderr.startswith("stockaded: a tls: address needs")
    assert "error a tls: address needs --tls-cert" in log.read_text()


def test_check_reads_the_config_beside_the_daemon_that_has_its_addresses(rig):
    daemon = rig.daemon()
    config = rig.folder / "check.conf"
    config.write_text("listen = {}:{}\nadmin = {}:{}\n".format(*daemon.address, *daemon.admin))
    done = start_with(rig, "--check", "--config", config)
    assert (done.returncode, done.stderr) == (0, "") and "in order" in done.stdout
    config.write_text("lisen = 127.0.0.1:0\n")
    done = start_with(rig, "--check", "--config", config)
    assert done.returncode == 2 and "did you mean listen?" in done.stderr
    assert not list(rig.folder.glob("new.db*"))


def test_an_open_door_that_is_allowed_is_told_once(rig):
    daemon = rig.daemon("--insecure-listen", "allow", listen=("0.0.0.0:0",))
    assert daemon.log().count("need no password") == 1


MAKERS = {  # who makes a store in SQLite where there was none
    "daemon": lambda rig, tool, path: rig.daemon(store=f"sqlite:{path}"),
    "library": lambda rig, tool, path: tool.output("-u", f"sqlite:{path}", "set", "k", "1"),
    "lock": lambda rig, tool, path: tool.output("-u", f"sqlite:{path}", "lock", "k", "--", "true"),
    "backup": lambda rig, tool, path: tool.output("backup", path, "--store", a_store(rig, tool)),
    "restore": lambda rig, tool, path: tool.output("restore", backup_of(a_store(rig, tool), tool),
                                                   "--store", f"sqlite:{path}"),
}


def a_store(rig, tool):
    tool.output("-u", f"sqlite:{rig.folder}/first.db", "set", "k", "1")
    return f"sqlite:{rig.folder}/first.db"


def backup_of(store, tool):
    copy = tool.folder / "copy"
    tool.output("backup", copy, "--store", store)
    return copy


@pytest.mark.parametrize("maker", MAKERS)
def test_a_stores_files_are_for_their_owner_only(rig, tool, maker):
    path = rig.folder / "new.db"
    MAKERS[maker](rig, tool, path)
    found = {found.name: oct(found.stat().st_mode & 0o777) for found in rig.folder.glob("new.db*")}
    assert "new.db" in found and set(found.values()) == {"0o600"}, found


# A store in memory.

IN_MEMORY = "the store is in memory, and goes with the daemon: it is for tests"


def memory_of(daemon):
    """The folder that its store is in."""
    links = pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir()
    folder, = {path.parent for path in map(pathlib.Path, map(os.readlink, links))
               if path.name == "store.db"}
    assert folder.name.startswith("stockade-memory-")
    return folder


@pytest.mark.parametrize("memory", [":memory:", "sqlite::memory:"])
def test_a_store_in_memory_goes_with_its_daemon_and_says_so_loudly(rig, memory):
    daemon, other = (rig.daemon(store=memory) for _ in range(2))
    folder, client = memory_of(daemon), daemon.client()
    assert folder.parent == pathlib.Path("/dev/shm") and folder.stat().st_mode & 0o777 == 0o700
    assert daemon.wrong == IN_MEMORY
    assert daemon.get("/ready")[:3:2] == (200, f"ready, but {IN_MEMORY}\n")
    assert f"troubles_detail:{IN_MEMORY}" in client("INFO").decode()
    assert daemon.stderr().count("store :memory: is for tests") == 1
    assert " is new: " not in daemon.stderr()
    client.fenced(client.token("r"), "SET", "r", "1")
    assert other.client()("GET", "r") is None, "each has its own"
    daemon.close_clients()
    daemon.stop()
    assert not folder.exists() and memory_of(other).exists()
    assert rig.daemon(store=memory).client()("GET", "r") is None


def test_what_a_killed_daemon_had_in_memory_goes_with_the_next_one(rig):
    daemon, living = (rig.daemon(store=":memory:") for _ in range(2))
    folder = memory_of(daemon)
    daemon.kill()
    strange = pathlib.Path(tempfile.mkdtemp(prefix="stockade-memory-", dir="/dev/shm"))
    try:
        (strange / "notes").write_text("of somebody else")
        rig.daemon(store=":memory:")
        assert not folder.exists()
        assert memory_of(living).exists() and living.client().token("r")
        assert (strange / "notes").exists(), "it is no store"
    finally:
        shutil.rmtree(strange)


def test_a_daemon_that_ends_at_once_leaves_nothing_in_memory(rig):
    daemon = rig.daemon(store=":memory:", env=rig.fault_env())
    folder, client = memory_of(daemon), daemon.client()
    token = client.token("r")
    rig.faults.order("sync stall")
    client.send("FENCED", token, "SET", "r", BEGUN)
    rig.faults.await_hit()
    daemon.signal(signal.SIGTERM)
    wait_until(lambda: "finishing what was begun" in daemon.log(), "it stops")
    daemon.signal(signal.SIGTERM)
    daemon.expected_status = daemon.wait()
    assert daemon.expected_status == 1 and not folder.exists()


def test_check_says_that_a_store_in_memory_is_for_tests(rig):
    done = start_with(rig, "--check", "--store", ":memory:", "--listen", "127.0.0.1:0",
                      "--admin", "off")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the store is in memory, and goes with the daemon" in done.stdout
