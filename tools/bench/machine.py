# SPDX-License-Identifier: Apache-2.0
"""What was measured, and on what."""

import datetime
import os
import pathlib
import platform
import re
import sqlite3
import statistics
import subprocess
import time

from bench import postgres
from bench.server import BUILD, ROOT, BenchError

SYNCS = 200
BUSY = 0.5


def first_line(*command):
    try:
        program = postgres.program(command[0])
    except BenchError:
        return None
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, cwd=ROOT,
                          check=False)
    said = (done.stdout + done.stderr).strip()
    return said.splitlines()[0] if done.returncode == 0 and said else None


def found(pattern, text):
    match = re.search(pattern, text or "", re.M)
    return match[1].strip() if match else "?"


def sync_us(folder):
    """The median time of a 4 KB write at a file's end and its fdatasync, in microseconds."""
    path = pathlib.Path(folder) / "sync"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(os.urandom(4096))
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - begun) * 1e6)
    path.unlink()
    return statistics.median(took)


def zookeeper_version():
    names = [jar.name for jar in pathlib.Path("/usr/share/java").glob("zookeeper-[0-9]*.jar")]
    return found(r"zookeeper-([\d.]+)\.jar", " ".join(names))


def describe(folder):
    """Return name: text, in the order in which they are shown."""
    memory = found(r"^MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    cpu = found(r"^model name\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    system = found(r'^PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text())
    load = os.getloadavg()[0]
    files = first_line("findmnt", "-no", "FSTYPE", "-T", str(folder))
    versions = {
        "Stockade": found(r"([\d.]+)", first_line(str(BUILD / "stockaded"), "--version")),
        "revision": first_line("git", "describe", "--always", "--dirty"),
        "Redis": found(r"v=([\d.]+)", first_line("redis-server", "--version")),
        "SQLite": sqlite3.sqlite_version,
        "PostgreSQL": found(r"([\d.]+)", first_line("postgres", "--version")),
        "etcd": found(r"([\d.]+)", first_line("etcd", "--version")),
        "ZooKeeper": zookeeper_version(),
    }
    return {
        "date": datetime.datetime.now().strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores ({cpu}), {int(memory) / 1e6:.0f} GB, {files}",
        "system": f"{system}, Linux {platform.release()}",
        "write of 4 KB and fdatasync": f"{sync_us(folder):.0f} us",
        "load before": f"{load:.2f}" + (", so busy with other things, too: rates mean little"
                                        if load > BUSY else ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()
                              if version and version != "?"),
    }
