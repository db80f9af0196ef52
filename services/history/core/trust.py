"""The trust in kube-apiserver's front proxy: its authority, its names, and the headers with the user.  Pure.

The ConfigMap `kube-system/extension-apiserver-authentication` has them.  kube-apiserver has authenticated the user, and
proves by its client certificate that it is kube-apiserver.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from shared.errors import Refused
from shared.untrusted import MALFORMED

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"


class Person(msgspec.Struct, frozen=True):
    """Whom kube-apiserver has authenticated."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


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
                f"{NAMESPACE}/{NAME} names no authority of a front proxy; start kube-apiserver with"
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

    def person(self, common_name: str | None, headers: Iterable[tuple[str, str]]) -> Person | None:
        """The user of a request; None if it does not come from the front proxy, or names no user.

        `common_name` is that of the client's certificate, which `authority` has issued; None without one.
        """
        if common_name is None or (self.names and common_name not in self.names):
            return None
        known = [(name.lower(), value) for name, value in headers]
        names = _values(known, self.user_headers)
        if not names or not names[0]:
            return None
        uids = _values(known, self.uid_headers)
        extra: dict[str, tuple[str, ...]] = {}
        for prefix in self.extra_prefixes:
            for name, value in known:
                if name.startswith(prefix.lower()):
                    key = unquote(name[len(prefix) :])
                    extra[key] = (*extra.get(key, ()), value)
        return Person(
            names[0],
            uid=uids[0] if uids else "",
            groups=tuple(_values(known, self.group_headers)),
            extra=tuple(sorted(extra.items())),
        )


def _values(known: Sequence[tuple[str, str]], names: Iterable[str]) -> list[str]:
    return [value for wanted in names for name, value in known if name == wanted.lower()]


def _words(data: Mapping[str, str], what: str) -> tuple[str, ...]:
    key = f"requestheader-{what}"
    try:
        found: Any = msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
    except MALFORMED as error:
        raise Refused(f"{NAMESPACE}/{NAME}: {key} is no list of words: {error}", reason="NoFrontProxy") from error
    return tuple(found)
