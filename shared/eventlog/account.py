"""The NATS accounts: the log's own with its streams and buckets, and one for each user with what it may reach.  Pure.

The log's account exports to each user's account the subjects that this user may use, and nothing else.  Permissions
within one account are not enough: a server does not check the reply subject of a request, so that an answer could be
stored as an event.  An answer to a request from another account stays in that account.
`server.py` and the chart make a server configuration of the table; the tests' log in memory applies the same one.
"""

from collections.abc import Mapping
from typing import Any

from shared.eventlog.subject import Subject, filters

ACCOUNT = "LOG"
"""The account of the streams and of the administrator; each other user has an account with its own name."""
STREAM = "JOBS"
STREAM_SUBJECTS = filters()
STORED = "stored"
"""The server publishes each stored event again, under this prefix and its own subject."""
LEASES = "LEASES"
HEADS = "HEADS"
GET_MANY = f"$JS.API.DIRECT.GET.{STREAM}"
"""The request for many events at once, which any server with a copy answers, with one message for each."""
GENESIS = str(Subject("facts", "none", "none", "none", "setup", "LogCreated"))

ADMIN = "admin"
READER = "reader"
HISTORY = "history"
"""The history service, which reads as the reader does."""
AUTHORS = ("watcher", "scheduler", "scaler", "status")
USERS = (ADMIN, READER, HISTORY, *AUTHORS)


def stream_of(bucket: str) -> str:
    """The stream of a bucket, by the convention of NATS clients."""
    return f"KV_{bucket}"


def subject_of(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def inbox_of(user: str) -> str:
    """The prefix of the subjects for answers to a user; another user cannot subscribe to it."""
    return f"_INBOX_{user}"


def publishes(user: str) -> tuple[str, ...]:
    """The subjects of the log and of the buckets to which a user may publish.

    A service publishes events as their author, and leases whose keys begin with its name.
    """
    if user == ADMIN:
        return (">",)
    if user not in AUTHORS:
        return ()
    heads = (subject_of(HEADS, ">"),) if user == "status" else ()
    leases = (subject_of(LEASES, user), subject_of(LEASES, f"{user}.>"))
    return (*filters(author=user), *leases, *heads)


def asks(user: str) -> tuple[str, ...]:
    """The JetStream requests that a user may make: they read, and create, change or remove nothing."""
    if user == ADMIN:
        return ()
    api = "$JS.API"
    readable = (STREAM, stream_of(LEASES), stream_of(HEADS))
    return (
        # Without it the server would answer all of JetStream's requests from the user's own account, which has none.
        f"{api}.INFO",
        GET_MANY,
        *(f"{api}.STREAM.INFO.{stream}" for stream in readable),
        *(f"{api}.STREAM.MSG.GET.{stream}" for stream in readable),
    )


def listens(user: str) -> tuple[str, ...]:
    """The subjects to which a user may subscribe."""
    if user == ADMIN:
        return (">",)
    return (f"{inbox_of(user)}.>", f"{STORED}.>")


def permissions(user: str) -> dict[str, list[str]] | None:
    """A user's `permissions` in the server's configuration; None allows everything in its account.

    Its account reaches no more.  With them a refused request is answered at once, and by name.
    """
    if user == ADMIN:
        return None
    return {"publish": [*publishes(user), *asks(user)], "subscribe": list(listens(user))}


def accounts(passwords: Mapping[str, str]) -> dict[str, Any]:
    """The `accounts` of the server's configuration, for the users with these passwords."""
    guests = [user for user in passwords if user != ADMIN]
    used: dict[str, list[str]] = {}
    for user in guests:
        for subject in (*publishes(user), *asks(user)):
            used.setdefault(subject, []).append(user)
    exports: list[dict[str, Any]] = [
        {"service": subject, "accounts": users} | ({"response_type": "stream"} if subject == GET_MANY else {})
        for subject, users in used.items()
    ]
    log = {
        "jetstream": "enabled",
        "users": [_user(user, passwords[user]) for user in passwords if user == ADMIN],
        "exports": [*exports, {"stream": f"{STORED}.>", "accounts": guests}],
    }
    return {ACCOUNT: log} | {user: _guest(user, passwords[user]) for user in guests}


def _guest(user: str, password: str) -> dict[str, Any]:
    services = [{"service": {"account": ACCOUNT, "subject": each}} for each in (*publishes(user), *asks(user))]
    stored = {"stream": {"account": ACCOUNT, "subject": f"{STORED}.>"}}
    return {"users": [_user(user, password)], "imports": [*services, stored]}


def _user(name: str, password: str) -> dict[str, Any]:
    allowed = permissions(name)
    return {"user": name, "password": password} | ({"permissions": allowed} if allowed else {})
