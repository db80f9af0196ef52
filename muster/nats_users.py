"""The users of an administrator's own NATS server, as a part of its configuration.

Pure; made from `shared.eventlog.account`.  `python -m muster.permissions` writes it into the chart, whose NATS server
has the same users.
"""

import json

from shared.eventlog.account import USERS, permissions

CONF = "deploy/helm/muster/files/nats-users.conf"

_HEAD = """\
# Written by `python -m muster.permissions`; a change here would be overwritten.
# Goes into `authorization { }`.  NATS reads the passwords as configuration text, so each variable has quotes in it:
# WATCHER_PASSWORD="'secret'"; without them a password of digits would be a number.
users: [
"""


def render_users() -> str:
    """One line for each user; the passwords are environment variables."""
    return _HEAD + "".join(f"  {{ {_user(name)} }}\n" for name in USERS) + "]\n"


def variable(user: str) -> str:
    """The environment variable with the user's password, in single quotes."""
    return f"{user.upper()}_PASSWORD"


def _user(name: str) -> str:
    words = [f"user: {name}", f"password: ${variable(name)}"]
    if (allowed := permissions(name)) is not None:
        words.append(f"permissions: {json.dumps(allowed)}")
    return ", ".join(words)
