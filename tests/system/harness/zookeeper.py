# SPDX-License-Identifier: Apache-2.0
"""A ZooKeeper server in a small Java machine: up in half a second where nothing else is busy."""

import os
import shutil
import socket

from harness.limits import patience
from harness.process import Process
from harness.services import Service

JAR = "/usr/share/java/zookeeper.jar"
JAVA = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-Dznode.container.checkIntervalMs=1000", "-cp", JAR,
        "org.apache.zookeeper.server.ZooKeeperServerMain"]
CONFIG = """
tickTime=100
maxSessionTimeout=60000
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
forceSync=no
4lw.commands.whitelist=srvr,dump,wchp
"""
ENDED_BY_SIGTERM = 143


class ZooKeeperServer(Process):
    def __init__(self, port, folder, stderr_path):
        self.address = ("127.0.0.1", port)
        self.folder = folder
        config = folder / "zoo.cfg"
        config.write_text(CONFIG.format(folder=folder, port=port))
        super().__init__("zookeeper", [*JAVA, config], stderr_path)
        self.expected_status = ENDED_BY_SIGTERM

    def ask(self, word):
        """What it says about itself; "" where nobody answers."""
        try:
            with socket.create_connection(self.address, timeout=patience(1)) as link:
                link.sendall(word.encode())
                answer = b""
                while data := link.recv(65536):
                    answer += data
        except OSError:
            return ""
        return answer.decode()

    def answers(self):
        return "Mode: standalone" in self.ask("srvr")


class ZooKeeper(Service):
    name = "zookeeper"
    programs = ("java",)
    sessions = True
    session_ms = int(patience(2000))

    def __init__(self, rig):
        super().__init__(rig)
        self.folder = rig.folder / f"zookeeper-{next(rig.number)}"
        self.server = self._start()

    def _start(self, port=None):
        self.folder.mkdir(exist_ok=True)
        return self.rig.start_server(ZooKeeperServer(
            port or self.rig.port(), self.folder, self.rig.stderr_path("zookeeper")))

    @classmethod
    def missing(cls):
        return super().missing() or ("" if os.path.exists(JAR) else "zookeeper")

    def uri_with(self, login="", chroot="", **options):
        options = {"session_ms": self.session_ms, **options}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"zookeeper://{login}127.0.0.1:{self.server.address[1]}{chroot}?{query}"

    @property
    def uri(self):
        return self.uri_with()

    def down(self):
        self.server.kill()

    def up(self):
        """With what it knew: sessions, too."""
        self.server = self._start(self.server.address[1])

    def lose_all(self):
        self.server.kill()
        shutil.rmtree(self.folder)
        self.up()

    def tree(self):
        """The paths of the ephemeral nodes."""
        return [line.strip() for line in self.server.ask("dump").splitlines()
                if line.startswith("\t/")]

    def nodes(self):
        """How many nodes there are, ZooKeeper's own included."""
        return int(self.server.ask("srvr").rpartition("Node count: ")[2].split()[0])
