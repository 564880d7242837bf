# SPDX-License-Identifier: Apache-2.0
"""A lease URI that cannot be read ends the daemon at its start, with a line that says where."""

import re
import subprocess

import pytest

from harness.limits import BUILD, REPO
from harness.rig import refusal

# A ^ stands before the first character that is wrong; then a word of the reason.
REFUSED = [
    ("^sentinel://h/n", "redis\\+sentinel://"), ("^zookeepers://h", "stunnel"),
    ("^redis-cluster://h", "redis.cluster"), ("local:^x", "nothing"),
    ("redis://h^,h2", "not expected"), ("redis://h:^0", "65535"),
    ("redis+sentinel://^", "host"), ("redis+sentinel://a,^/n", "host"),
    ("redis+sentinel://a:1,b:^x/n", "port"), ("redis+sentinel://a:1,^a:1/n", "twice"),
    ("redis+sentinel://a,b^", "name"), ("redis+sentinel://a/^", "name"),
    ("redis+sentinel://a/n?^nosuch=1", "options are .*replicas"),
    ("redis+sentinel://a/n?replicas=^many", "replicas"),
    ("redis+sentinel://a/n?db=1&^db=2", "twice"),
    ("redlock://a,b^", "three"), ("redlock://a,b,c/^x", "database"),
    ("redlock://a,b,c?^replicas=1", "options are"),
    ("redlock://" + ",".join(f"h{n}" for n in range(15)) + ",^h15", "more hosts"),
    ("zookeeper://[^zz]", "IPv6"), ("zookeeper://a/^b//c", "empty part"),
    ("zookeeper://a?session_ms=^1", "session_ms"),
    ("zookeeper://^user@a", "password"), ("zookeeper://a/^%", "hex"),
]


def name_of(case):
    return case[0] if isinstance(case, tuple) else None


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_a_lease_uri_that_cannot_be_read_is_refused_with_the_position(rig, case):
    marked, reason = case
    column = marked.index("^") + 1
    uri = marked.replace("^", "")
    line = refusal(rig, lease=uri)
    assert re.search(rf"\bcolumn {column}: .*{reason}", line), line
    assert not rig.store.exists(), "nothing was begun"


@pytest.mark.parametrize("uri", [
    "redis+sentinel://u:topsecret@a,b", "redis+sentinel://a/n?sentinel_password=topsecret&x=1",
    "redlock://u:topsecret@a,b", "zookeeper://u:topsecret@a?session_ms=0",
    "redis+unix:/s?password=topsecret&x=1"], ids=lambda uri: uri.partition(":")[0])
def test_a_refused_lease_uri_shows_no_password(rig, uri):
    line = refusal(rig, lease=uri)
    assert "column" in line and "topsecret" not in line


def test_help_and_the_page_name_every_kind_of_lease_service():
    text = subprocess.run([BUILD / "stockaded", "--help"], capture_output=True, text=True,
                          check=True).stdout
    shown = (REPO / "fence/lease/SERVICES.md").read_text()
    schemes = re.findall(r'^    \{"([a-z+]+:(?://)?)", LEASE_URI', (REPO / "fence/lease/uri.c")
                         .read_text(), re.M)
    assert len(schemes) == 11
    for scheme in schemes:
        assert scheme in text and f"`{scheme}" in shown, scheme
