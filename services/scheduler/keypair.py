"""Makes key pairs for ssh, which go to the API server and are not logged."""

from typing import NamedTuple


class KeyPair(NamedTuple):
    """Both halves in the formats of OpenSSH; its `repr` shows neither."""

    private: bytes
    public: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def make_key_pair(comment: str) -> KeyPair:
    """A new Ed25519 pair; the comment ends the line of the public half.

    Ed25519, although the file is called `id_rsa`: ssh reads the type of a key from its content.  An RSA pair of 3072
    bits would block the loop for a tenth of a second.  A user who needs RSA (a FIPS mode, Paramiko) brings a Secret.
    """
    # Imported here: it takes about 10 MiB, and the other services never need it.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private, public + b" " + comment.encode() + b"\n")
