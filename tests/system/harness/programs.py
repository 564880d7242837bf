# SPDX-License-Identifier: Apache-2.0
"""Other people's programs, and what they print."""

import json
import os
import pathlib
import re
import select
import subprocess

from harness.limits import BUILD, HANG_SECONDS, REPO, Wait, patience

SYSTEM = REPO / "tests/system"
NODE_MODULES = pathlib.Path(os.environ.get("STOCKADE_NODE_MODULES", SYSTEM / "node_modules"))
NODE_PACKAGE = REPO / "proxy/client/node"
# Packages are found beside the link by which `stockade` was found.
NODE = ["node", "--preserve-symlinks", "--preserve-symlinks-main"]
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
JAVA_JARS = [BUILD / "stockade.jar", BUILD / "java-tests.jar", "/usr/share/java/sqlite-jdbc.jar"]
CLASS_PATH = ":".join(map(str, JAVA_JARS))


def run(*args, timeout=HANG_SECONDS, **options):
    """What it printed; it must succeed."""
    done = subprocess.run([str(arg) for arg in args], capture_output=True, text=True,
                          timeout=patience(timeout), check=False, **options)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_js(program, *args, **options):
    """What a program in clients saw, as it prints it."""
    assert os.path.exists(NODE_MODULES), "run npm ci in tests/system first (make check does)"
    return json.loads(run("node", SYSTEM / "clients" / program, *args,
                          env={**os.environ, "NODE_PATH": str(NODE_MODULES)}, **options))


def run_node(library, job, daemon, key, *ca):
    """What a client of Node.js saw; by TLS where there is a CA."""
    return run_js("node.js", library, job, *daemon.address, key, *ca)


def link_node_modules(folder, stockade=NODE_PACKAGE):
    """What `npm install` of our package and of the tests' would leave in a program's folder."""
    assert NODE_MODULES.exists(), "run npm ci in tests/system first (make check does)"
    modules = folder / "node_modules"
    modules.mkdir()
    for package in NODE_MODULES.iterdir():
        (modules / package.name).symlink_to(package)
    (modules / "stockade").symlink_to(stockade)


def read_until(descriptor, pattern="", timeout=HANG_SECONDS):
    """What a terminal shows until the pattern is there; without one, until its other end closes."""
    text, wait = "", Wait(timeout)
    while not pattern or not re.search(pattern, text):
        if not select.select([descriptor], [], [], wait.left)[0]:
            raise wait.late(f"{pattern!r} in {text!r}")
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            assert not pattern, f"no {pattern!r} in {text!r}"
            break
        text += data.decode(errors="replace")
    return text
