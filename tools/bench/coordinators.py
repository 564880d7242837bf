# SPDX-License-Identifier: Apache-2.0
"""etcd and ZooKeeper, one server each: both sync their log before they answer, as they do by
default."""

import shutil
import socket

from bench import clients
from bench.server import BenchError, Server, free_port

LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m%n
"""
ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar"


def need(program, path=None):
    if not shutil.which(path or program):
        raise BenchError(f"there is no {program}; tools/setup --bench installs it")


class Etcd(Server):
    tag = "etcd"

    def __init__(self, folder):
        super().__init__(folder)
        need("etcd")
        self.peer_port = free_port()
        self.start()

    def start(self):
        self.port = self.port or free_port()
        here, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer_port))
        self.spawn(["etcd", "--name", "bench", "--data-dir", self.folder / "data",
                    "--listen-client-urls", here, "--advertise-client-urls", here,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", f"bench={peer}", "--log-level", "error",
                    "--quota-backend-bytes", 8 * 1024 ** 3])
        self.wait_for(self.is_ready)

    def is_ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
                client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                said = b""
                while part := client.recv(4096):
                    said += part
        except OSError:
            return False
        return b'"true"' in said

    def fill(self, keys):
        clients.load(self, "etcd-put", clients=50, pipeline=10, keys=keys, ops=keys // 10,
                     flags=["--sequential"])


class ZooKeeper(Server):
    tag = "zookeeper"

    def __init__(self, folder):
        super().__init__(folder)
        need("java")
        (self.folder / "log4j.properties").write_text(LOGGING)
        self.start()

    def start(self):
        self.port = self.port or free_port()
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=2000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n")
        self.spawn(["java", "-Xmx1g", "-cp", f"{self.folder}:{ZOOKEEPER_JAR}",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"])
        self.wait_for(self.is_ready)

    def is_ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
                client.sendall(b"srvr")
                return b"Mode: standalone" in client.recv(4096)
        except OSError:
            return False

    def fill(self, keys):
        clients.load(self, "zookeeper-make", clients=20, pipeline=50, keys=keys, ops=keys // 50)
