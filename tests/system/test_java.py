# SPDX-License-Identifier: Apache-2.0
"""The package for Java: its own tests, shops on the JDK's HttpServer under load, its README."""

import collections
import contextlib
import http.client
import re
import signal
import subprocess
import threading

import pytest

from harness.limits import BUILD, REPO, Late, Wait, patience, sanitized, wait_until
from harness.process import Process
from harness.programs import run
from harness.rig import restart

PACKAGE = REPO / "proxy/client/java"
JARS = [BUILD / "stockade.jar", BUILD / "java-tests.jar", "/usr/share/java/sqlite-jdbc.jar"]
CLASS_PATH = ":".join(map(str, JARS))
JUNIT = "/usr/share/java/junit-platform-console-standalone.jar"
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


@pytest.fixture(scope="module", autouse=True)
def jars():
    assert JARS[1].exists(), "no JDK or no JUnit: run tools/setup --tests, then make tests"


@pytest.mark.parametrize("name", ["DecoderTest", "LeaseTest", "FencedLockTest", "FaultTest"])
def test_its_own_tests_pass(name, tmp_path):
    done = subprocess.run(
        [*JAVA, f"-Dstockade.build={BUILD}", f"-Dstockade.patience={patience(1)}",
         f"-Djava.io.tmpdir={tmp_path}", "-jar", JUNIT, "--class-path", CLASS_PATH,
         "--select-class", f"io.stockade.{name}", "--disable-banner", "--details=verbose",
         "--disable-ansi-colors"],
        capture_output=True, text=True, timeout=patience(50), check=False)
    late = re.findall(r"caught:.*late from ([\d.]+) to ([\d.]+), allowed ([\d.]+)", done.stdout)
    if late and len(late) == done.stdout.count("caught:"):
        begun, ended, allowed = map(float, late[0])
        raise Late(done.stdout, begun, allowed, ended)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* tests successful", done.stdout), done.stdout


class Caller(threading.Thread):
    """Buys at one server until the article is sold out, or until it is told to stop."""

    def __init__(self, port, sku, stop):
        super().__init__()
        self.port, self.sku, self.stop = port, sku, stop
        self.replies = collections.Counter()
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(30))
        while not self.stop.is_set():
            connection.request("GET", f"/buy/{self.sku}")
            reply = connection.getresponse()
            text = reply.read().decode()
            self.replies["sold" if reply.status == 200 else text.split(",")[0]] += 1
            if reply.status == 409:
                break
        connection.close()


class Shops:
    """Two servers, and forty callers on one article."""

    def __init__(self, rig, daemon, stock, sku="sku:1"):
        self.sku, self.stock = sku, stock
        self.look(daemon)
        token = self.client.token(sku)
        self.client.fenced(token, "SET", sku, stock)
        self.client("RELEASE", sku, token)
        self.servers = []
        for number in range(2):
            server = Process("shop", [*JAVA, "-cp", CLASS_PATH, "ShopServer", daemon.uri],
                             rig.folder / f"shop{number}.err")
            server.expected_status = 128 + signal.SIGTERM
            rig.processes.append(server)
            self.servers.append(server)
        ports = [int(server.first_line(20)) for server in self.servers]
        self.stop = threading.Event()
        self.callers = [Caller(ports[i % 2], sku, self.stop) for i in range(40)]

    def look(self, daemon):
        self.client = daemon.client()

    def left(self):
        return int(self.client("GET", self.sku))

    def await_sales(self, count):
        target = self.left() - count
        wait_until(lambda: self.left() <= target, f"{count} more are sold", 20)

    def token(self):
        """Of the one who holds the lease; 0: nobody does."""
        lease = self.client("LEASE", self.sku)
        lease = dict(zip(lease[::2], lease[1::2]))
        return lease[b"token"] if lease[b"state"] == b"held" else 0

    def pause_a_seller(self):
        """Stops a server between its read and its write, until the other one has sold under later
        leases, and then it is told so."""
        wait = Wait(20)
        while not any("STALE" in text for text in self.told()):
            wait.check("a server is stopped between its read and its write")
            with self.servers[0].frozen():
                held = self.token()
                if held == 0 or not self.stays(held):
                    continue
                wait_until(lambda: self.token() > held + 2, "its lease passes on", 10)
            sold = self.told()["sold"]
            wait_until(lambda: self.told()["sold"] > sold + 10, "it sells again", 10)

    def stays(self, token):
        """So it is the one that is stopped: the other one holds it for some 10 ms."""
        with contextlib.suppress(Late):
            wait_until(lambda: self.token() != token, "another holds it", 0.3)
            return False
        return True

    def told(self):
        """What the callers were told, all together."""
        return sum((caller.replies.copy() for caller in self.callers), collections.Counter())

    def end(self):
        self.stop.set()
        for caller in self.callers:
            caller.join(patience(30))
            assert not caller.is_alive()
        return self.told()


@pytest.mark.skipif(sanitized(), reason="it asks the package, and takes long")
def test_a_shop_on_the_jdks_server_sells_what_is_there_and_no_more(rig):
    daemon = rig.daemon()
    shops = Shops(rig, daemon, 100_000)
    shops.await_sales(40)
    shops.pause_a_seller()
    shops.await_sales(20)
    daemon = restart(rig, daemon, listen=[f"127.0.0.1:{daemon.address[1]}"])
    shops.look(daemon)
    shops.await_sales(20)
    daemon = restart(rig, daemon, signal.SIGKILL, listen=[f"127.0.0.1:{daemon.address[1]}"])
    shops.look(daemon)
    shops.await_sales(20)
    replies = shops.end()
    assert shops.left() == 100_000 - replies["sold"], replies
    stale = [text for text in replies if text.startswith("STALE")]
    assert stale, "nobody was paused between reading and writing"
    assert set(replies) - set(stale) == {"sold"}, replies


def test_a_shop_is_sold_out_when_everything_is_sold(rig):
    shops = Shops(rig, rig.daemon(), 60)
    for caller in shops.callers:
        caller.join(patience(30))
    replies = shops.end()
    assert shops.left() == 0 and replies["sold"] == 60
    assert replies["sold out"] == 40 and set(replies) == {"sold", "sold out"}, replies


def readme_examples():
    page = (PACKAGE / "README.md").read_text()
    return re.findall(r"^```java\n(.*?)^```", page, re.M | re.S)


def test_the_readmes_examples_compile_and_do_what_they_say(rig, tmp_path):
    daemon = rig.daemon(listen=["127.0.0.1:0"])
    client = daemon.client()
    for key, stock in {"sku:42": 10, "sku:1": 5, "sku:2": 5}.items():
        client.fenced(client.token(key), "SET", key, stock)
        client("REVOKE", key)
    examples = readme_examples()
    assert len(examples) == 3
    files = []
    for text in examples:
        name = re.search(r"public class (\w+)", text)[1]
        files.append(tmp_path / f"{name}.java")
        files[-1].write_text(text.replace("127.0.0.1:7379", "{}:{}".format(*daemon.address)))
    run("javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", JARS[0], "-d", tmp_path,
        *files)
    printed = [run(*JAVA, "-cp", f"{JARS[0]}:{tmp_path}", file.stem) for file in files]
    told = [re.findall(r"// prints: (.*)", text) for text in examples]
    assert [text.splitlines() for text in printed] == told
    assert client("MGET", "sku:42", "sku:1", "sku:2") == [b"8", b"4", b"3"]
