"""The accounts and users of an administrator's own NATS server, as a part of its configuration.

Pure; made from `shared.eventlog.account`.  `python -m muster.permissions` writes it into the chart, whose NATS server
has the same accounts.
"""

import json

from shared.eventlog.account import USERS, accounts

CONF = "deploy/helm/muster/files/nats-users.conf"

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
    table = accounts({user: f"${variable(user)}" for user in USERS})
    lines = "".join(f"  {name}: {json.dumps(table[name])}\n" for name in table)
    for user in USERS:
        lines = lines.replace(f'"${variable(user)}"', f"${variable(user)}")
    return f"{_HEAD}{lines}}}\n"


def variable(user: str) -> str:
    """The environment variable with the user's password, in single quotes."""
    return f"{user.upper()}_PASSWORD"
