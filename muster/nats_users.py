"""The accounts and users of an administrator's own NATS servers, as a part of their configuration.

Pure; made from `shared.eventlog.account`.  `python -m muster.permissions` writes them into the chart, whose two NATS
servers, the log's and the copies' one, have the same accounts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from shared.eventlog.account import ACCOUNT, SUBSCRIBER, USERS, Copy, accounts, accounts_of_copies

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
