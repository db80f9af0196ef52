"""The certificate of the kubelet API: made anew at every start, signed by itself, kept nowhere."""

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=365)


def serving_context(name: str, address: str, client_authority: Path | None) -> ssl.SSLContext:
    """Clients may show a certificate of `client_authority` instead of a token."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # OpenSSL takes them only from a file.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.public_bytes(encoding) + secret)
        file.flush()
        context.load_cert_chain(file.name)
    if client_authority:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
