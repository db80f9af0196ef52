"""The service accounts and roles of the services, and the page about them, made from `shared.installation.permissions`.

Pure, but for `python -m muster.permissions`, which writes `deploy/rbac/`, the rules of the Helm chart and its users at
NATS, and `docs/permissions.md`; `tests/security/` holds them to what the services really ask.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from muster.nats_users import CONF, render_users
from shared.eventlog.subjects import AUTHORS, READER, asks, listens, publishes
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import GROUP
from shared.installation.permissions import PERMISSIONS, Jobs, Need, Permission, needs, set_up
from shared.job.events.event import Author

HOME = "muster"
"""The namespace of the service accounts."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""What that namespace asks of pods, which the image fulfils; the Kustomize base makes the same one."""
RBAC = "rbac.authorization.k8s.io"
CHART = "deploy/helm/muster/files/rules.yaml"
"""From the root of the repository."""
HEADER = "# Written by `python -m muster.permissions`; a change here would be overwritten.\n"

PAGE = """\
# What each service may do

Every service has a service account, a role and a user at the log, and they allow what its calls need and nothing else.
This page is written by `python -m muster.permissions` from the table that the manifests are made from.
The tests hold the table to the audit log of a real API server: over all end-to-end tests no call of a service is
refused, each is allowed by that service's own role, and no right stays unused.

## In Kubernetes

`deploy/rbac/cluster/` grants this in the whole cluster, to accounts in the namespace `muster`.
`muster rbac` prints the same, and besides it the rights for the kinds of job that other packages bring along.
Its roles are called `muster:watcher` and so on, which the Helm chart calls none: applied beside a chart they change
nothing of it, and give nothing to its accounts, whose rights come with its release (`rbac.extraRules` for other kinds).
Requests are of the group `{group}`, what else has no group is Kubernetes' core.

What is said of every kind of job holds for each of these:

| kind of job | with hosts files | with a time to live |
| --- | --- | --- |
{kinds}

The rights for taking over are in no role by default: `muster rbac --take-over` prints what `MUSTER_TAKE_OVER` needs
while it is set; in the chart `takeOver` sets both.

Of a kind whose definition is not installed nothing is asked: its rights lie idle until it is.
Where it never will be, they can be taken out of the roles.

{tables}
Besides, every service asks what is served and what it may do itself; Kubernetes allows that to everybody it knows
(`system:discovery`, `system:basic-user`).

No rule names single objects: a job's are named after the job, and creating or listing has no name to compare.
So the scaler, which writes one annotation of the launcher and runs a request's script in it, may patch any pod in its
scope and run commands in it, and the watcher and the scheduler may read any Secret there; the narrower scope is a
namespace.
Of Secrets both ask for the metadata alone, so that no key of anybody is ever sent to them.
The owner references that the scheduler and the scaler write hold up the deletion of their owner.
Where the admission plugin `OwnerReferencesPermissionEnforcement` is on, that asks for the right to update the owner's
finalizers, and changing the owners of a request asks for the right to delete the request.
That last one gives nothing away: who may change an object's owners can have the garbage collector delete it.

## In one namespace

`MUSTER_NAMESPACE` restricts the services to one namespace.
Roles are enough then: `muster rbac --namespace team-a` prints them, with the accounts in the same namespace;
`deploy/rbac/namespace/` holds them for the namespace `muster`.
The definitions of our kinds belong to the whole cluster, and so does a namespace: an administrator installs the
first and makes the second.

Nodes belong to no namespace: their role says nothing of them.

The services then list, watch and get in that namespace only, read only that namespace's events of the log, and hold
leases of their own (`watcher.team-a`), so that installations for several namespaces can share a log.
An installation for the whole cluster beside one for a namespace would act on the same jobs twice: `muster setup`
refuses the second one.
Claims in the definitions, which services of a whole cluster read and those of a namespace may not, keep two logs apart.
On one log leases do: each service may read all of them, and is not ready while one of its kind with the other scope
(`watcher` beside `watcher.team-a`) holds its own.

## At the log

Each service has a user at NATS, and writes as the author that it is.
Only the administrator creates, changes, purges or deletes a stream or a bucket, or deletes a message.

| user | publishes to | listens to |
| --- | --- | --- |
{users}

All of them may ask these questions of JetStream:

{questions}

Where the log is shared, an administrator can narrow `facts.*` and `jobs.*` to the one namespace of an installation.
"""

Document = dict[str, Any]

SERVICE_ACCOUNTS: tuple[Author, ...] = ("watcher", "scheduler", "scaler", "status")


def rules(
    service: Author, namespace: str = "", kinds: Iterable[Framework] = BUILT_IN, *, taking_over: bool = False
) -> list[Document]:
    """They as RBAC rules: no wildcard, and resources with the same verbs together.

    No rule names objects: those of a job are named after it, and a create or list has no name to compare.
    """
    return _together(needs(service, namespace, kinds, taking_over=taking_over))


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
    """Those of `muster setup`, always for the whole cluster: definitions belong to no namespace."""
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
    """Of the role and its binding: a name that the chart never gives, as applying both must not change either."""
    return f"muster:{service}"


def manifests(
    service: Author, namespace: str = "", kinds: Iterable[Framework] = BUILT_IN, *, taking_over: bool = False
) -> list[Document]:
    """The service account, the role and the binding; in one `namespace` alone, or for the whole cluster without it."""
    scope = "" if namespace else "Cluster"
    home = namespace or HOME
    name = role(service)
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": service, "namespace": home}},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{scope}Role",
            "metadata": dict(metadata),
            "rules": rules(service, namespace, kinds, taking_over=taking_over),
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{scope}RoleBinding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": RBAC, "kind": f"{scope}Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": service, "namespace": home}],
        },
    ]


def render(namespace: str = "", kinds: Iterable[Framework] = BUILT_IN, *, taking_over: bool = False) -> dict[str, str]:
    """The manifests as files by name; in this order, which is that of `kubectl apply -f`, the namespace comes first."""
    kinds = [*kinds]
    files: dict[str, list[Document]] = {
        service: manifests(service, namespace, kinds, taking_over=taking_over) for service in SERVICE_ACCOUNTS
    }
    if not namespace:
        # An administrator of one namespace cannot create it.
        files["namespace"] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME, "labels": RESTRICTED}}
        ]
    return {f"{name}.yaml": HEADER + _yaml(found) for name, found in sorted(files.items())}


def of_chart() -> str:
    """The rules of the Helm chart's roles by service, and of `all` in one process; those for taking over apart."""
    return HEADER + yaml.dump(
        {
            variant: {"always": _by_service(namespace), "takeOver": _by_service(namespace, beyond=True)}
            for variant, namespace in (("cluster", ""), ("namespace", HOME))
        }
        | {"setup": setup_rules()},
        Dumper=_Plain,
        sort_keys=False,
    )


def _by_service(namespace: str, *, beyond: bool = False) -> dict[str, list[Document]]:
    """What is always needed, or `beyond` that only for taking over."""
    wanted: dict[str, list[Need]] = {}
    for service in SERVICE_ACCOUNTS:
        usual = needs(service, namespace)
        more = needs(service, namespace, taking_over=True)
        wanted[service] = [need for need in more if need not in usual] if beyond else usual
    everything = [need for found in wanted.values() for need in found]
    return {service: _together(found) for service, found in {**wanted, "all": everything}.items()}


class _Plain(yaml.SafeDumper):
    """What is said twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def page() -> str:
    """`docs/permissions.md`."""
    tables = "\n".join(_table(service) for service in SERVICE_ACCOUNTS)
    users = "\n".join(_row(f"`{user}`", _codes(publishes(user)), _codes(listens(user))) for user in (*AUTHORS, READER))
    questions = "\n".join(f"- `{subject}`" for subject in asks(READER))
    kinds = "\n".join(
        _row(
            _code(kind.resource.plural, kind.resource.group),
            "yes" if kind.has_hosts_files else "",
            "yes" if kind.definition.expires else "",
        )
        for kind in BUILT_IN
    )
    return PAGE.format(group=GROUP, kinds=kinds, tables=tables, users=users, questions=questions)


def _table(service: Author) -> str:
    rows = [
        _row(
            ", ".join(permission.verbs) + (" (taking over)" if permission.taking_over else ""),
            _objects(permission),
            permission.call,
        )
        for permission in PERMISSIONS
        if permission.service == service
    ]
    return "\n".join([f"### {service}", "", _row("may", "on", "because"), _row(*["---"] * 3), *rows, ""])


def _objects(permission: Permission) -> str:
    tail = f"/{permission.subresource}" if permission.subresource else ""
    return ", ".join(
        (f"`{tail}` of " if tail else "") + at.value
        if isinstance(at, Jobs)
        else _code(at.plural + tail, "" if at.group == GROUP else at.group)
        for at in permission.resources
    )


def _code(plural: str, group: str) -> str:
    return f"`{plural}.{group}`" if group else f"`{plural}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _codes(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "nothing"


def _yaml(documents: list[Document]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = {
        f"deploy/rbac/{variant}/{name}": text
        for variant, namespace in (("cluster", ""), ("namespace", HOME))
        for name, text in render(namespace).items()
    }
    files |= {CHART: of_chart(), CONF: render_users(), "docs/permissions.md": page()}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


if __name__ == "__main__":
    main()
