"""A certificate authority of a test's own."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.eventlog.tls import Tls

DAY = timedelta(days=1)


class Authority:
    """Signs for servers on this machine and for their clients; its own certificate is at `path`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {folder.name}")])
        self.path = folder / f"{name}.crt"
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            self._begin(self._name, self._key, datetime.now(UTC) + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        expired: bool = False,
        of_clients: Path | None = None,
        host: str = "localhost",
        life: timedelta = DAY,
    ) -> Tls:
        """A certificate and its key; `of_clients` is the authority that the clients' own must come from."""
        key = ec.generate_private_key(ec.SECP256R1())
        ends = datetime.now(UTC) + (-DAY if expired else life)
        usual = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName(host)])
        certificate = (
            self._begin(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, ends)
            .add_extension(usual, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        made = Tls(ca=of_clients, certificate=self._folder / f"{name}.crt", key=self._folder / f"{name}.key")
        assert made.certificate is not None
        assert made.key is not None
        made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return made

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, ends: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(ends, datetime.now(UTC)) - 9 * DAY)
            .not_valid_after(ends)
        )
