"""The accounts of the services and of readers: in Kubernetes with their roles, and at an administrator's NATS servers.

Made from `shared.installation.permissions`.  Pure, except for `python -m muster.permissions`, which writes
`deploy/rbac/`, the rules and policies of the Helm chart and its users at NATS; `tests/security/` compares them with the
calls of the services.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from muster import policies
from muster.crds import PlainYaml
from shared.cluster.scope import OPTED_IN
from shared.eventlog.account import ACCOUNT, SUBSCRIBER, USERS, Copy, accounts, accounts_of_copies
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.history_api import GROUP, PARTS, PEOPLE, PLURAL
from shared.installation import admission
from shared.installation.permissions import USUAL, Need, Powers, needs, set_up
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
JOBS = "team-a"
"""The one namespace of jobs in `deploy/rbac/namespace/`."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""The pod security level of that namespace, which the image meets; the Kustomize base has the same."""
CHART = "deploy/helm/muster/files/rules.yaml"
POLICIES = "deploy/helm/muster/files/policies.yaml"
"""The paths from the root of the repository."""
HEADER = "# Written by `python -m muster.permissions`; a change here would be overwritten.\n"
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
    """A service's rights as RBAC rules, without wildcards; resources with the same verbs are in one rule.

    No rule names objects: a job's objects are named after it, and RBAC cannot compare the names of creates and lists.
    """
    return _together(needs(service, namespace, kinds, powers))


def _together(wanted: Iterable[Need]) -> list[Document]:
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


def setup_rules() -> list[Document]:
    """The rules of `muster setup`, always for the whole cluster, because definitions are cluster-scoped."""
    [(group, resource)] = {(right.group, right.resource) for right in set_up()}
    definitions = {"apiGroups": [group], "resources": [resource]}
    ours = [right for right in set_up() if right.name]
    return [
        {**definitions, "verbs": [right.verb for right in set_up() if not right.name]},
        {
            **definitions,
            "resourceNames": sorted({right.name for right in ours}),
            "verbs": sorted({right.verb for right in ours}),
        },
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


def of_chart() -> str:
    """The rules of the Helm chart's roles, by service and for `all` in one process.

    Those that are always needed, and those for taking over, for commands in launchers, for ssh keys, for Kueue, for
    gangs, for reports of progress and for selecting namespaces.
    """
    return HEADER + yaml.dump(
        {
            variant: {
                "always": _by_service(namespace) | ({} if namespace else {"history": HISTORY_RULES}),
                "takeOver": _by_service(namespace, _FEWEST._replace(taking_over=True)),
                "exec": _by_service(namespace, _FEWEST._replace(commands=True)),
                "ssh": _by_service(namespace, _FEWEST._replace(keys=True)),
                "gangs": _by_service(namespace, _FEWEST._replace(gangs=True)),
            }
            | ({} if namespace else {"kueue": _by_service(namespace, _FEWEST._replace(kueue=True))})
            | ({} if namespace else {"progress": _by_service(namespace, _FEWEST._replace(reports=True))})
            | ({} if namespace else {"selecting": _by_service(namespace, _FEWEST._replace(namespaces=OPTED_IN))})
            for variant, namespace in (("cluster", ""), ("namespace", JOBS))
        }
        | {"setup": setup_rules(), "view": VIEW_RULES, "people": PEOPLE_RULES},
        Dumper=PlainYaml,
        sort_keys=False,
    )


_FEWEST = Powers(commands=False, keys=False)


def _by_service(namespace: str, powers: Powers = _FEWEST) -> dict[str, list[Document]]:
    """The rules that are always needed, or those that more powers add to them."""
    wanted: dict[str, list[Need]] = {}
    for service in SERVICE_ACCOUNTS:
        least, all_ = needs(service, namespace, powers=_FEWEST), needs(service, namespace, powers=powers)
        wanted[service] = least if powers == _FEWEST else [need for need in all_ if need not in least]
    everything = [need for found in wanted.values() for need in found]
    return {service: _together(found) for service, found in {**wanted, "all": everything}.items()}


def policies_of_chart() -> str:
    """The parts of the chart's policies; its values have the rest."""
    components = {**policies.accounts(), "all": SERVICE_ACCOUNTS}
    return HEADER + yaml.dump(
        {
            "kinds": admission.labels_of_pods(BUILT_IN),
            "jobs": admission.plurals(BUILT_IN),
            "matchConstraints": admission.MATCH,
            "variables": [*admission.VARIABLES],
            "requesters": policies.spec_of_requesters(BUILT_IN),
            "closed": admission.CLOSED,
            "refusals": {component: admission.refusal(serves) for component, serves in components.items()},
            "stranger": admission.STRANGER,
            "validations": admission.VALIDATIONS,
            "audit": policies.spec_of_audit(BUILT_IN),
        },
        Dumper=PlainYaml,
        sort_keys=False,
    )


def main() -> None:
    files = {
        f"deploy/rbac/{variant}/{name}": text
        for variant, namespace in (("cluster", ""), ("namespace", JOBS))
        for name, text in render(namespace).items()
    }
    files |= {CHART: of_chart(), POLICIES: policies_of_chart(), NAMESPACE: render_namespace()}
    files |= {CONF: render_users(), COPIES_CONF: render_copies()}
    for path, text in files.items():
        Path(path).write_text(text)


CONF = "deploy/helm/muster/files/nats-users.conf"
COPIES_CONF = "deploy/helm/muster/files/nats-copies.conf"
NAMESPACE = "deploy/helm/muster/files/nats-namespace.json"
_PLACE = "NAMESPACE"
"""Stands for the namespace, and in the variable of the password for its name there."""

_HEAD = """\
# Written by `python -m muster.permissions`; a change here would be overwritten.
# Goes into the configuration of {server} as it is: each user is in an account of its own, which imports
# what that user may reach.
# NATS reads the passwords as configuration text, so each variable has quotes in it: WATCHER_PASSWORD="'secret'";
# without them a password of digits would be a number.
accounts: {{
"""


def render_users() -> str:
    """One line for each account; the passwords are environment variables."""
    return _rendered("the log's server", accounts(_passwords(USERS)), USERS)


def render_copies() -> str:
    """The accounts of the copies' server, with a place for what each namespace adds."""
    text = _rendered("the copies' server", accounts_of_copies(_passwords([SUBSCRIBER])), [SUBSCRIBER])
    return text.replace('"imports": [', '"imports": [\n    # imports of namespaces\n    ', 1)


def render_namespace() -> str:
    """What each namespace with a subscriber adds there: to the account of the relay, and further accounts."""
    before = accounts_of_copies(_passwords([SUBSCRIBER]))
    table = accounts_of_copies(_passwords([SUBSCRIBER, Copy(_PLACE).user]))
    added = {
        "imports": [each for each in table[ACCOUNT]["imports"] if each not in before[ACCOUNT]["imports"]],
        "accounts": {name: found for name, found in table.items() if name not in before},
    }
    return json.dumps(added) + "\n"


def variable(user: str) -> str:
    """The environment variable with the user's password, in single quotes."""
    return f"{user.upper().replace('-', '_')}_PASSWORD"


def _passwords(users: Iterable[str]) -> dict[str, str]:
    return {user: f"${variable(user)}" for user in users}


def _rendered(server: str, table: Mapping[str, Any], users: Iterable[str]) -> str:
    lines = "".join(f"  {name}: {json.dumps(found)}\n" for name, found in table.items())
    for user in users:
        lines = lines.replace(f'"${variable(user)}"', f"${variable(user)}")
    return f"{_HEAD.format(server=server)}{lines}}}\n"


if __name__ == "__main__":
    main()
