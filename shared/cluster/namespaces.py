"""Where Muster works: in namespaces with the labels of a selector, and in no system namespace.  Pure.

The watcher asks it before it records a job; the admission policies hold the accounts to the same in CEL.
"""

from collections.abc import Collection, Mapping

SYSTEM = "kube-"
"""How the names of system namespaces begin; no job lives there."""

SELECTOR = "MUSTER_NAMESPACE_SELECTOR"
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
