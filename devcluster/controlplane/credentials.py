"""Keys that the programs of a control plane share: of service account tokens, and of the API server at kubelets."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.private import write_private

LIFETIME = datetime.timedelta(days=3650)


class Credentials:
    """Files in `folder`, made when they are missing."""

    def __init__(self, folder: Path) -> None:
        self.accounts_key = folder / "accounts.key"
        """Signs and verifies tokens of service accounts."""
        self.kubelet_client_key = folder / "kubelet-client.key"
        self.kubelet_client = folder / "kubelet-client.crt"
        """What the API server shows to kubelets; signed by itself, so it is also the authority that they trust."""

    def make(self) -> None:
        """Write what is missing."""
        if not self.accounts_key.exists():
            _write_key(self.accounts_key)
        if not self.kubelet_client.exists():
            self._make_kubelet_client()

    def _make_kubelet_client(self) -> None:
        key = _write_key(self.kubelet_client_key)
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
                x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver-kubelet-client"),
            ]
        )
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # A clock that is a little behind ours must not refuse us.
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.kubelet_client.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(
        path,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
    )
    return key
