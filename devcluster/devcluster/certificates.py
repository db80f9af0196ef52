"""The certificates of a development cluster: those of the API server and of node agents, and the API server's client
certificate for kubelets.
"""

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster.kubeconfig import write_private

LIFETIME = timedelta(days=3650)
FRONT_PROXY = "front-proxy-client"
"""The name in the client certificate with which an API server passes requests on to aggregated APIs."""
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SIGNS = ("digital_signature", "key_cert_sign", "crl_sign")
SIGNS_NOT = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
NO_AUTHORITY = x509.BasicConstraints(ca=False, path_length=None)
AUTHORITY = x509.BasicConstraints(ca=True, path_length=0)


def server_context(folder: Path, *addresses: str) -> ssl.SSLContext:
    """The TLS context of the API server; clients trust `folder/ca.crt`.  Missing files in `folder` are made.

    The certificate is valid for this machine's loopback addresses and for `addresses`.
    """
    make_server(folder, NAMES, ["127.0.0.1", "::1", *addresses])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


def make_server(folder: Path, names: Sequence[str], addresses: Sequence[str] = ()) -> None:
    """Write `ca.crt`, `server.crt` and `server.key` of a server, if one of them is missing in `folder`."""
    if all((folder / name).exists() for name in ("ca.crt", "server.crt", "server.key")):
        return
    authority, key = new_key(), new_key()
    usage = {**dict.fromkeys(SIGNS, True), **dict.fromkeys(SIGNS_NOT, False)}
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    signs = x509.KeyUsage(**usage, encipher_only=False, decipher_only=False)
    trusted = certificate("devcluster-ca", authority, AUTHORITY, signs, identifier)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    alternatives = _alternatives(names, addresses)
    server = certificate(
        "devcluster-apiserver", key, NO_AUTHORITY, alternatives, issuer, issuer=(trusted.subject, authority)
    )
    write_private(folder / "server.key", pem(key))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    # Written last: other processes wait for this file.
    (folder / "ca.crt").write_bytes(trusted.public_bytes(serialization.Encoding.PEM))


def kubelet_context(name: str, address: str, client_authority: Path | None) -> ssl.SSLContext:
    """The TLS context of a node agent, made anew at every start and not stored.

    A client may authenticate with a certificate of `client_authority` instead of a token.
    """
    key = new_key()
    made = certificate(f"system:node:{name}", key, _alternatives([name], [address]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # OpenSSL reads a certificate chain only from a file.
    with tempfile.NamedTemporaryFile() as file:
        file.write(made.public_bytes(serialization.Encoding.PEM) + pem(key))
        file.flush()
        context.load_cert_chain(file.name)
    if client_authority:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    *extensions: x509.ExtensionType,
    organization: str = "",
    issuer: tuple[x509.Name, EllipticCurvePrivateKey] | None = None,
) -> x509.Certificate:
    """A certificate; self-signed without an `issuer`."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_name, issuer_key = issuer or (subject, key)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of a client may be behind this one.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256())


def new_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


def pem(key: EllipticCurvePrivateKey) -> bytes:
    # kube-apiserver also reads the keys of service accounts in this format.
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def _alternatives(names: Sequence[str], addresses: Sequence[str]) -> x509.SubjectAlternativeName:
    known = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    return x509.SubjectAlternativeName([*known, *(x509.DNSName(name) for name in names)])


class Credentials:
    """The key files in `folder`; `make` writes the missing ones."""

    def __init__(self, folder: Path) -> None:
        self.accounts_key = folder / "accounts.key"
        """Signs and verifies tokens of service accounts."""
        self.kubelet_client_key = folder / "kubelet-client.key"
        self.kubelet_client = folder / "kubelet-client.crt"
        """The API server's client certificate for kubelets: self-signed, and so also the authority they trust."""
        self.front_proxy_key = folder / "front-proxy.key"
        self.front_proxy = folder / "front-proxy.crt"
        """The API server's client certificate for aggregated APIs, self-signed as well."""

    def make(self) -> None:
        """Write the missing files."""
        if not self.accounts_key.exists():
            write_private(self.accounts_key, pem(new_key()))
        if not self.kubelet_client.exists():
            name, group = "kube-apiserver-kubelet-client", "system:masters"
            _make_client(self.kubelet_client, self.kubelet_client_key, name, group)
        if not self.front_proxy.exists():
            _make_client(self.front_proxy, self.front_proxy_key, FRONT_PROXY)


def _make_client(path: Path, key_path: Path, name: str, organization: str = "") -> None:
    key = new_key()
    client = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    made = certificate(name, key, AUTHORITY, client, organization=organization)
    write_private(key_path, pem(key))
    path.write_bytes(made.public_bytes(Encoding.PEM))
