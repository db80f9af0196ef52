"""The accounts of the services and of readers in Kubernetes, with their roles.

Made from `shared.installation.permissions`.  Pure.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from muster import policies
from muster.crds import PlainYaml
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.history_api import GROUP, PARTS, PEOPLE, PLURAL
from shared.installation.permissions import USUAL, Need, Powers, needs
from shared.job.events.event import Author

HISTORY_ACCOUNT = "history"
HISTORY_ROLE = "muster:history"
VIEW = "muster:view"
VIEW_PEOPLE = "muster:view-people"
"""The names of the roles; the chart uses other names, so that both can be applied."""
RBAC = "rbac.authorization.k8s.io"

Document = dict[str, Any]

HISTORY_RULES: list[Document] = [
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
]
"""The rights of the service: it asks kube-apiserver what a reader may."""

VIEW_RULES: list[Document] = [
    {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [GROUP], "resources": [f"{PLURAL}/{part}" for part in PARTS], "verbs": ["get"]},
]
"""The rights of who may read the histories of a namespace."""
PEOPLE_RULES: list[Document] = [{"apiGroups": [GROUP], "resources": [f"{PLURAL}/{PEOPLE}"], "verbs": ["get"]}]
"""The right of who may know who made a change."""
HOME = "muster"
"""The namespace of the service accounts."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""The pod security level of that namespace, which the image meets; the Kustomize base has the same."""
HEADER = "# Written by `muster rbac`; a change here would be overwritten.\n"
SERVICE_ACCOUNTS: tuple[Author, ...] = ("watcher", "scheduler", "scaler", "status")


def history_rights(home: str) -> list[Document]:
    """The account and role of the service, and its readers' roles, which the cluster adds to `view` and `admin`."""
    account = {"name": HISTORY_ACCOUNT, "namespace": home}
    account_of = [{"kind": "ServiceAccount", **account}]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        _rbac("ClusterRole", HISTORY_ROLE, rules=HISTORY_RULES),
        _rbac("ClusterRoleBinding", HISTORY_ROLE, roleRef=_role("ClusterRole", HISTORY_ROLE), subjects=account_of),
        _rbac(
            "RoleBinding",
            HISTORY_ROLE,
            namespace="kube-system",
            roleRef=_role("Role", "extension-apiserver-authentication-reader"),
            subjects=account_of,
        ),
        _rbac("ClusterRole", VIEW, labels={f"{RBAC}/aggregate-to-view": "true"}, rules=VIEW_RULES),
        _rbac("ClusterRole", VIEW_PEOPLE, labels={f"{RBAC}/aggregate-to-admin": "true"}, rules=PEOPLE_RULES),
    ]


def _rbac(kind: str, name: str, *, namespace: str = "", labels: Document | None = None, **content: Any) -> Document:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **content}


def _role(kind: str, name: str) -> Document:
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def rules(
    service: Author,
    namespace: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    powers: Powers = USUAL,
) -> list[Document]:
    """A service's rights as RBAC rules, without wildcards.

    No rule names objects: a job's objects are named after it, and RBAC cannot compare the names of creates and lists.
    """
    return rules_of(needs(service, namespace, kinds, powers))


def rules_of(wanted: Iterable[Need]) -> list[Document]:
    """These rights as rules; resources with the same verbs are in one."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for need in wanted:
        verbs.setdefault((need.group, need.resource), set()).add(need.verb)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), allowed in verbs.items():
        together.setdefault((group, tuple(sorted(allowed))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(allowed)}
        for (group, allowed), resources in together.items()
    ]


def role(service: Author) -> str:
    """The name of the role and its binding; the chart uses other names, so that both can be applied."""
    return f"muster:{service}"


def manifests(
    service: Author,
    namespace: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    *,
    home: str = HOME,
    powers: Powers = USUAL,
) -> list[Document]:
    """The service account in `home`; the role and the binding for one `namespace`, or without it the whole cluster."""
    kind, name = "Role" if namespace else "ClusterRole", role(service)
    account = {"name": service, "namespace": home}
    binding: Document = {"roleRef": _role(kind, name), "subjects": [{"kind": "ServiceAccount", **account}]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        _rbac(kind, name, namespace=namespace, rules=rules(service, namespace, kinds, powers)),
        _rbac(f"{kind}Binding", name, namespace=namespace, **binding),
    ]


def render(
    namespace: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    *,
    home: str = HOME,
    powers: Powers = USUAL,
    with_policies: bool | None = None,
    with_requesters: bool = False,
    with_history: bool = False,
    with_audit: bool = False,
) -> dict[str, str]:
    """The manifests as files by name; `kubectl apply -f` applies them in this order, with the namespace first.

    With `with_policies` the policies are among them, by default only of an installation for the whole cluster: policies
    belong to no namespace, and an administrator of a namespace cannot create them.  `with_requesters` adds the one for
    who creates jobs, `with_history` the rights for `history.muster.dev`, `with_audit` what the audit service needs.
    """
    kinds = [*kinds]
    files: dict[str, list[Document]] = {
        service: manifests(service, namespace, kinds, home=home, powers=powers) for service in SERVICE_ACCOUNTS
    }
    if not namespace:
        # An administrator of a namespace cannot create the namespace.
        files["namespace"] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home, "labels": RESTRICTED}}
        ]
    if not namespace if with_policies is None else with_policies:
        files["policies"] = policies.manifests(policies.accounts(), home, scope=namespace, kinds=kinds, powers=powers)
    if with_history:
        files["history"] = history_rights(home)
    if with_audit:
        files["audit"] = policies.of_audit(home, kinds)
    if with_requesters:
        files["requesters"] = policies.of_requesters(home, kinds)
    return {
        f"{name}.yaml": HEADER + yaml.dump_all(files[name], Dumper=PlainYaml, sort_keys=False) for name in sorted(files)
    }
