"""The rights for `history.muster.dev`: those of the history service, and those of its readers.  Pure.

`muster rbac --history` prints them; `python -m muster.permissions` writes the rules of the chart's roles.
"""

from typing import Any

from shared.history_api import GROUP, PARTS, PLURAL

ACCOUNT = "history"
ROLE = "muster:history"
VIEW = "muster:view"
"""The names of the roles; the chart uses other names, so that both can be applied."""
RBAC = "rbac.authorization.k8s.io"

Document = dict[str, Any]

RULES: list[Document] = [
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
]
"""The rights of the service: it asks kube-apiserver what a reader may."""

VIEW_RULES: list[Document] = [
    {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [GROUP], "resources": [f"{PLURAL}/{part}" for part in PARTS], "verbs": ["get"]},
]
"""The rights of who may read the histories of a namespace."""


def rights(home: str) -> list[Document]:
    """The account and role of the service, and the role of its readers, which the cluster adds to `view`."""
    account_of = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": home}},
        _rbac("ClusterRole", ROLE, rules=RULES),
        _rbac("ClusterRoleBinding", ROLE, roleRef=_role("ClusterRole", ROLE), subjects=account_of),
        _rbac(
            "RoleBinding",
            ROLE,
            namespace="kube-system",
            roleRef=_role("Role", "extension-apiserver-authentication-reader"),
            subjects=account_of,
        ),
        _rbac("ClusterRole", VIEW, labels={f"{RBAC}/aggregate-to-view": "true"}, rules=VIEW_RULES),
    ]


def _rbac(kind: str, name: str, *, namespace: str = "", labels: Document | None = None, **content: Any) -> Document:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **content}


def _role(kind: str, name: str) -> Document:
    return {"apiGroup": RBAC, "kind": kind, "name": name}
