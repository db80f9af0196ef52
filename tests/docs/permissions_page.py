"""The page of the rights of each service, `docs/permissions.md`, from `shared/installation/permissions.py`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from muster.page.server import UI
from muster.page.viewers import HTTPS as PAGE_PORT
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

Of its service account, and of its user at the log. `make pages` writes this page.

## In Kubernetes

`deploy/rbac/cluster/`, or `muster rbac`, grants this to accounts in the namespace `muster`, as does the chart
(`rbac.extraRules` for kinds of other packages). A name without a group is Kubernetes' core, or of `{group}`.

{kinds}

In brackets is what for. "With" names the setting that a right needs: a take-over (`takeOver` in the chart), a selector
of [namespaces](tenants.md#where-muster-works), [Kueue](kueue.md), [gangs](gangs.md), [progress](progress.md). "The
plugin" is the admission plugin `OwnerReferencesPermissionEnforcement`.

{tables}
[Admission policies](tenants.md#what-musters-own-accounts-may-write) restrict writing to the objects of jobs. No service
may read a Secret.

## In one namespace

With `MUSTER_NAMESPACE` Roles are enough (`muster rbac --namespace team-a`, `deploy/rbac/namespace/`), for accounts in
another namespace. Such installations can share a log; one for the whole cluster beside another is refused.

## At the log

Each user at NATS is in an account of its own, without JetStream, and reaches in the account `LOG` what stands here
(USER is its name). The administrator alone creates, changes, purges or deletes streams. A service has at most {ours}
connections, another user {connections}.
`copies` is the copies' server, a leaf node: it gets the events and resets its own feed.
`subscriber` and `subscriber-team-a` are users of that server alone.

{users}

All but `subscriber`, and `audit` those of the stream `JOBS` alone, may ask JetStream: {questions}.

`subscriber` may ask of its copy: {copied}.

An administrator can narrow `facts.*` and `jobs.*` to one namespace.

## Who reaches a port

Each port has a budget before TLS and HTTP. When no place is free, the oldest connection of the address with the most
makes room. As many again wait for a place, as mere sockets. A network is 64 bits of IPv6. A client that showed who it
is counts for no address; in brackets are the bytes of another one's head.

{ports}

Compressed bodies are refused, and bodies where there are none. A client has {head:.0f} s for a head, and is cut off if
it takes less than {piece} bytes of its answer in {slow:.0f} s.
"""


def page() -> str:
    """`docs/permissions.md`."""
    tables = "\n".join(["### Each of them", "", *_common(), "", *(_list(service) for service in SERVICE_ACCOUNTS)])
    patterns: dict[tuple[str, str], list[str]] = {}
    for user in (*AUTHORS, READER, SUBSCRIBER, HISTORY, AUDIT):
        # The same words for all whose subjects differ by their own name alone.
        words = _codes(publishes(user)), _codes(listens(user))
        patterns.setdefault((words[0].replace(user, "USER"), words[1].replace(user, "USER")), []).append(user)
    users = "\n".join(f"- {_codes(named)}: publish to {to}; listen to {at}" for (to, at), named in patterns.items())
    questions, copied = (_subjects(asks(user)) for user in (READER, SUBSCRIBER))
    every = {
        "Every kind of job": BUILT_IN,
        "With hosts files": [kind for kind in BUILT_IN if kind.has_hosts_files],
        "With a time to live": [kind for kind in BUILT_IN if kind.definition.expires],
    }
    kinds = "\n".join(
        f"- {title}: {', '.join(_code(kind.resource.plural, kind.resource.group) for kind in among)}"
        for title, among in every.items()
    )
    all_ports = (HEALTH, HISTORY_PORT, AUDIT_PORT, PROGRESS_PORT, PAGE_PORT, UI)
    (head,) = {each.head_seconds for each in all_ports}
    ports = "\n".join(
        f"- `{each.port}`, reached by {each.reached_by}: {each.connections} places, unknown "
        f"{each.strangers}, an address {each.of_one}, a network {each.of_network}; head {each.head_bytes} "
        f"({min(each.head_bytes, STRANGERS_BYTES)}), body {each.body_bytes}"
        for each in all_ports
    )
    words = {"kinds": kinds, "tables": tables, "users": users, "questions": questions, "copied": copied}
    return PAGE.format(
        connections=MAX_CONNECTIONS,
        ours=SERVICE_CONNECTIONS,
        group=GROUP,
        ports=ports,
        head=head,
        piece=PIECE,
        slow=SLOW_SECONDS,
        **words,
    )


def _list(service: Author) -> str:
    lines = [line for line in _lines(service) if line not in _common()]
    return "\n".join([f"### {service}", "", *lines, ""])


def _common() -> list[str]:
    """The lines that all services have."""
    first, *others = (_lines(service) for service in SERVICE_ACCOUNTS)
    return [line for line in first if all(line in other for other in others)]


def _lines(service: Author) -> list[str]:
    """A line for each group of objects: what may be done with them, and for what."""
    rights: dict[tuple[str, str], list[str]] = {}
    for each in PERMISSIONS:
        if each.service == service:
            rights.setdefault((", ".join(each.verbs) + _setting(each), each.call), []).append(_objects(each))
    lines: dict[str, list[str]] = {}
    for (verbs, call), objects in rights.items():
        lines.setdefault(", ".join(objects), []).append(f"{verbs} ({call})")
    return [f"- {objects}: {', '.join(found)}" for objects, found in lines.items()]


_SETTINGS = {
    "taking_over": "a take-over",
    "kueue": "Kueue",
    "gangs": "gangs",
    "namespaces": "a selector",
    "reports": "progress",
}


def _setting(permission: Permission) -> str:
    return f" with {_SETTINGS[permission.only]}" if permission.only else ""


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


def _codes(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "nothing"


def _subjects(words: Iterable[str]) -> str:
    """Subjects that differ in their last token stand together: `A.{JOBS,ARCHIVE}`."""
    tails: dict[str, list[str]] = {}
    for word in words:
        head, dot, tail = word.rpartition(".")
        tails.setdefault(head + dot, []).append(tail)
    return _codes(head + (tail[0] if len(tail) == 1 else f"{{{','.join(tail)}}}") for head, tail in tails.items())


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "permissions.md").write_text(page())


if __name__ == "__main__":
    main()
