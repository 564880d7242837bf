# SPDX-License-Identifier: Apache-2.0
"""The library against daemons and without one: what is installed, threads and processes on one
store, and keep-alive. (Its functions one by one: tests/unit/client.)"""

import contextlib
import itertools
import os
import re
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import install
from harness.library import Remote, StkError, fails, sell
from harness.limits import (BUILD, HANG_SECONDS, REPO, Late, Seconds, Stopwatch, patience,
                            sanitized, wait_until, within)
from harness.ports import free_port
from harness.rig import restart
from harness.users import with_users

PROGRAM = REPO / "tests/system/clients/library.c"
EVERYWHERE = ["embedded", "tcp", "unix"]


@pytest.fixture(params=EVERYWHERE)
def uri(request, rig):
    if request.param == "embedded":
        return f"sqlite:{rig.store}"
    if request.param == "unix":
        daemon = rig.daemon(listen=(f"unix:{rig.folder}/s.sock",))
        return f"stockade+unix:{daemon.address}"
    return rig.daemon().uri


def test_an_embedded_store_whose_log_was_deleted_says_so_and_loses_nothing(rig, library):
    with library.open(f"sqlite:{rig.store}") as client:
        lease = client.acquire("r", ttl_ms=60000)
        client.set(lease, "r", "acknowledged")
        rig.store.with_name(rig.store.name + "-wal").unlink()
        with pytest.raises(StkError, match="stockade.db-wal was deleted") as caught:
            client.set(lease, "r", "refused")
        assert caught.value.code == "STORE"
    with library.open(f"sqlite:{rig.store}") as client:
        assert client.command("GET", "r") == b"acknowledged"


def test_a_command_whose_connection_is_closed_within_the_program_says_why_its_outcome_is_unknown(
        rig, library):
    waiting = re.compile(rb"id=(\d+) [^\n]* cmd=acquire ")
    with library.open(f"sqlite:{rig.store}") as client, ThreadPoolExecutor(1) as other:
        client.acquire("r", ttl_ms=60000)
        waiter = other.submit(client.command, "ACQUIRE", "r", 60000, "WAIT", 30000)
        found = wait_until(lambda: waiting.search(client.command("CLIENT", "LIST")), "it waits")
        client.command("CLIENT", "KILL", "ID", found[1].decode())
        with pytest.raises(StkError, match="the engine ended the session") as caught:
            waiter.result()
        assert caught.value.code == "UNSURE"


# Its name, and IDs of the program's own.

def test_each_process_has_a_name_of_its_own(daemon, library, key):
    def name():
        return re.search(rb" name=(\S*) ", client.command("CLIENT", "INFO"))[1].decode()
    with library.open(daemon.uri) as client:
        assert re.fullmatch(rf"[!-~]{{1,32}}-{os.getpid()}@{socket.gethostname()[:20]}", name())
        for bad in ("", "two words", "é", 65 * "x"):
            fails("MISUSE", client.set_name, bad)
        for good in ("till-3", 64 * "x"):
            client.set_name(good)
            assert name() == good
        lease = client.acquire(key, ttl_ms=300)
        wait_until(lambda: client.command("CLIENT", "LIST").count(f"name={good} ".encode()) == 2,
                   "the program's connection, and the one that renews")
        lease.release()


@pytest.mark.parametrize("user, told", [("", "NOAUTH"), ("till:wrong@", "WRONGPASS"),
                                        ("till:pw@", None)])
def test_a_login_is_told_as_it_is_and_a_name_needs_no_right(rig, library, user, told):
    uri = with_users(rig, "user till on >pw ~* +get").uri.replace("//", f"//{user}")
    if told:
        fails(told, library.open, uri)
    else:
        with library.open(uri) as client:
            assert client.get("k") is None


def test_an_id_of_the_programs_own_is_for_its_next_write(library, uri):
    with library.open(uri) as client:
        lease = client.acquire("n", ttl_ms=60000)
        client.set(lease, "n", 10)
        for _ in range(2):  # the second one changes nothing
            client.use_id("order 17")
            assert client.get("n") is not None  # no write
            assert client.take(lease, "n") == 9
            assert client.last_id == "order 17"
        assert client.take(lease, "n") == 8
        for _ in range(2):
            client.use_id(512 * "x")
            assert client.transaction((lease, "DECR", "n"), (lease, "DECR", "n")) == [7, 6]
        client.use_id("order 18")
        client.use_id(None)
        assert client.take(lease, "n") == 5
        assert client.last_id != "order 18"
        for bad in ("", 513 * "x"):
            fails("MISUSE", client.use_id, bad)
        assert client.receipt("n", lease.token, "order 17") == "applied"
        lease.release()


# What is installed.

def exported(path, *options):
    out = subprocess.run(["nm", *options, "--defined-only", path], check=True, text=True,
                         capture_output=True).stdout
    return {line.split()[2] for line in out.splitlines() if len(line.split()) == 3}


def functions():
    """The header's functions: name -> the words before it."""
    header = (REPO / "proxy/client/stockade.h").read_text().split("#define STOCKADE_H")[1]
    return {name: words
            for words, name in re.findall(r"^((?:\w+ )+)\*?(stk_\w+)\(", header, re.M)}


def declarations():
    """Those that it does not define itself."""
    return {name: words for name, words in functions().items()
            if not words.startswith("static inline")}


def test_each_symbol_version_lists_its_functions_and_no_pattern():
    """A pattern such as stk_* would give what comes later to a version that was released."""
    script = (REPO / "proxy/client/stockade.map").read_text()
    listed = re.findall(r"^    ([\w*]+);", script.replace("local:\n    *;", ""), re.M)
    assert sorted(listed) == sorted(declarations()), "each once, and no pattern"


def test_the_header_has_no_names_but_its_own():
    header = (REPO / "proxy/client/stockade.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    defined = set(re.findall(r"^#(?:define|ifndef|ifdef|undef) (\w+)", code, re.M))
    foreign = {"__GNUC__", "__cplusplus", "STOCKADE_H"}
    assert {name for name in defined - foreign if not name.startswith("STK_")} == set()
    assert "STOCKADE" not in code.replace("STOCKADE_H", "")


def test_what_may_not_be_dropped_is_a_warning(tmp_path):
    names = {name for name, words in declarations().items() if "STK_CHECKED" in words}
    assert {"stk_client_open", "stk_acquire", "stk_set", "stk_take", "stk_txn_exec"} <= names
    assert {"stk_release", "stk_lease_free"}.isdisjoint(names), "what is fine to drop"
    program = tmp_path / "x.c"
    program.write_text("#include <stockade.h>\nvoid f(stk_client *shop, stk_lease *lease)\n{\n"
                       "    stk_take(lease, \"sku\", 1, NULL);\n    stk_release(lease);\n"
                       "    stk_client_close(shop);\n}\n")
    done = subprocess.run(["cc", "-c", "-Wall", "-Werror", f"-I{REPO}/proxy/client", program,
                           "-o", tmp_path / "x.o"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and done.stderr.count("error:") == 1
    assert "stk_take" in done.stderr and "unused" in done.stderr


def test_it_shows_its_own_functions_under_one_version_and_nothing_else():
    shared = exported(BUILD / "libstockade.so", "-D")
    declared = declarations().keys()
    assert shared - {"STOCKADE_0.1"} == {name + "@@STOCKADE_0.1" for name in declared}
    assert exported(BUILD / "libstockade.a", "-g") == declared
    dynamic = subprocess.run(["objdump", "-p", BUILD / "libstockade.so"], check=True, text=True,
                             capture_output=True).stdout
    assert re.search(r"SONAME +libstockade\.so\.0\n", dynamic)


def test_install_puts_everything_in_its_place_and_uninstall_takes_it_back(tmp_path):
    install.make("install", f"DESTDIR={tmp_path}", "PREFIX=/opt/stockade")
    top = tmp_path / "opt/stockade"
    found = sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir())
    assert found == ["bin/stockade", "bin/stockaded", "include/stockade.h", "lib/libstockade.a",
                     "lib/libstockade.so", "lib/libstockade.so.0", "lib/libstockade.so.0.1.0",
                     "lib/pkgconfig/stockade.pc", "lib/stockade/stockade_guard.so",
                     "share/bash-completion/completions/stockade",
                     "share/bash-completion/completions/stockaded",
                     "share/doc/stockade/stockade.conf", "share/java/stockade.jar",
                     "share/man/man1/stockade.1", "share/man/man3/libstockade.3",
                     *sorted(f"share/man/man3/{name}.3" for name in functions()),
                     "share/man/man5/stockade.conf.5", "share/man/man8/stockaded.8"]
    assert "prefix=/opt/stockade\nlibdir=/opt/stockade/lib\n" in \
        (top / "lib/pkgconfig/stockade.pc").read_text()
    assert {path.stat().st_mode & 0o777 for path in (top / "share").rglob("*.*")} == {0o644}
    install.make("uninstall", f"DESTDIR={tmp_path}", "PREFIX=/opt/stockade")
    assert [path for path in top.rglob("*") if not path.is_dir()] == []


@pytest.mark.parametrize("standard", ["c99", "c11", "gnu17", "c++11", "c++20"])
def test_the_header_is_enough_by_itself(tmp_path, standard):
    source = tmp_path / ("x.cc" if "+" in standard else "x.c")
    source.write_text(
        "#include <stockade.h>\n#if STK_VERSION_NUMBER < 100\n#error old\n#endif\n"
        "int main(int argc, char **argv)\n{\n    stk_sql_value two = stk_sql_integer(argc + 1);\n"
        "    (void)argv;\n    return (int)stk_lease_left_ms(0) + (two.integer != 2);\n}\n")
    install.compile_c(source, tmp_path / "x", f"-std={standard}", "-Wall", "-Wextra", "-pedantic",
                      "-Werror")
    assert subprocess.run([tmp_path / "x"], env=install.environment(), check=False).returncode == 0


@pytest.mark.skipif(sanitized(), reason="a sanitizer's runtime is not linked statically")
@pytest.mark.parametrize("kind", ["-static", "-static-pie"])
def test_it_is_linked_statically_as_pkg_config_says(rig, tmp_path, kind):
    program = tmp_path / "decrement"
    install.compile_c(REPO / "examples/decrement.c", program, kind, options="--static")
    assert "NEEDED" not in subprocess.run(["objdump", "-p", program], check=True, text=True,
                                          capture_output=True).stdout
    daemon = rig.daemon("--unfenced-writes", "allow")
    daemon.client()("SET", "sku:42", "10")
    for uri, left in ((daemon.uri, 9), (daemon.uri.replace("127.0.0.1", "localhost"), 8),
                      (f"sqlite:{rig.store}", 7)):
        done = subprocess.run([program, uri], capture_output=True, text=True, check=False,
                              timeout=patience(HANG_SECONDS), env={})
        assert (done.stdout, done.stderr) == (f"sold, left: {left}\n", "")
    done = subprocess.run([program, f"sqlite:{tmp_path}/x.db?lease=zookeeper://127.0.0.1:1"],
                          capture_output=True, text=True, check=False,
                          timeout=patience(HANG_SECONDS))
    assert done.returncode == 1 and "linked statically" in done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The example and a program that does everything once: by the shared library, the latter also
    by the static one."""
    folder = tmp_path_factory.mktemp("programs")
    install.compile_c(REPO / "examples/decrement.c", folder / "example", "-g")
    install.compile_c(PROGRAM, folder / "everything", "-g")
    subprocess.run(f"cc -g {PROGRAM} -o {folder}/static $(pkg-config --cflags stockade) "
                   f"{install.prefix()}/lib/libstockade.a "
                   "$(pkg-config --static --libs stockade | sed s/-lstockade//)",
                   shell=True, check=True, env=install.environment())
    return folder


@pytest.mark.skipif(sanitized(), reason="valgrind does not run sanitized programs")
@pytest.mark.parametrize("program", [
    "everything", *(pytest.param(name, marks=pytest.mark.slow) for name in ("example", "static"))])
def test_it_leaks_nothing_and_reads_nothing_amiss(library, programs, program, uri):
    with library.open(uri) as client:
        stock = client.acquire("sku:42")
        client.set(stock, "sku:42", 10)
        stock.release()
    done = subprocess.run(
        ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full",
         "--show-leak-kinds=definite,indirect,possible", "--errors-for-leak-kinds=all",
         programs / program, uri], env=install.environment(), text=True, capture_output=True,
        timeout=patience(5 * HANG_SECONDS), check=False)  # valgrind takes its time
    assert done.returncode == 0, done.stdout + done.stderr
    with library.open(uri) as client:
        assert client.get("sku:42") == "9"
        assert not client.query("sku:42").held


# One store, many users.

def stocked(client, key, pieces):
    lease = client.acquire(key)
    client.set(lease, key, pieces)
    lease.release()


@pytest.mark.parametrize("shared", [True, False], ids=["one-client", "a-client-each"])
def test_threads_share_a_store(library, uri, key, shared):
    with contextlib.ExitStack() as clients, ThreadPoolExecutor(4) as threads:
        client = clients.enter_context(library.open(uri, 30000))
        stocked(client, key, 60)
        each = [client if shared else clients.enter_context(library.open(uri, 30000))
                for _ in range(4)]
        sold = threads.map(sell, each, [key] * 4)
        assert sorted(itertools.chain(*sold)) == list(range(1, 61))
        assert client.get(key) == "0"


def test_two_processes_share_a_store_without_a_daemon(rig, library):
    uri = f"sqlite:{rig.store}"
    with library.open(uri) as client:
        stocked(client, "r", 60)
    with Remote(uri) as one, Remote(uri) as other:
        for process in (one, other):
            process.start("sell(client, 'r')")
        sold = [process.answer(60) for process in (one, other)]
        for process in (one, other):
            process.ask("client.close()")
    assert sorted(sold[0] + sold[1]) == list(range(1, 61))


def test_a_lease_that_is_kept_alive_stays_its_holders_in_other_processes(rig, library):
    """The one that opened the store first has the older session, and is not taken for dead."""
    ttl, uri = patience(1.5), f"sqlite:{rig.store}"
    ttl_ms = int(ttl * 1000)
    with library.open(uri) as client, Remote(uri) as other:
        time.sleep(ttl)  # past what a lease of an earlier run would be held
        lease = client.acquire("ours", ttl_ms=ttl_ms)
        other.ask(f"lease = client.acquire('theirs', ttl_ms={ttl_ms})")
        end = time.monotonic() + 1.5 * ttl
        while time.monotonic() < end:
            assert other.ask("client.acquire('ours', ttl_ms=1000)") is None
            assert client.acquire("theirs", ttl_ms=1000) is None
        assert lease.valid and lease.lost == []
        assert other.ask("lease.valid and lease.lost == []")
        other.start("mine = client.acquire('ours', ttl_ms=1000, wait_ms=20000)")
        lease.release()
        other.answer()
        other.ask("mine.release(), lease.release()")
        other.ask("client.close()")


def test_a_process_that_dies_delays_the_others_by_its_ttl(rig, library):
    ttl = patience(1)
    uri = f"sqlite:{rig.store}"
    with library.open(uri) as client, Remote(uri) as other:
        other.ask(f"lease = client.acquire('r', ttl_ms={int(ttl * 1000)})")
        assert client.acquire("r") is None
        other.process.kill()
        other.process.wait()
        with within(2 * ttl + patience(1)):  # a renewal, and a poll each second
            lease = client.acquire("r", wait_ms=int(patience(20000)))
        lease.release()


def test_a_program_and_a_daemon_share_a_store(rig, library):
    daemon = rig.daemon()
    with library.open(f"sqlite:{rig.store}") as embedded, library.open(daemon.uri) as client:
        for holder, other in ((embedded, client), (client, embedded)):
            lease = holder.acquire("r")
            assert other.acquire("r") is None
            holder.set(lease, "r", "mine")
            assert other.get("r") == "mine"
            lease.release()
            lease = other.acquire("r", wait_ms=int(patience(5000)))
            assert lease.token > 1
            lease.release()


def test_it_takes_its_leases_from_redis_and_shares_them_with_a_daemon(rig, redis, library):
    daemon = rig.daemon(lease=redis.uri, store=f"sqlite:{rig.folder}/daemon.db")
    with library.open(f"sqlite:{rig.store}?lease={redis.uri}") as embedded, \
            library.open(daemon.uri) as client:
        lease = embedded.acquire("r")
        assert client.acquire("r") is None
        lease.release()
        lease = client.acquire("r", wait_ms=int(patience(5000)))
        assert lease.token == 2
        redis.freeze()
        with within(patience(3)):
            fails("LEASEDOWN", embedded.acquire, "other")
        client.set(lease, "r", 1)  # holders go on
        redis.thaw()
        lease.release()


# Disks that fail.

def test_a_full_disk_fails_writes_and_no_more(rig):
    with Remote(f"sqlite:{rig.store}", rig.fault_env()) as process:
        process.ask("lease = client.acquire('n', ttl_ms=60000)")
        assert process.ask("client.fenced(lease, 'INCR', 'n')") == 1
        rig.faults.order("write ENOSPC")
        assert process.ask("client.fenced(lease, 'INCR', 'n')") == "STORE"
        assert process.ask("client.get('n')") == "1"
        rig.faults.clear()
        assert process.ask("client.fenced(lease, 'INCR', 'n')") == 2
        process.ask("lease.release()")
        process.ask("client.close()")


def test_a_commit_of_unknown_outcome_is_unsure_and_ends_the_client_not_the_process(rig):
    with Remote(f"sqlite:{rig.store}", rig.fault_env()) as process:
        process.ask("lease = client.acquire('n', ttl_ms=60000)")
        assert process.ask("client.fenced(lease, 'INCR', 'n')") == 1
        rig.faults.order("sync EIO")
        assert process.ask("client.fenced(lease, 'INCR', 'n')") == "UNSURE"
        assert process.ask("client.fenced(lease, 'INCR', 'n')") == "STORE"
        assert process.ask("client.get('n')") == "STORE"
        rig.faults.clear()
        process.ask("client.close()")
        process.ask("lease.free()")
        process.ask(f"client = library.open('sqlite:{rig.store}')")
        assert process.ask("client.get('n')") in ("1", "2")
        process.ask("client.close()")


# Keep-alive.

def test_it_renews_every_third_of_the_ttl_for_as_long_as_the_handle_lives(rig, library):
    daemon = rig.daemon()
    ttl_ms = int(patience(1500))
    admin = daemon.client()
    with library.open(daemon.uri) as client:
        with Stopwatch() as watch:
            lease = client.acquire("r", ttl_ms=ttl_ms)
            wait_until(lambda: admin.counter("leases_renewed") >= 5, "renewals", 3 * 3)
        assert lease.valid and client.query("r").held and lease.lost == []
        assert watch.seconds > 3 * ttl_ms / 3000, "of five, the first one comes early"
        lease.free()  # not released: it lapses
        wait_until(lambda: not client.query("r").held, "the lease is over", 3 * 3)


@pytest.mark.parametrize("how", ["frozen", "killed", "unreachable"])
def test_the_owner_is_told_before_the_ttl_is_over_when_the_daemon_is(rig, library, how):
    daemon = rig.daemon()
    relay = rig.relay(daemon.address)
    client, admin = library.open(relay.uri), daemon.client()
    ttl = patience(2)
    leases = [client.acquire(f"r{n}", ttl_ms=int(ttl * 1000)) for n in range(20)]
    # One after the other, it would take longer.
    wait_until(lambda: admin.counter("leases_renewed") >= 40, "each is renewed in its turn", 9)
    # What has to be told a hundredth of the TTL before its end is told well before, then.
    wait_until(lambda: all(0 < lease.left_ms < 850 * ttl for lease in leases), "time goes by")
    whole = time.monotonic()
    if how == "frozen":
        daemon.freeze()
    elif how == "killed":
        daemon.kill()
    else:
        relay.hold("up")
        relay.hold("down")
    begun = time.monotonic()  # no renewal is later than this moment
    wait_until(lambda: all(lease.lost for lease in leases), "all are told", 2 * 3)
    for lease in leases:
        (code, when), = lease.lost
        assert code in ("TIMEOUT", "UNREACHABLE")
        assert whole < when and Seconds(begun, when) < ttl
        assert not lease.valid and lease.left_ms == 0
        lease.free()
    if how == "frozen":
        daemon.thaw()
    client.close()


TTL_MS = 10 * 60 * 1000  # no renewal but the first comes while a test waits


def heard(client, *names):
    """A lease that was renewed once, a tenth of a second after the grant: from then on its renewer
    hears of its loss. (Where the answer was slow, its time does not show that; then it has had a
    second for it.)"""
    begun = time.monotonic()
    lease = client.acquire(*names, ttl_ms=TTL_MS)
    full_ms = TTL_MS - TTL_MS // 100 - 2
    with contextlib.suppress(Late):
        wait_until(lambda: lease.left_ms + (time.monotonic() - begun) * 1000 > full_ms + 90,
                   "renewed", 1)
    return lease


def test_a_revoked_lease_is_told_at_once(uri, library):
    with library.open(uri) as client:
        leases = [heard(client, "r"), heard(client, "a", "b"), heard(client, "kept")]
        client.revoke("r"), client.revoke("b")
        for lease in leases[:2]:
            wait_until(lambda: lease.lost, "it is told")
            assert lease.lost[0][0] == "STALE" and not lease.valid
        assert leases[2].valid and leases[2].lost == []
        for lease in leases:
            lease.free()


def test_a_lease_revoked_before_its_renewer_listens_is_told_soon(uri, library):
    with library.open(uri) as client:
        lease = client.acquire("r", ttl_ms=TTL_MS)
        client.revoke("r")
        wait_until(lambda: lease.lost, "it is told")
        assert lease.lost[0][0] == "STALE"
        lease.free()


def test_a_stale_write_tells_of_the_loss(rig, library):
    daemon = rig.daemon()
    with library.open(daemon.uri) as client:
        lease = client.acquire("r", ttl_ms=60000)
        client.revoke("r")
        fails("STALE", client.set, lease, "r", 1)
        assert not lease.valid
        wait_until(lambda: lease.lost, "it is told")
        lease.free()


def test_a_daemon_that_comes_back_in_time_costs_no_lease(rig, library):
    daemon = rig.daemon()
    with library.open(daemon.uri) as client:
        lease = client.acquire("r", ttl_ms=int(patience(3000)))
        token = lease.token
        daemon.freeze()
        wait_until(lambda: lease.left_ms < patience(1800), "a renewal is overdue")
        daemon.thaw()
        wait_until(lambda: lease.left_ms > patience(2500), "it is renewed")
        assert lease.valid and lease.lost == []
        client.set(lease, "r", 1)
        assert client.query("r").token == token
        lease.release()


def test_many_leases_that_are_due_at_once_are_renewed_when_the_daemon_is_back(rig, library):
    listen = (f"127.0.0.1:{free_port()}",)
    daemon = rig.daemon(listen=listen)
    with Stopwatch() as watch:
        daemon = restart(rig, daemon, listen=listen)
    ttl_ms = int(patience(4000) + 8000 * watch.seconds)  # of which a restart is a small part
    with library.open(daemon.uri, 30000) as client:
        leases = [client.acquire(*(f"{basket}:{n:0300}" for n in range(250)), ttl_ms=ttl_ms)
                  for basket in range(8)]  # a renewal of each is larger than a batch
        daemon.stop()
        time.sleep(ttl_ms * 0.4 / 1000)  # until all renewals are due
        rig.daemon(listen=listen)
        wait_until(lambda: all(lease.left_ms > ttl_ms * 0.7 for lease in leases) or
                   any(lease.lost for lease in leases), "all are renewed")
        assert [lease.lost for lease in leases if lease.lost] == []
        for lease in leases:
            lease.free()


def test_it_does_not_renew_for_a_thread_that_has_ended(rig, library):
    ttl_ms = int(patience(2000))  # the adopted one outlives a machine that stands still
    with library.open(rig.daemon().uri) as client:
        leases = []
        for adopted in (False, True):
            thread = threading.Thread(
                target=lambda: leases.append(client.acquire(f"r{len(leases)}", ttl_ms=ttl_ms)))
            thread.start()
            thread.join()
            if adopted:
                library.check(library.so.stk_lease_adopt(leases[-1].handle))
        wait_until(lambda: leases[0].lost, "the loss is told", 3 * 3)
        assert leases[0].lost[0][0] == "ABANDONED"
        wait_until(lambda: not client.query("r0").held, "the lease is over", 3 * 3)
        assert leases[1].valid and leases[1].lost == [] and client.query("r1").held
        for lease in leases:
            lease.free()


def test_a_forked_child_renews_nothing_and_sends_nothing(uri, library):
    with library.open(uri) as client:
        lease = client.acquire("r", ttl_ms=60000)
        child = os.fork()
        if child == 0:
            codes = []
            for call in (lambda: client.get("r"), lambda: client.set(lease, "r", 1),
                         lambda: client.acquire("other"), lease.release):
                try:
                    call()
                except StkError as error:
                    codes.append(error.code)
            client.close()
            os._exit(0 if codes == ["FORKED"] * 4 and not lease.valid else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.set(lease, "r", "parent's")
        assert client.get("r") == "parent's" and lease.valid
        lease.release()


def test_an_ephemeral_lease_ends_with_its_process(rig, library):
    daemon = rig.daemon()
    with library.open(daemon.uri) as client, Remote(daemon.uri) as other:
        other.ask("lease = client.acquire('r', ttl_ms=60000, ephemeral=True)")
        assert client.acquire("r") is None
        other.process.kill()
        lease = client.acquire("r", wait_ms=int(patience(5000)), ephemeral=True)
        assert lease.token == 2
        lease.free()  # and with its handle
        wait_until(lambda: not client.query("r").held, "it is free")
