# SPDX-License-Identifier: Apache-2.0
"""Daemons with a file of users (--acl-file)."""

ROOT = "user root on >pw ~* &* +@all"


def with_users(rig, *lines, args=(), **options):
    """A daemon with these lines in its file of users, `daemon.users`."""
    path = rig.folder / "users.acl"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    daemon = rig.daemon("--acl-file", path, *args, **options)
    daemon.users = path
    return daemon


def login(daemon, user, password="pw", **options):
    client = daemon.client(**options)
    assert client("AUTH", user, password) == "OK"
    return client


def change(daemon, admin, *lines):
    daemon.users.write_text("\n".join(lines) + "\n")
    assert admin("ACL", "LOAD") == "OK"
