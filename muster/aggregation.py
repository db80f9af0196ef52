"""The objects with which a cluster serves `history.muster.dev`: the API, its Service, and the rights.  Pure.

`python -m muster.permissions` writes the rights for the chart.
"""

from base64 import b64encode
from typing import Any

from shared.history_api import GROUP, PARTS, PLURAL, VERSION

NAME = "muster-history"
"""The Service, and in the chart all that belongs to it."""
ROLE = "muster:history"
VIEW = "muster-view"
RBAC = "rbac.authorization.k8s.io"
API_SERVICE = f"{VERSION}.{GROUP}"
PORT = 443

Document = dict[str, Any]

RULES: list[Document] = [
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
]
"""The rights of the service: it asks kube-apiserver what a reader may."""

VIEW_RULES: list[Document] = [
    {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get", "list"]},
    {"apiGroups": [GROUP], "resources": [f"{PLURAL}/{part}" for part in PARTS], "verbs": ["get"]},
]
"""The rights of who may read the histories of a namespace."""


def rights(account: str, home: str) -> list[Document]:
    """The role of the service, and that of its readers, which the cluster adds to `view`, `edit` and `admin`."""
    account_of = [{"kind": "ServiceAccount", "name": account, "namespace": home}]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": home}},
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


def api(home: str, authority: bytes, service: Document, port: int = PORT) -> list[Document]:
    """The Service of this spec, and the API that is asked there, whose certificate `authority` has issued."""
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": home}, "spec": service},
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {"name": NAME, "namespace": home, "port": port},
                "caBundle": b64encode(authority).decode(),
                "groupPriorityMinimum": 1000,
                "versionPriority": 10,
            },
        },
    ]


def server_name(home: str) -> str:
    """The name that kube-apiserver expects in the service's certificate."""
    return f"{NAME}.{home}.svc"


def _rbac(kind: str, name: str, *, namespace: str = "", labels: Document | None = None, **content: Any) -> Document:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **content}


def _role(kind: str, name: str) -> Document:
    return {"apiGroup": RBAC, "kind": kind, "name": name}
