# SPDX-License-Identifier: Apache-2.0
"""A network of one's own, where every port is free and addresses can be made up.

Linux network namespaces; without root, inside a user namespace. Where neither is allowed,
`available()` is False.
"""

import functools
import os
import subprocess

import pytest

from harness.limits import HANG_SECONDS, patience

ROOT = os.getuid() == 0
UNSHARE = ("unshare", "--net") if ROOT else ("unshare", "--net", "--map-root-user")


@functools.lru_cache(maxsize=None)
def available():
    probe = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True,
                           check=False)
    return probe.returncode == 0


def inside(*setup):
    """A prefix that runs a command in a new network, loopback up, after the given commands."""
    script = " && ".join(("ip link set lo up", *setup, 'exec "$@"'))
    return (*UNSHARE, "sh", "-c", script, "sh")


def beside(pid):
    """A prefix that runs a command in the network of a running process."""
    enter = ("nsenter", "-t", str(pid), "-n")
    return enter if ROOT else (*enter, "-U", "--preserve-credentials")


def secluded(rig, *args):
    """A daemon in a network of its own, where 10.9.8.7 is this machine and not loopback, and
    redis-cli beside it: what cli(host, word, ...) says."""
    if not available():
        pytest.skip("no network namespaces here")
    daemon = rig.daemon(*args, "--insecure-listen", "allow", listen=("0.0.0.0:0",), admin="off",
                        wrapper=inside("ip addr add 10.9.8.7/32 dev lo"))

    def cli(host, *words):
        done = subprocess.run(
            [*beside(daemon.pid), "redis-cli", "-h", host, "-p", str(daemon.address[1]), *words],
            capture_output=True, text=True, timeout=patience(HANG_SECONDS), check=False)
        return done.stdout.strip()

    return daemon, cli
