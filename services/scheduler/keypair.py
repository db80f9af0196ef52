"""Key pairs for ssh, made where the effect is carried out: what comes of it goes to the API server and nowhere else."""

from typing import NamedTuple


class KeyPair(NamedTuple):
    """Both halves in the formats of OpenSSH.  It shows nothing of itself in a log line or a traceback."""

    private: bytes
    public: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def make_key_pair(comment: str) -> KeyPair:
    """A new Ed25519 pair; the comment ends the line of the public half.

    Ed25519 although the contract's file is called `id_rsa`: ssh reads the kind of a key in the file, since OpenSSH
    6.5 this one too, and such a pair costs some microseconds where one of RSA with 3072 bits takes the loop's
    processor for a tenth of a second and more.  Whoever needs RSA (a FIPS mode, Paramiko) brings a Secret.
    """
    # Imported when it is needed: it takes about 10 MiB, and the other services never do.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private, public + b" " + comment.encode() + b"\n")
