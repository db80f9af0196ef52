"""The admission policies, made from `shared.installation.admission`.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.installation import admission, auditing, requesters
from shared.installation.permissions import SERVICES_OF_A_CLUSTER, USUAL, Powers
from shared.job.events.event import Author
from shared.job.naming import AUDIT_POLICY

GROUP = "admissionregistration.k8s.io"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
POLICIES = Resource(GROUP, "v1", "validatingadmissionpolicies", POLICY, Custom)
BINDINGS = Resource(GROUP, "v1", "validatingadmissionpolicybindings", BINDING, Custom)
"""Cluster-scoped."""

Document = dict[str, Any]


def accounts(stem: str = "") -> dict[str, Sequence[Author]]:
    """An account for each service, called after it, with the services that have it."""
    return {f"{stem}{service}": (service,) for service in SERVICES_OF_A_CLUSTER}


def together(account: str, services: Sequence[Author]) -> dict[str, Sequence[Author]]:
    """The accounts that share the policy of one of them, each with its services: those of an installation."""
    return {account: services} if len(services) > 1 else accounts(account.removesuffix(services[0]))


def name(accounts: Mapping[str, Sequence[Author]], home: str) -> str:
    """The name of the policy of an installation's accounts and of its binding: policies have no namespace."""
    account, services = next(iter(accounts.items()))
    stem = account if len(services) > 1 else account.removesuffix(services[0]).removesuffix("-")
    return f"{stem or 'services'}.{home}.muster.dev"


def bound(name: str, spec: Document, action: str = "Deny") -> list[Document]:
    """A policy and the binding that puts it in force everywhere."""
    metadata = {"name": name}
    binding = {"policyName": name, "validationActions": [action]}
    return [
        {"apiVersion": f"{GROUP}/v1", "kind": POLICY, "metadata": dict(metadata), "spec": spec},
        {"apiVersion": f"{GROUP}/v1", "kind": BINDING, "metadata": dict(metadata), "spec": binding},
    ]


def manifests(
    accounts: Mapping[str, Sequence[Author]],
    home: str,
    *,
    scope: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    powers: Powers = USUAL,
) -> list[Document]:
    """The policy of an installation's accounts in the namespace `home`, each with its services, and its binding."""
    closed = admission.closed_namespaces(home, scope)
    # An installation for one namespace was given it by name.
    given = admission.settings(kinds, closed, powers._replace(namespaces=()) if scope else powers)
    return bound(name(accounts, home), admission.spec(home, accounts, given))


def of_requesters(home: str, kinds: Iterable[Framework] = BUILT_IN) -> list[Document]:
    """The policy for whoever creates jobs and scale requests; `home` tells installations apart."""
    return bound(f"{requesters.NAME}.{home}.muster.dev", requesters.spec(kinds))


def of_audit(home: str, kinds: Iterable[Framework] = BUILT_IN) -> list[Document]:
    """The policy that notes in audit events whether a request changed its object; it refuses nothing."""
    return bound(f"{AUDIT_POLICY}.{home}.muster.dev", auditing.spec(kinds), "Audit")
