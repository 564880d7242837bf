# SPDX-License-Identifier: Apache-2.0
"""A network of one's own, where every port is free and addresses can be made up.

Linux network namespaces; without root, inside a user namespace. Where neither is allowed,
`available()` is False.
"""

import functools
import os
import subprocess

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
