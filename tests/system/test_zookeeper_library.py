# SPDX-License-Identifier: Apache-2.0
"""ZooKeeper's C client is loaded where a URI asks for it, and nowhere else."""

import pathlib
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, environment, patience
from harness.ports import free_port

CLIENT = "libzookeeper_mt.so.2"


def has_loaded(pid):
    return CLIENT in pathlib.Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("program", ["stockaded", "stockade", "libstockade.so"])
def test_nothing_is_linked_with_it(program):
    said = subprocess.run(["objdump", "-p", BUILD / program], capture_output=True, text=True,
                          check=True).stdout
    assert "NEEDED" in said and "zookeeper" not in said


def test_it_is_loaded_for_its_uri_only(rig):
    assert not has_loaded(rig.daemon().pid)
    other = rig.daemon(store=f"sqlite:{rig.folder}/z.db",
                       lease=f"zookeeper://127.0.0.1:{free_port()}")
    assert has_loaded(other.pid)


@pytest.fixture(params=["broken", "other"])
def without_it(request, tmp_path):
    """An environment in which the library's name stands for a file that it is not."""
    file = tmp_path / CLIENT
    if request.param == "broken":
        file.write_bytes(b"not a library")
    else:
        subprocess.run(["cc", "-shared", "-o", file, "-x", "c", "/dev/null"], check=True)
    return {**environment(), "LD_LIBRARY_PATH": str(tmp_path)}


def test_where_it_is_missing_the_package_is_named(rig, tool, without_it):
    lease = f"zookeeper://127.0.0.1:{free_port()}"
    daemon = rig.start(lease=lease, env=without_it)
    daemon.expected_status = 1
    assert daemon.wait() == 1
    assert "install the package libzookeeper-mt2" in daemon.stderr().splitlines()[-1]
    done = tool.run("-u", f"sqlite:{tool.folder}/x.db?lease={lease}", "set", "k", "v",
                    env=without_it, timeout=patience(HANG_SECONDS))
    assert done.returncode == 1 and "install the package libzookeeper-mt2" in done.stderr
    assert rig.daemon(env=without_it).client()("PING") == "PONG", "others do not miss it"
