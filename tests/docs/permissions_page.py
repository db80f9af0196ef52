"""The page of the rights of each service, `docs/permissions.md`, from `shared/installation/permissions.py`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from muster.permissions import SERVICE_ACCOUNTS
from shared.eventlog.account import AUDIT, AUTHORS, HISTORY, READER, SUBSCRIBER, asks, listens, publishes
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import GROUP
from shared.installation.permissions import PERMISSIONS, Jobs, Permission
from shared.job.events.event import Author

PAGE = """\
# What each service may do

Every service has a service account, a role and a user at the log, and they allow what its calls need and nothing else.
This page is written by `make pages` from the table that the manifests are made from.
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
So a role lets the scaler, which writes two annotations of the launcher and runs a request's script in it, patch any pod
in its scope and run commands in it.
[Admission policies](tenants.md#what-musters-own-accounts-may-write) restrict that to the objects of jobs.
Reading is restricted by roles alone, and no service may read a Secret.
The owner references that the scheduler and the scaler write hold up the deletion of their owner.
Where the admission plugin `OwnerReferencesPermissionEnforcement` is on, that asks for the right to update the owner's
finalizers, and changing the owners of a request asks for the right to delete the request.
That last one gives nothing away: who may change an object's owners can have the garbage collector delete it.

## In one namespace

`MUSTER_NAMESPACE` restricts the services to one namespace.
Roles are enough then: `muster rbac --namespace team-a` prints them, as `deploy/rbac/namespace/` has them.
The accounts are in another namespace, `muster` or that of `--home`: who may make a pod beside them may run it under one
of them, so that the namespace of the jobs itself is refused.
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
Streams and buckets are in the account `LOG`, and so is the administrator, who alone creates, changes, purges or deletes
one of them, or deletes a message.
Each other user is in an account of its own, which has no JetStream and reaches of `LOG` what stands here, and nothing
else: the answer to a request stays in the account of the user who asked, so that no answer becomes an event.
No service and no reader makes a consumer, or anything else, at the server.
A [subscriber](events.md) makes consumers of a copy of the log, in the account `COPY`; no user is in that account.
`subscriber-team-a` is the same with the copy of the namespace `team-a`, in the account `COPY-team-a`.
`history` is the history service, which reads as a reader does.

| user | publishes to | listens to |
| --- | --- | --- |
{users}

All of them but `subscriber`, and `audit` those of the stream `JOBS` alone, may ask these questions of JetStream:

{questions}

`subscriber` may ask these, all but the first of the copy:

{copied}

Where the log is shared, an administrator can narrow `facts.*` and `jobs.*` to the one namespace of an installation.
"""


def page() -> str:
    """`docs/permissions.md`."""
    tables = "\n".join(_table(service) for service in SERVICE_ACCOUNTS)
    users = "\n".join(
        _row(f"`{user}`", _codes(publishes(user)), _codes(listens(user)))
        for user in (*AUTHORS, READER, SUBSCRIBER, HISTORY, AUDIT)
    )
    questions, copied = ("\n".join(f"- `{subject}`" for subject in asks(user)) for user in (READER, SUBSCRIBER))
    kinds = "\n".join(
        _row(
            _code(kind.resource.plural, kind.resource.group),
            "yes" if kind.has_hosts_files else "",
            "yes" if kind.definition.expires else "",
        )
        for kind in BUILT_IN
    )
    return PAGE.format(group=GROUP, kinds=kinds, tables=tables, users=users, questions=questions, copied=copied)


def _table(service: Author) -> str:
    rows = [
        _row(
            ", ".join(permission.verbs)
            + (" (taking over)" if permission.taking_over else " (Kueue)" if permission.kueue else ""),
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


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "permissions.md").write_text(page())


if __name__ == "__main__":
    main()
