"""Who works where: claims of installations, as annotations of the definitions of the kinds that they act on.

Pure.  A scope is a namespace, or the whole cluster; the holder is a log.  Two installations of which each has jobs that
the other sees too would undo each other's work, and no log could tell.  `muster setup` writes and removes claims, the
services of a whole cluster read them.
"""

from collections.abc import Mapping

PREFIX = "log.muster.dev/"
EVERYWHERE = "Cluster"
"""In the place of a namespace, none of which has a capital letter."""

REMEDY = (
    "`muster setup --release` there gives the scope up, `muster setup --take-scope` here takes it from an installation "
    "that is gone"
)
OWN = "this log's own, of another scope: end its services and give that scope up by `muster setup --release` with it"


def key(namespace: str) -> str:
    """The annotation of this scope; an empty `namespace` is the whole cluster."""
    return PREFIX + (namespace or EVERYWHERE)


def holder(identity: str, url: str) -> str:
    """The value of a claim; the address is for people alone."""
    return f"{identity} {url}"


def is_held(annotations: Mapping[str, str] | None, namespace: str, identity: str) -> bool:
    """Whether this log has claimed this scope."""
    return (annotations or {}).get(key(namespace), "").partition(" ")[0] == identity


def others(annotations: Mapping[str, str] | None, namespace: str, identity: str) -> dict[str, str]:
    """The claims that leave no room for one of this log: annotation → holder.

    The whole cluster and a namespace exclude each other even on the same log: both would act on the same jobs.
    """
    claims = {name: held for name, held in (annotations or {}).items() if name.startswith(PREFIX)}
    return {
        name: held
        for name, held in claims.items()
        if (name == key(namespace) and held.partition(" ")[0] != identity)
        or (name != key(namespace) and key("") in (name, key(namespace)))
    }


def no_room(claims: Mapping[str, str], identity: str) -> str:
    """Why there is no room beside these claims of others, or of this log for another scope, and what to do.

    `identity` is empty where the log is still to be made.
    """
    if all(held.partition(" ")[0] == identity for held in claims.values()):
        return f"{told(claims)}; {OWN}"
    here = f", and this is the log {identity}" if identity else ""
    return f"{told(claims)}{here}; {REMEDY}"


def told(claims: Mapping[str, str]) -> str:
    """They in words: which scope which log has."""
    return ", ".join(f"{place(name)} has the log {held.replace(' ', ' at ')}" for name, held in sorted(claims.items()))


def place(name: str) -> str:
    """The scope of an annotation, in words."""
    namespace = name.removeprefix(PREFIX)
    return "the whole cluster" if namespace == EVERYWHERE else f"the namespace {namespace}"
