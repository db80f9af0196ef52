"""A certificate authority of our own and the server's certificate, made once and kept across restarts."""

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=3650)
ADDRESSES = ("127.0.0.1", "::1")
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def server_context(folder: Path, *addresses: str) -> ssl.SSLContext:
    """For serving with `folder`'s certificate, which is made when it is missing; clients trust `folder/ca.crt`.

    It is good for this machine, and for further `addresses`.
    """
    if not all((folder / name).exists() for name in ("ca.crt", "server.crt", "server.key")):
        _make(folder, [*ADDRESSES, *addresses])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


def _make(folder: Path, addresses: Sequence[str]) -> None:
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _name("devcluster-ca")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    authority = (
        _builder(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(text)) for text in addresses]
    alternatives += [x509.DNSName(name) for name in NAMES]
    server = (
        _builder(_name("devcluster-apiserver"), authority_name, server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key_file = folder / "server.key"
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    # Last, because its presence is what others wait for.
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A clock that is a little behind ours must not refuse us.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )
