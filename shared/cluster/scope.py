"""Where Muster works, and which installation claims that: annotations of definitions name the one that acts.  Pure.

A scope is a namespace or the whole cluster, there in namespaces with the labels of a selector, and in no namespace of
the system; the admission policies hold the accounts to the same in CEL.  The holder of a claim is a log: two
installations with overlapping scopes would undo each other's work.  `muster setup` writes and removes claims;
cluster-wide services read them.
"""

from collections.abc import Collection, Mapping

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
    return ", ".join(
        f"{in_words(name)} has the log {held.replace(' ', ' at ')}" for name, held in sorted(claims.items())
    )


def in_words(name: str) -> str:
    """The scope of an annotation, in words."""
    namespace = name.removeprefix(PREFIX)
    return "the whole cluster" if namespace == EVERYWHERE else f"the namespace {namespace}"


SYSTEM = "kube-"
"""How the names of system namespaces begin; no job lives there."""

SELECTOR = "MUSTER_NAMESPACE_SELECTOR"
EVERY_NAMESPACE = "kubernetes.io/metadata.name"
"""A label that each has, for commands, which without a selector go by the chart's; services without one take all."""
OPTED_IN = ("muster.dev/jobs=enabled", "pod-security.kubernetes.io/enforce")
"""The selector of the chart: a namespace asks for Muster, and says what its pods may do on a node."""

ACCOUNTS = "muster.dev/service-accounts"
"""The annotation of a namespace with the service accounts, besides `default`, that pods of jobs may have there."""


def labels_of(selector: str) -> tuple[str, ...]:
    """The labels, separated by commas."""
    return tuple(filter(None, map(str.strip, selector.split(","))))


def labelling(namespace: str, labels: Collection[str]) -> str:
    """The command that adds these labels of a selector."""
    return (
        f"kubectl label namespace {namespace} {' '.join(each if '=' in each else f'{each}=VALUE' for each in labels)}"
    )


def why_outside(namespace: str, lacks: Collection[str]) -> str:
    """Why no job begins in a namespace that lacks these labels of the selector; empty if one may."""
    if namespace.startswith(SYSTEM):
        return f"{namespace} is a namespace of the system, in which no job begins; create the job in another one"
    if not lacks:
        return ""
    labels = ", ".join(lacks)
    return f"the namespace {namespace} lacks {labels}, so that no job begins there: `{labelling(namespace, lacks)}`"


def lacking(selector: Collection[str], labels: Mapping[str, str] | None) -> tuple[str, ...]:
    """The labels, `key=value` or a `key` with any value, of the selector that a namespace does not have."""
    there = {text for key, value in (labels or {}).items() for text in (key, f"{key}={value}")}
    return tuple(label for label in selector if label not in there)
