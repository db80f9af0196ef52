"""Claims of scopes: annotations of custom resource definitions that name the installation which acts on their objects.

Pure.  A scope is a namespace or the whole cluster; the holder is a log.  Two installations with overlapping scopes
would undo each other's work.  `muster setup` writes and removes claims; cluster-wide services read them.
"""

from collections.abc import Mapping

PREFIX = "log.muster.dev/"
EVERYWHERE = "Cluster"
"""Stands for all namespaces; the name of a namespace has no capital letter."""

REMEDY = (
    "`muster setup --release` there gives the scope up, `muster setup --take-scope` here takes it from an installation "
    "that is gone"
)
OWN = "this log's own, of another scope: end its services and give that scope up by `muster setup --release` with it"


def key(namespace: str) -> str:
    """The annotation of this scope; an empty `namespace` is the whole cluster."""
    return PREFIX + (namespace or EVERYWHERE)


def holder(identity: str, url: str) -> str:
    """The value of a claim; the address is for people only."""
    return f"{identity} {url}"


def is_held(annotations: Mapping[str, str] | None, namespace: str, identity: str) -> bool:
    """True if this log has claimed this scope."""
    return (annotations or {}).get(key(namespace), "").partition(" ")[0] == identity


def conflicting(annotations: Mapping[str, str] | None, namespace: str, identity: str) -> dict[str, str]:
    """The claims that exclude one of this log: annotation → holder.

    The whole cluster and a namespace exclude each other even on one log: both would act on the same jobs.
    """
    claims = {name: held for name, held in (annotations or {}).items() if name.startswith(PREFIX)}
    return {
        name: held
        for name, held in claims.items()
        if (name == key(namespace) and held.partition(" ")[0] != identity)
        or (name != key(namespace) and key("") in (name, key(namespace)))
    }


def why_excluded(claims: Mapping[str, str], identity: str) -> str:
    """Why these claims exclude this log, and what to do; `identity` is empty before the log exists."""
    if all(held.partition(" ")[0] == identity for held in claims.values()):
        return f"{described(claims)}; {OWN}"
    here = f", and this is the log {identity}" if identity else ""
    return f"{described(claims)}{here}; {REMEDY}"


def described(claims: Mapping[str, str]) -> str:
    """The claims in words."""
    return ", ".join(
        f"{in_words(name)} has the log {held.replace(' ', ' at ')}" for name, held in sorted(claims.items())
    )


def in_words(name: str) -> str:
    """The scope of an annotation, in words."""
    namespace = name.removeprefix(PREFIX)
    return "the whole cluster" if namespace == EVERYWHERE else f"the namespace {namespace}"
