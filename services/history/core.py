"""Whom the history service believes.  Pure.

The ConfigMap `kube-system/extension-apiserver-authentication` has the authority of kube-apiserver's front proxy, its
names, and the headers with the user.  kube-apiserver has authenticated the user, and proves by its client certificate
that it is kube-apiserver.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any
from unicodedata import category
from urllib.parse import unquote

import msgspec

from shared.errors import Refused
from shared.history_api import Share, share_of
from shared.untrusted import MALFORMED

AUTHENTICATION = "kube-system/extension-apiserver-authentication"
"""The ConfigMap that names the front proxy."""
MOST_GROUPS = 1000
MOST_WORDS = 4096
"""The most characters of a user's name, uid, group or extra."""


class Person(msgspec.Struct, frozen=True):
    """Whom kube-apiserver has authenticated."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def share(self) -> Share:
        return share_of(self.name)


class Trust(msgspec.Struct, frozen=True):
    """Which front proxy is believed."""

    authority: str
    """The authority of its client certificate, in PEM."""
    names: tuple[str, ...] = ()
    """The common names that the certificate may have; none for any."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def read(cls, data: Mapping[str, str]) -> "Trust":
        """The trust that the ConfigMap says.  Raises `Refused` if it names no front proxy."""
        authority = data.get("requestheader-client-ca-file", "")
        if not authority.strip():
            raise Refused(
                f"{AUTHENTICATION} names no authority of a front proxy; start kube-apiserver with"
                " --requestheader-client-ca-file",
                reason="NoFrontProxy",
            )
        return cls(
            authority,
            names=_words(data, "allowed-names"),
            user_headers=_words(data, "username-headers"),
            uid_headers=_words(data, "uid-headers"),
            group_headers=_words(data, "group-headers"),
            extra_prefixes=_words(data, "extra-headers-prefix"),
        )

    def trusts(self, common_name: str) -> bool:
        """True if the certificate of this name, which `authority` has issued, is the front proxy's."""
        return not self.names or common_name in self.names

    def person(self, common_name: str | None, headers: Iterable[tuple[str, str]]) -> Person | None:
        """The user of a request; None if it does not come from the front proxy, or names no user.

        `common_name` is that of the client's certificate, which `authority` has issued; None without one.  The front
        proxy sends one user, and one header for each group and for each value of an extra, whose key is in lower case
        and percent-encoded.  Raises `Refused` for what it cannot have sent.
        """
        if common_name is None or not self.trusts(common_name):
            return None
        known = [(name.lower(), value) for name, value in headers]
        names = _values(known, self.user_headers)
        if not names:
            return None
        uids, groups = _values(known, self.uid_headers), _values(known, self.group_headers)
        extra: dict[str, list[str]] = {}
        for prefix in self.extra_prefixes:
            for name, value in known:
                if name.startswith(prefix.lower()):
                    extra.setdefault(unquote(name[len(prefix) :], errors="surrogateescape"), []).append(value)
        if len(names) > 1 or len(uids) > 1 or not names[0]:
            raise Refused("the request has to name one user, and at most one uid", reason="Invalid")
        if len(groups) > MOST_GROUPS:
            raise Refused(f"a user may be in {MOST_GROUPS} groups, and not in {len(groups)}", reason="Invalid")
        for word in (*names, *uids, *groups, *extra, *chain.from_iterable(extra.values())):
            _must_be_words(word)
        return Person(
            names[0],
            uid=uids[0] if uids else "",
            groups=tuple(filter(None, groups)),
            extra=tuple((key, tuple(values)) for key, values in sorted(extra.items())),
        )


def _must_be_words(word: str) -> None:
    if len(word) > MOST_WORDS:
        words = f"a user's name, uid, group or extra has at most {MOST_WORDS} characters, and not {len(word)}"
        raise Refused(words, reason="Invalid")
    # What is not UTF-8 comes as surrogates.
    if any(category(character) in ("Cc", "Cs") for character in word):
        words = f"the request names a user in characters that are none: {word[:64]!a}"
        raise Refused(words, reason="Invalid")


def _values(known: Sequence[tuple[str, str]], names: Iterable[str]) -> list[str]:
    return [value for wanted in names for name, value in known if name == wanted.lower()]


def _words(data: Mapping[str, str], what: str) -> tuple[str, ...]:
    key = f"requestheader-{what}"
    try:
        found: Any = msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
    except MALFORMED as error:
        raise Refused(f"{AUTHENTICATION}: {key} is no list of words: {error}", reason="NoFrontProxy") from error
    return tuple(found)
