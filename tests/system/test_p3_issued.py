# SPDX-License-Identifier: Apache-2.0
"""P3 Issued: only tokens granted for a resource are accepted; no fence can be poisoned."""

import pytest


MALFORMED = ["-1", "0", str(1 << 53), str(1 << 64), "12abc", "", " 5", "5 ", "+5", "1e3", "0x10",
             "1.0", b"\x00", "9" * 400]


def test_token_2_to_52_is_unknown_and_the_rightful_holder_still_writes(client, token, key):
    client.refused("UNKNOWN", "FENCED", 1 << 52, "SET", key, "poison")
    assert client("GET", key) is None
    assert client.fenced(token, "SET", key, "right") == "OK"
    assert client.lease(key)["token"] == token


def test_a_token_one_larger_than_the_newest_is_unknown(client, token, key):
    for command in (("SET", key, "x"), ("GET", key), ("DEL", key)):
        client.refused("UNKNOWN", "FENCED", token + 1, *command)
    assert client.fenced(token, "SET", key, "right") == "OK"


@pytest.mark.parametrize("token", MALFORMED, ids=repr)
def test_a_malformed_token_is_an_error_and_changes_nothing(local, key, token):
    client = local.client()
    right = client.token(key)
    client.fenced(right, "SET", key, "kept")
    for command in (("FENCED", token, "SET", key, "x"), ("RENEW", key, token, 1000),
                    ("RELEASE", key, token)):
        client.refused("ERR", *command)
    assert client("GET", key) == b"kept"
    assert client.lease(key)["token"] == right and client.lease(key)["state"] == "held"
    assert client.fenced(right, "SET", key, "still mine") == "OK"


@pytest.mark.parametrize("token", [1, 2, 1 << 52, (1 << 53) - 1])
def test_a_resource_that_was_never_granted_knows_no_token(client, key, token):
    client.refused("UNKNOWN", "FENCED", token, "SET", key, "x")
    client.refused("UNKNOWN", "RENEW", key, token, 1000)
    client.refused("UNKNOWN", "RELEASE", key, token)
    assert client("EXISTS", key) == 0
    assert client.lease(key) is None
    assert client("REVOKE", key) is None


def test_a_huge_unknown_token_does_not_raise_the_next_grant(client, key):
    first = client.token(key)
    client.refused("UNKNOWN", "FENCED", (1 << 53) - 1, "SET", key, "x")
    client("RELEASE", key, first)
    assert first < client.token(key) < 1 << 40


def test_renew_and_release_under_a_token_never_granted_leave_the_lease_alone(client, token, key):
    client.refused("UNKNOWN", "RELEASE", key, token + 1)
    client.refused("UNKNOWN", "RENEW", key, token + 1, 1000)
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("held", token)
    assert lease["ttl_ms"] > 30000
