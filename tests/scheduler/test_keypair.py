"""The pair itself, as OpenSSH reads it."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from services.scheduler.keypair import make_key_pair


def test_19_both_halves_belong_together_and_are_of_a_kind_that_is_strong_enough():
    """Line 19: RSA of 3072 bits or better, or Ed25519."""
    pair = make_key_pair("team-a/resnet")
    key = load_ssh_private_key(pair.private, password=None)
    assert isinstance(key, Ed25519PrivateKey)
    assert load_ssh_public_key(pair.public) == key.public_key()
    assert pair.private.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")
    kind, blob, comment = pair.public.split(b" ")
    assert (kind, comment) == (b"ssh-ed25519", b"team-a/resnet\n")
    assert base64.b64decode(blob)


def test_19_no_two_jobs_have_one_pair():
    assert make_key_pair("a").private != make_key_pair("a").private


def test_a_pair_shows_nothing_of_itself():
    pair = make_key_pair("team-a/resnet")
    assert "PRIVATE" not in f"{pair} {pair!r} {[pair]}"
