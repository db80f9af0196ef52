"""Keys that the programs of a control plane share: of service account tokens, and of the API server at kubelets."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from devcluster.certificates import AUTHORITY, certificate, new_key, pem
from shared.private import write_private


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
            write_private(self.accounts_key, pem(new_key()))
        if not self.kubelet_client.exists():
            key = new_key()
            client = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
            name, group = "kube-apiserver-kubelet-client", "system:masters"
            made = certificate(name, key, AUTHORITY, client, organization=group)
            write_private(self.kubelet_client_key, pem(key))
            self.kubelet_client.write_bytes(made.public_bytes(Encoding.PEM))
