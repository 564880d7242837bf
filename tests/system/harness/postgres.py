# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL beside the blocks of a page."""

import glob
import os
import pathlib
import shutil
import tempfile

from harness.limits import wait_until


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    assert found, f"there is no {name}: tools/setup --tests installs it"
    return found[-1]


def start(place):
    """On its default port; its programs and drivers find it by PGHOST and PGUSER."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stockade-postgres-"))
    place.cleanups.append(lambda: shutil.rmtree(folder, ignore_errors=True))
    as_user = []
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data = folder / "data"
    output, status = place.run([*as_user, program("initdb"), "-D", data, "-U", "shop", "-A",
                                "trust", "--no-sync"])
    assert status == 0, output
    place.start([*as_user, program("postgres"), "-D", data, "-c", "listen_addresses=127.0.0.1",
                 "-c", "unix_socket_directories=", "-c", "fsync=off"], "postgres")
    place.env.update(PGHOST="127.0.0.1", PGUSER="shop")
    wait_until(lambda: place.run([program("pg_isready"), "-q"])[1] == 0, "PostgreSQL is up", 20)
