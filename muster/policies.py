"""The admission policies of the service accounts, made from `shared.installation.admission`.  Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.installation import admission, requesters
from shared.job.events.event import Author

GROUP = "admissionregistration.k8s.io"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
POLICIES = Resource(GROUP, "v1", "validatingadmissionpolicies", POLICY, Custom)
BINDINGS = Resource(GROUP, "v1", "validatingadmissionpolicybindings", BINDING, Custom)
"""Cluster-scoped."""

Document = dict[str, Any]


def name(account: str, home: str) -> str:
    """The name of an account's policy and of its binding: policies have no namespace."""
    return f"{account}.{home}.muster.dev"


def bound(name: str, spec: Document) -> list[Document]:
    """A policy and the binding that puts it in force everywhere."""
    metadata = {"name": name}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": f"{GROUP}/v1", "kind": POLICY, "metadata": dict(metadata), "spec": spec},
        {"apiVersion": f"{GROUP}/v1", "kind": BINDING, "metadata": dict(metadata), "spec": binding},
    ]


def manifests(
    account: str,
    home: str,
    services: Collection[Author],
    *,
    scope: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    taking_over: bool = False,
    commands: bool = True,
    keys: bool = True,
) -> list[Document]:
    """The policy of the account in the namespace `home` that serves these services, and its binding."""
    closed = admission.closed_namespaces(home, scope)
    given = admission.settings(kinds, closed, taking_over=taking_over, commands=commands, keys=keys)
    return bound(name(account, home), admission.spec(home, account, services, given))


def of_requesters(home: str, kinds: Iterable[Framework] = BUILT_IN) -> list[Document]:
    """The policy for whoever creates jobs and scale requests; `home` tells installations apart."""
    return bound(name(requesters.NAME, home), requesters.spec(kinds))


def of_services(
    services: Sequence[Author],
    home: str,
    *,
    scope: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    taking_over: bool = False,
    commands: bool = True,
    keys: bool = True,
) -> list[Document]:
    """The policies of services that have an account each, called as the service."""
    kinds = [*kinds]
    return [
        document
        for service in services
        for document in manifests(
            service, home, (service,), scope=scope, kinds=kinds, taking_over=taking_over, commands=commands, keys=keys
        )
    ]
