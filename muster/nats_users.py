"""The accounts and users of an administrator's own NATS server, as a part of its configuration.

Pure; made from `shared.eventlog.account`.  `python -m muster.permissions` writes it into the chart, whose NATS server
has the same accounts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from shared.eventlog.account import ACCOUNT, USERS, Copy, accounts

CONF = "deploy/helm/muster/files/nats-users.conf"
NAMESPACE = "deploy/helm/muster/files/nats-namespace.json"
_PLACE = "NAMESPACE"
"""Stands for the namespace, and in the variable of the password for its name there."""

_HEAD = """\
# Written by `python -m muster.permissions`; a change here would be overwritten.
# Goes into the server's configuration as it is: JetStream and the administrator are in the account LOG, each other user
# is in an account of its own, which imports what that user may reach.
# NATS reads the passwords as configuration text, so each variable has quotes in it: WATCHER_PASSWORD="'secret'";
# without them a password of digits would be a number.
accounts: {
"""


def render_users() -> str:
    """One line for each account; the passwords are environment variables."""
    table = _accounts(USERS)
    lines = "".join(f"  {name}: {json.dumps(table[name])}\n" for name in table)
    for kind in ("exports", "imports"):
        # What the log's account has for a namespace goes there.
        lines = lines.replace(f'"{kind}": [', f'"{kind}": [\n    # {kind} of namespaces\n    ', 1)
    return f"{_HEAD}{_with_variables(lines, USERS)}}}\n"


def render_namespace() -> str:
    """What each namespace with a subscriber of its own adds: to the log's account, and further accounts."""
    reader = Copy(_PLACE).user
    before, table = _accounts(USERS), _accounts((*USERS, reader))
    known = {json.dumps(each) for each in before[ACCOUNT]["imports"]}
    added = {
        "exports": list(_added(before[ACCOUNT]["exports"], table[ACCOUNT]["exports"])),
        "imports": [each for each in table[ACCOUNT]["imports"] if json.dumps(each) not in known],
        "accounts": {name: found for name, found in table.items() if name not in before},
    }
    return json.dumps(added) + "\n"


def variable(user: str) -> str:
    """The environment variable with the user's password, in single quotes."""
    return f"{user.upper().replace('-', '_')}_PASSWORD"


def _accounts(users: Iterable[str]) -> dict[str, Any]:
    return accounts({user: f"${variable(user)}" for user in users})


def _with_variables(lines: str, users: Iterable[str]) -> str:
    for user in users:
        lines = lines.replace(f'"${variable(user)}"', f"${variable(user)}")
    return lines


def _added(before: list[Any], after: list[Any]) -> Iterable[Mapping[str, Any]]:
    """The exports with the accounts that were added alone: NATS puts those of one subject together."""
    known = {_subject(each): each["accounts"] for each in before}
    for export in after:
        if added := [each for each in export["accounts"] if each not in known.get(_subject(export), ())]:
            yield export | {"accounts": added}


def _subject(export: Mapping[str, Any]) -> str:
    return str(export.get("service") or export.get("stream"))
