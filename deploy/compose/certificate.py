"""The certificate of both NATS servers, from an authority that signs nothing else: its key is not kept.

The arguments: the folder with a folder for each user, who gets the authority's certificate as `ca.crt`, and the folder
of the servers, which get `tls.crt` and `tls.key`.  Those that are there stay.
"""

import sys
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=3650)
"""`docker compose down --volumes` ends it sooner."""

NAMES = [*map(x509.DNSName, ("nats", "copies", "localhost")), x509.IPAddress(IPv4Address("127.0.0.1"))]

USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def main(users: Path, server: Path) -> None:
    folders = sorted(each for each in users.iterdir() if each.is_dir())
    files = [*(folder / "ca.crt" for folder in folders), server / "tls.key", server / "tls.crt"]
    if all(file.exists() for file in files):
        return
    signing, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.SubjectKeyIdentifier.from_public_key(signing.public_key())
    authority = (
        begun("muster", signing)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage("key_cert_sign"), critical=True)
        .add_extension(issuer, critical=False)
        .sign(signing, hashes.SHA256())
    )
    certificate = (
        begun("nats", own)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage("digital_signature"), critical=True)
        .add_extension(x509.SubjectAlternativeName(NAMES), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        .sign(signing, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    contents = [*(authority.public_bytes(pem) for _ in folders), key, certificate.public_bytes(pem)]
    # The last one to be written is the first to go: a run that was killed in between is done again.
    files[-1].unlink(missing_ok=True)
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
        file.chmod(0o600 if file.name == "tls.key" else 0o644)


def begun(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFE)
    )


def usage(only: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name == only for name in USAGES})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
