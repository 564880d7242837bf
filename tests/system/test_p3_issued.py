# SPDX-License-Identifier: Apache-2.0
"""P3 Issued: only tokens granted for a resource are accepted; no fence can be poisoned."""

import pytest

MALFORMED = ["-1", "0", str(1 << 53), str(1 << 64), "12abc", "", " 5", "5 ", "+5", "1e3", "0x10",
             "1.0", b"\x00", "9" * 400]


@pytest.mark.parametrize("ahead", [1, 1 << 52, (1 << 53) - 2])
def test_an_unknown_token_changes_nothing_and_does_not_raise_the_next_grant(client, token, key,
                                                                           ahead):
    unknown = token + ahead
    for command in (("FENCED", unknown, "SET", key, "poison"), ("FENCED", unknown, "GET", key),
                    ("FENCED", unknown, "DEL", key), ("RENEW", key, unknown, 1000),
                    ("RELEASE", key, unknown)):
        client.refused("UNKNOWN", *command)
    assert client("GET", key) is None
    lease = client.lease(key)
    assert (lease["state"], lease["token"]) == ("held", token) and lease["ttl_ms"] > 30000
    assert client.fenced(token, "SET", key, "right") == "OK"
    client("RELEASE", key, token)
    assert token < client.token(key) < 1 << 40


@pytest.mark.parametrize("token", MALFORMED, ids=repr)
def test_a_malformed_token_is_an_error_and_changes_nothing(client, key, token):
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
