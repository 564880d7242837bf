# SPDX-License-Identifier: Apache-2.0
"""The packages for Python and Node by TLS: stockades://, with users and certificates."""

import asyncio

import pytest

from harness.certs import Certs
from harness.limits import HANG_SECONDS, patience
from harness.node import node
from harness.package import stockade
from harness.users import with_users

pytestmark = pytest.mark.interpreted


@pytest.fixture(scope="module")
def cert(certs):
    return certs.server()


def tls_daemon(rig, certs, cert, clients="optional"):
    return with_users(rig, "user till on >p@ss ~* &* +@all", args=(
        "--tls-cert", cert.cert, "--tls-key", cert.key, "--tls-ca", certs.ca, "--tls-clients",
        clients, "--tls-user", "cn"), listen=("tls:127.0.0.1:0",))


def uri(daemon, certs, login="till:p%40ss@", host="127.0.0.1", **options):
    options = {"tls_ca": certs.ca, **options}
    words = "&".join(f"{name}={value}" for name, value in options.items())
    return f"stockades://{login}{host}:{daemon.address[1]}?{words}"


def connect(where):
    return stockade.connect(where, timeout=patience(HANG_SECONDS))


def test_python_and_its_tasks(rig, certs, cert, key):
    daemon = tls_daemon(rig, certs, cert)
    with connect(uri(daemon, certs)) as shop:
        with shop.lease(key, ttl=60) as lease:
            lease.set("x" * 100000)
        assert shop.get(key) == "x" * 100000

    async def tasks():
        async with stockade.aio.connect(uri(daemon, certs), timeout=patience(HANG_SECONDS)) as shop:
            async with shop.lease(key, ttl=60) as lease:
                await lease.set("y" * 100000)
            return await shop.get(key)
    assert asyncio.run(tasks()) == "y" * 100000


def test_node(rig, certs, cert, key):
    daemon = tls_daemon(rig, certs, cert)
    program = node(rig, """
        await shop.lease(args[0], { ttl: 60000 }, (lease) => lease.set('z'.repeat(100000)));
        say((await shop.get(args[0])).length);
    """, uri(daemon, certs), key)
    assert program.hear() == 100000
    program.end()


def test_a_certificate_in_place_of_a_password(rig, certs, cert, key):
    daemon = tls_daemon(rig, certs, cert, "required")
    till = certs.issue("till")
    where = uri(daemon, certs, login="", tls_cert=till.cert, tls_key=till.key)
    with connect(where) as shop, shop.lease(key, ttl=60) as lease:
        lease.set(1)
    program = node(rig, "say(await shop.get(args[0]));", where, key)
    assert program.hear() == "1"
    program.end()
    with stockade.connect(uri(daemon, certs), timeout=1) as shop, \
            pytest.raises(stockade.Unreachable):
        shop.get(key)


FAILS = """
say(await end(connect(args[0], { timeout: 1000 })));
process.exit(0);
"""


def test_who_is_not_who_it_should_be_is_not_talked_to(rig, certs, cert, key, tmp_path):
    daemon = tls_daemon(rig, certs, cert)
    others = Certs(tmp_path / "others")
    named = certs.issue("named", "DNS:shop.example")
    other = rig.daemon("--tls-cert", named.cert, "--tls-key", named.key,
                       listen=("tls:127.0.0.1:0",), store=f"sqlite:{rig.folder}/other.db")
    for wrong in (uri(daemon, others), uri(other, certs, login=""),
                  uri(daemon, certs, tls_name="shop.example")):
        with stockade.connect(wrong, timeout=1) as shop, pytest.raises(stockade.Unreachable):
            shop.get(key)
        program = node(rig, FAILS, wrong, prelude=PRELUDE, epilogue="")
        assert program.hear() == "Unreachable"
        program.end()
    right = uri(other, certs, login="", tls_name="shop.example")
    with connect(right) as shop:
        assert shop.get(key) is None

    async def tasks():
        async with stockade.aio.connect(right, timeout=patience(HANG_SECONDS)) as shop:
            return await shop.get(key)
    assert asyncio.run(tasks()) is None
    program = node(rig, "say(await shop.get(args[0]));", right, key)
    assert program.hear() is None
    program.end()


PRELUDE = """
import { connect } from 'stockade';
const args = process.argv.slice(2);
const say = (value = null) => process.stdout.write(`${JSON.stringify(value)}\\n`);
const end = (promise) => promise.then((value) => value ?? null, (error) => error.name);
"""


def test_the_connection_comes_back(rig, certs, cert, key):
    daemon = tls_daemon(rig, certs, cert)
    with connect(uri(daemon, certs)) as shop:
        with shop.lease(key, ttl=60) as lease:
            lease.set(1)
            daemon.kill()
            again = tls_daemon_at(rig, certs, cert, daemon)
            lease.set(2)
        assert shop.get(key) == "2"
        assert again.alive()


def tls_daemon_at(rig, certs, cert, old):
    return rig.daemon("--acl-file", old.users, "--tls-cert", cert.cert, "--tls-key", cert.key,
                      listen=(f"tls:127.0.0.1:{old.address[1]}",))


@pytest.mark.parametrize("options", ["tls_nosuch=1", "tls_ca=", "tls_key=/k", "x", "tls_ca=/none"])
def test_options_that_make_no_sense_are_refused(rig, options):
    with pytest.raises(stockade.Misuse):
        stockade.connect(f"stockades://h?{options}")
    program = node(rig, FAILS, f"stockades://h?{options}", prelude=PRELUDE, epilogue="")
    assert program.hear() == "Misuse"
    program.end()
