"""The page of the rights of each service, `docs/permissions.md`, from `shared/installation/permissions.py`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from muster.permissions import SERVICE_ACCOUNTS
from services.audit.server import HTTPS as AUDIT_PORT
from services.history.server import HTTPS as HISTORY_PORT
from services.watcher.progress import HTTPS as PROGRESS_PORT
from shared.eventlog.account import (
    AUDIT,
    AUTHORS,
    HISTORY,
    MAX_CONNECTIONS,
    READER,
    SERVICE_CONNECTIONS,
    SUBSCRIBER,
    asks,
    listens,
    publishes,
)
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import GROUP
from shared.installation.permissions import PERMISSIONS, Jobs, Permission
from shared.job.events.event import Author
from shared.process.bounds import PIECE, SLOW_SECONDS
from shared.process.http import STRANGERS_BYTES
from shared.process.serving import HEALTH

PAGE = """\
# What each service may do

Every service has a service account, a role and a user at the log, which allow what its calls need. `make pages` writes
this page; tests hold the rights to the audit log of a real API server.

## In Kubernetes

`deploy/rbac/cluster/`, or `muster rbac`, grants this to accounts in the namespace `muster`; the chart brings its own
(`rbac.extraRules` for kinds of other packages). Requests are of the group `{group}`; a name without a group is
Kubernetes' core. "Every kind" are these:

| kind of job | with hosts files | with a time to live |
| --- | --- | --- |
{kinds}

Rights for taking over are in no role by default (`muster rbac --take-over`; `takeOver` in the chart), and those for
selecting namespaces come with a [selector](tenants.md#where-muster-works).

{tables}
Roles name no single objects: [admission policies](tenants.md#what-musters-own-accounts-may-write) restrict writing to
the objects of jobs. No service may read a Secret.
Some rights on finalizers and on the deletion of requests are for the plugin `OwnerReferencesPermissionEnforcement`.

## In one namespace

`MUSTER_NAMESPACE` restricts the services to one namespace; Roles are enough then (`muster rbac --namespace team-a`,
`deploy/rbac/namespace/`). An administrator installs the definitions and makes the namespace, and the accounts are in
another one. Installations for several namespaces can share a log; one for the whole cluster beside another is refused.

## At the log

Each user at NATS is in an account of its own, without JetStream, and reaches in the account `LOG` what stands here.
The administrator alone creates, changes, purges or deletes streams. A service has at most {ours} connections, another
user {connections}.
`copies` is the copies' server: it may connect as a leaf node alone, gets the events and resets its own feed.
`subscriber` and `subscriber-team-a` (with the copy of `team-a`) are users of that server, and unknown to the log's.

| user | publishes to | listens to |
| --- | --- | --- |
{users}

All but `subscriber`, and `audit` those of the stream `JOBS` alone, may ask JetStream:

{questions}

`subscriber` may ask these, all but the first of the copy:

{copied}

An administrator can narrow `facts.*` and `jobs.*` to one namespace.

## Who reaches a port

The budget of a port counts before TLS and HTTP, for all of its clients: a client without a credential uses up no more.
When no place is free, the oldest connection of the address with the most makes room, so that a probe always gets in.
As many again wait for a place, as mere sockets. A network is 64 bits of IPv6.
A client that showed who it is counts for no address, and its head may be longer: what a person asks through
kube-apiserver counts for that person.

| port | reached by | places, unknown, of an address, a network | head, until known, body: bytes | seconds for a head |
| --- | --- | --- | --- | --- |
{ports}

Compressed bodies are refused, and bodies where there are none. A client that takes less than {piece} bytes of its
answer in {slow:.0f} s is cut off.
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
    ports = "\n".join(
        _row(
            f"`{each.port}`",
            each.reached_by,
            f"{each.connections}, {each.strangers}, {each.of_one}, {each.of_network}",
            f"{each.head_bytes}, {min(each.head_bytes, STRANGERS_BYTES)}, {each.body_bytes}",
            f"{each.head_seconds:.0f}",
        )
        for each in (HEALTH, HISTORY_PORT, AUDIT_PORT, PROGRESS_PORT)
    )
    words = {"kinds": kinds, "tables": tables, "users": users, "questions": questions, "copied": copied}
    return PAGE.format(
        connections=MAX_CONNECTIONS,
        ours=SERVICE_CONNECTIONS,
        group=GROUP,
        ports=ports,
        piece=PIECE,
        slow=SLOW_SECONDS,
        **words,
    )


def _table(service: Author) -> str:
    rows = [
        _row(
            ", ".join(permission.verbs)
            + (
                " (taking over)"
                if permission.taking_over
                else " (Kueue)"
                if permission.kueue
                else " (gangs)"
                if permission.gangs
                else " (selecting)"
                if permission.selecting
                else " (progress)"
                if permission.reports
                else ""
            ),
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
