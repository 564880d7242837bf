# SPDX-License-Identifier: Apache-2.0
"""Certificates, made on the spot by openssl.

    certs = Certs(folder)                     # a CA of its own: certs.ca
    certs.issue("server", "DNS:localhost,IP:127.0.0.1") -> Cert(cert, key)
    certs.client()                            # an ssl.SSLContext that trusts that CA
    certs.redis(port)                         # a redis-server's lines: TLS at this port, no other
"""

import pathlib
import ssl
import subprocess
import typing


class Cert(typing.NamedTuple):
    cert: pathlib.Path
    key: pathlib.Path


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stderr


EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Certs:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.ca, self.ca_key = folder / "ca.pem", folder / "ca.key"
        openssl("req", "-x509", *EC, "-subj", "/CN=CA", "-days", 99, "-out", self.ca, "-keyout",
                self.ca_key)

    def issue(self, name, names=None, days=99):
        """A certificate whose common name is `name`; `names` are its other names."""
        made = Cert(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, more = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        more.write_text(f"subjectAltName={names}\n" if names else "\n")
        openssl("req", *EC, "-subj", f"/CN={name}", "-out", request, "-keyout", made.key)
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-days",
                days, "-extfile", more, "-out", made.cert)
        return made

    def server(self, name="server", days=99):
        return self.issue(name, "DNS:localhost,IP:127.0.0.1,IP:::1", days)

    def client(self, cert=None):
        context = ssl.create_default_context(cafile=self.ca)
        if cert is not None:
            context.load_cert_chain(*cert)
        return context

    def redis(self, port):
        """The options that make a redis-server, or a sentinel, speak TLS only."""
        cert = self.folder / "redis.pem"
        if not cert.exists():
            self.server("redis")
        return {"port": 0, "tls-port": port, "tls-cert-file": cert,
                "tls-key-file": self.folder / "redis.key", "tls-ca-cert-file": self.ca,
                "tls-auth-clients": "no", "tls-replication": "yes"}
