# SPDX-License-Identifier: Apache-2.0
"""Lease services by TLS: whom the daemon refuses, what it says of that, and how it comes back.
That all holds by TLS what holds without it: test_lease_services."""

import contextlib
import os
import socket
import threading

import pytest

from harness.certs import Certs
from harness.limits import patience, wait_until
from harness.rig import refusal


def uri(server, *options):
    return "?".join([server.uri] + (["&".join(options)] if options else []))


def refused_with(daemon, why):
    client = daemon.client()
    wait_until(lambda: why in str(client.ask("ACQUIRE", "k", 60000)), f"LEASEDOWN says: {why}")


def test_a_server_that_is_not_the_one(rig, certs, tmp_path):
    server = rig.redis(certs=certs)
    other = Certs(tmp_path / "other")
    for options, why in (((f"tls_ca={other.ca}",), "certificate is refused: "),
                         ((), "certificate is refused: "),
                         ((f"tls_ca={certs.ca}", "tls_name=elsewhere.example"),
                          "certificate is refused: hostname mismatch")):
        daemon = rig.daemon(lease=uri(server, *options))
        refused_with(daemon, why)
        daemon.close_clients()
        daemon.stop()
    daemon = rig.daemon(lease=uri(server, f"tls_ca={certs.ca}", "tls_name=localhost"))
    assert daemon.client().token("k") > 0


def test_a_certificate_that_the_server_asks_for(rig, certs):
    server = rig.redis(certs=certs)
    server("CONFIG", "SET", "tls-auth-clients", "yes")
    mine = certs.issue("stockade")
    daemon = rig.daemon(lease=uri(server, f"tls_ca={certs.ca}"))
    refused_with(daemon, "certificate required")
    daemon.close_clients()
    daemon.stop()
    daemon = rig.daemon(lease=uri(server, f"tls_ca={certs.ca}", f"tls_cert={mine.cert}",
                                  f"tls_key={mine.key}"))
    assert daemon.client().token("k") > 0


def test_new_files_are_read_after_a_failure(rig, tmp_path):
    """The server has a new CA, and so has the daemon's file, later."""
    old, new = Certs(tmp_path / "old"), Certs(tmp_path / "new")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(old.ca.read_bytes())
    server = rig.redis(certs=old)
    daemon = rig.daemon(lease=uri(server, f"tls_ca={ca}"))
    client = daemon.client()
    assert client.token("k") > 0
    server.kill()
    server = rig.redis(certs=new, port=server.address[1])
    refused_with(daemon, "certificate is refused: ")
    (tmp_path / "next").write_bytes(new.ca.read_bytes())
    os.replace(tmp_path / "next", ca)
    wait_until(lambda: not isinstance(client.ask("ACQUIRE", "other", 60000), Exception),
               "it is back")


def test_files_that_cannot_be_used_refuse_the_start(rig, certs):
    assert "the CA file /nowhere.pem cannot be used: No such file" in refusal(
        rig, lease="rediss://127.0.0.1:1?tls_ca=/nowhere.pem")
    assert "needs its certificate" in refusal(
        rig, lease=f"rediss://127.0.0.1:1?tls_key={certs.ca_key}")


@contextlib.contextmanager
def listener(answer):
    """A server that does `answer(connection)` with each that comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def run():
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.settimeout(patience(20))
                    answer(connection)
        threading.Thread(target=run, daemon=True).start()
        yield "rediss://127.0.0.1:{}".format(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer, why", [
    (lambda connection: connection.recv(65536), "in the TLS handshake"),
    (lambda connection: connection.sendall(b"-ERR no TLS here\r\n") or connection.recv(65536),
     "TLS: "),
    (lambda connection: [connection.recv(65536)] and connection.recv(1),
     "no connection within"),
])
def test_a_server_that_speaks_no_tls_or_says_nothing(rig, answer, why):
    with listener(answer) as address:
        refused_with(rig.daemon(lease=f"{address}?timeout_ms=300"), why)
