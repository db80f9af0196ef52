"""Findings about rights: the accounts, the rights that each needs, and the missing ones.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from muster.doctor.findings import Finding, fail, names, ok, unknown, warn
from shared.cluster.examination import Right, granting
from shared.cluster.scope import labelling
from shared.frameworks.framework import Framework
from shared.installation.permissions import SERVICES_OF_A_CLUSTER as SERVICES
from shared.installation.permissions import USUAL, Powers, necessary, needs
from shared.job.events.event import Author

ALL = "all"
"""The component label of all four services in one process."""
COMPONENT = "app.kubernetes.io/component"
NAMESPACE = "MUSTER_NAMESPACE"

NAMESPACES_CHECK = "rights.namespaces"

_ACCOUNT = "system:serviceaccount:"

Document = Mapping[str, Any]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A service account and its services."""

    namespace: str
    name: str
    services: tuple[Author, ...]
    scope: str = ""
    """The namespace of its services' jobs; empty for the whole cluster."""
    powers: Powers = USUAL

    @property
    def user(self) -> str:
        return f"{_ACCOUNT}{self.namespace}:{self.name}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the API server gives every service account."""
        return ("system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated")


def services_of(thing: Document) -> tuple[Author, ...]:
    """The services of a pod or an account, by its labels; none for those of the log and of the set-up."""
    component = ((thing.get("metadata") or {}).get("labels") or {}).get(COMPONENT, "")
    return SERVICES if component == ALL else tuple(each for each in SERVICES if each == component)


class Question(NamedTuple):
    """One review of a right, as a request."""

    who: str
    kind: str
    spec: dict[str, Any]
    headers: dict[str, str]


def itself(account: Account, right: Right) -> Question:
    """A review by the account about itself, which every account may ask for."""
    return Question(account.user, "SelfSubjectAccessReview", right.attributes(account.scope), {})


def of_it(account: Account, right: Right) -> Question:
    """A review about the account, by a person with the right to create SubjectAccessReviews."""
    spec = {"user": account.user, "groups": [*account.groups], **right.attributes(account.scope)}
    return Question(account.user, "SubjectAccessReview", spec, {})


def in_its_name(account: Account, right: Right) -> Question:
    """A review as the account, by a person with the right to impersonate it; the API server adds its groups."""
    return Question(
        account.user, "SelfSubjectAccessReview", right.attributes(account.scope), {"Impersonate-User": account.user}
    )


def own(me: str, *, scope: str, taking_over: bool) -> Account | None:
    """The account of this command, if it is a service account named after a service or after Muster."""
    if not me.startswith(_ACCOUNT):
        return None
    namespace, _, name = me.removeprefix(_ACCOUNT).partition(":")
    services = tuple(each for each in SERVICES if name == each or name.endswith(f"-{each}"))
    if not services and "muster" not in name:
        return None
    return Account(
        namespace=namespace, name=name, services=services or SERVICES, scope=scope, powers=Powers(taking_over)
    )


def accounts(
    listed: Iterable[Document], pods: Iterable[Document], *, home: str, scope: str, taking_over: bool
) -> list[Account]:
    """The accounts of an installation in the namespace `home`: by running pods, by labels, or by names.

    A running service reports its scope; an account without a running service has the `scope` that is given.
    """
    found: dict[str, Account] = {}
    for pod in pods:
        services, spec = services_of(pod), pod.get("spec") or {}
        name = spec.get("serviceAccountName", "")
        if services and name:
            said = environment(pod)
            found[name] = Account(
                namespace=home,
                name=name,
                services=services,
                scope=said.get(NAMESPACE, ""),
                powers=Powers.of(said, taking_over=taking_over),
            )
    for account in listed:
        name = (account.get("metadata") or {}).get("name", "")
        services = services_of(account) or tuple(each for each in SERVICES if each == name)
        if services and name not in found:
            found[name] = Account(namespace=home, name=name, services=services, scope=scope, powers=Powers(taking_over))
    return [found[name] for name in sorted(found)]


def environment(pod: Document) -> dict[str, str]:
    """The environment of a pod's containers: plain values, and the pod's namespace."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    told = {}
    for one in (one for each in containers for one in each.get("env") or ()):
        if "value" in one:
            told[one["name"]] = one["value"]
        elif ((one.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") == "metadata.namespace":
            told[one["name"]] = pod["metadata"]["namespace"]
    return told


def of_account(account: Account, kinds: Iterable[Framework]) -> list[Right]:
    """All rights that its services use, each once."""
    kinds = [*kinds]
    return list(
        dict.fromkeys(
            Right(need.verb, need.group, need.resource)
            for service in account.services
            for need in needs(service, account.scope, kinds, account.powers)
        )
    )


def findings(account: Account, kinds: Iterable[Framework], granted: Mapping[Right, bool] | None) -> list[Finding]:
    """`granted` has the API server's answer about each right; None if the review is forbidden."""
    kinds, who = [*kinds], f"{'/'.join(account.services)} ({account.user})"
    check = "rights." + ("all" if len(account.services) > 1 else account.services[0])
    where = f"in the namespace {account.scope}" if account.scope else "in the whole cluster"
    if granted is None:
        everywhere = f"-n {account.scope}" if account.scope else "--all-namespaces"
        return [
            unknown(
                check,
                f"{who}: you may neither create SubjectAccessReviews nor impersonate it, so its rights are not known",
                "run `muster doctor` as an administrator, or ask one at a time: "
                f"`kubectl auth can-i list pods {everywhere} --as={account.user}`",
            )
        ]
    vital = {
        Right(need.verb, need.group, need.resource)
        for service in account.services
        for need in necessary(service, kinds, account.powers)
    }
    missing = [right for right, may in granted.items() if not may]
    if not missing:
        return [ok(check, f"{who}: has all {len(granted)} rights {where}")]
    found = []
    selector = account.powers.namespaces if not account.scope else ()
    remedy = granting(account.scope, taking_over=account.powers.taking_over, selector=selector)
    if lacks := [right for right in missing if right in vital]:
        found.append(fail(check, f"{who}: may not {_told(lacks)} {where}", remedy))
    if lacks := [right for right in missing if right not in vital]:
        without = f"{who}: may not {_told(lacks)} {where}; it works without, and does less (docs/permissions.md)"
        found.append(warn(check, without, f"{remedy}, if that was not intended"))
    return found


def among_tenants(accounts: Iterable[Account], pods_of_jobs: Iterable[str]) -> list[Finding]:
    """The finding if the namespace of the accounts is that of jobs; `pods_of_jobs` are those that are there now."""
    shown = [*pods_of_jobs][:3]
    homes = sorted({each.namespace for each in accounts if shown or each.scope == each.namespace})
    why = f"has pods of jobs ({', '.join(shown)})" if shown else "is that of the jobs"
    return [
        warn(
            "rights.home",
            f"the namespace {home}, where the services' accounts are, {why}: a pod there may run under these accounts",
            "install Muster into a namespace of its own (docs/tenants.md)",
        )
        for home in homes
    ]


def no_accounts(home: str) -> Finding:
    return unknown(
        "rights.accounts",
        f"the namespace {home} has no service account of Muster, so no rights were checked",
        "name the namespace of the installation with --installation-namespace",
    )


def _told(rights: Sequence[Right]) -> str:
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verbs.setdefault(right.resource + (f".{right.group}" if right.group else ""), []).append(right.verb)
    return ", ".join(f"{'/'.join(each)} {resource}" for resource, each in verbs.items())


def of_namespaces(selector: Sequence[str], found: Sequence[str] | None, why: str = "") -> Finding:
    """Where jobs may begin; None if the namespaces may not be listed."""
    labels = ",".join(selector)
    if found is None:
        told = f"jobs begin in namespaces with {labels}; {why}"
        return unknown(NAMESPACES_CHECK, told, "ask a person who may list namespaces")
    if not found:
        remedy = labelling("NAMESPACE", selector)
        return warn(NAMESPACES_CHECK, f"no namespace has the labels {labels}, so no job begins", remedy)
    return ok(NAMESPACES_CHECK, f"jobs begin in the namespaces with {labels}: {names(found)}")
