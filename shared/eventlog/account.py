"""The NATS accounts: the log's own with its streams and buckets, and one for each user with what it may reach.  Pure.

The log's account exports to each user's account the subjects that this user may use, and nothing else.  Permissions
within one account are not enough: a server does not check the reply subject of a request, so that an answer could be
stored as an event.  An answer to a request from another account stays in that account.
Programs of users have the user `subscriber`, and consumers as any NATS client makes them, of a copy of the stream
(`subscribers.py`) in an account of its own: the consumers and their number never concern the log.
`server.py` and the chart make a server configuration of the table; the tests' log in memory applies the same one.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from shared.eventlog.subject import Subject, filters

ACCOUNT = "LOG"
"""The account of the streams and of the administrator; each other user has an account with its own name."""
COPY = "COPY"
"""The account of the subscribers' copy; no user is in it."""
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
"""For people: `muster` reads histories, leases and heads with it."""
SUBSCRIBER = "subscriber"
HISTORY = "history"
"""The history service, which reads as the reader does."""
AUTHORS = ("watcher", "scheduler", "scaler", "status")
USERS = (ADMIN, READER, SUBSCRIBER, HISTORY, *AUTHORS)

FEED = "subscribers"
"""The consumer of the log that feeds the copy."""
FED = f"copied.{STREAM}"
"""The subject to which it sends."""
COPY_API = f"$JS.{COPY}.API"
"""The prefix of the copy's JetStream requests in the log's account: the administrator makes and sees the copy."""
LOG_API = f"$JS.{ACCOUNT}.API"
"""The prefix of the log's JetStream requests in the copy's account."""
MAX_CONSUMERS = 200
"""The most consumers of all subscribers together."""
_INBOXES = "_INBOX.>"
"""The default of NATS clients for answers, and for what a push consumer sends."""
_NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.*"
_MANY_ANSWERS = (GET_MANY, _NEXT)
_RESET = f"$JS.API.CONSUMER.RESET.{STREAM}.{FEED}"
"""The request by which the copy is sent what it lacks."""
_FLOW = f"$JS.FC.{STREAM}.{FEED}.>"
"""By answers to it the copy tells what it has stored."""
_NAMES = "$JS.API.STREAM.NAMES"
"""A client that subscribes to a subject asks so for its stream.  A copy has no subjects, the log has."""


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
    """The JetStream requests that a user may make: they read, and create, change or remove nothing in the log."""
    if user == ADMIN:
        return ()
    api = "$JS.API"
    if user == SUBSCRIBER:
        return (_NAMES, *_asks_of_copy())
    readable = (STREAM, stream_of(LEASES), stream_of(HEADS))
    return (
        # Without it the server would answer all of JetStream's requests from the user's own account, which has none.
        f"{api}.INFO",
        GET_MANY,
        *(f"{api}.STREAM.INFO.{stream}" for stream in readable),
        *(f"{api}.STREAM.MSG.GET.{stream}" for stream in readable),
    )


def _asks_of_copy() -> tuple[str, ...]:
    """What a subscriber asks of the copy, and makes there: consumers."""
    api = "$JS.API"
    return (
        f"{api}.INFO",
        f"{api}.STREAM.LIST",
        f"{api}.STREAM.INFO.{STREAM}",
        f"{api}.STREAM.MSG.GET.{STREAM}",
        GET_MANY,
        f"{GET_MANY}.>",
        f"{api}.CONSUMER.NAMES.{STREAM}",
        f"{api}.CONSUMER.LIST.{STREAM}",
        f"{api}.CONSUMER.INFO.{STREAM}.*",
        f"{api}.CONSUMER.CREATE.{STREAM}",
        f"{api}.CONSUMER.CREATE.{STREAM}.>",
        f"{api}.CONSUMER.DURABLE.CREATE.{STREAM}.*",
        f"{api}.CONSUMER.DELETE.{STREAM}.*",
        _NEXT,
        f"$JS.ACK.{STREAM}.>",
        f"$JS.FC.{STREAM}.>",
    )


def listens(user: str) -> tuple[str, ...]:
    """The subjects to which a user may subscribe."""
    if user == ADMIN:
        return (">",)
    return (f"{inbox_of(user)}.>", _INBOXES if user == SUBSCRIBER else f"{STORED}.>")


def permissions(user: str) -> dict[str, Any] | None:
    """A user's `permissions` in the server's configuration; None allows everything in its account.

    Its account reaches no more.  With them a refused request is answered at once, and by name.
    """
    if user == ADMIN:
        return None
    allowed: Any = [*publishes(user), *asks(user)]
    if user == SUBSCRIBER:
        # It would tell the log that the copy has what it lacks.
        allowed = {"allow": allowed, "deny": [_FLOW]}
    return {"publish": allowed, "subscribe": list(listens(user))}


def accounts(passwords: Mapping[str, str]) -> dict[str, Any]:
    """The `accounts` of the server's configuration, for the users with these passwords."""
    guests = [user for user in passwords if user != ADMIN]
    imports = {user: _imports(user) for user in guests}
    table: dict[str, Any] = {
        ACCOUNT: {
            "jetstream": "enabled",
            "users": [_user(user, passwords[user]) for user in passwords if user == ADMIN],
        }
    }
    if SUBSCRIBER in guests:
        table[COPY] = {"jetstream": {"max_streams": 1, "max_consumers": MAX_CONSUMERS, "max_mem": -1, "max_file": -1}}
        imports[COPY] = [_Import("service", ACCOUNT, _RESET, f"{LOG_API}.{_RESET.removeprefix('$JS.API.')}")]
        imports[COPY] += [_Import("service", ACCOUNT, _FLOW), _Import("stream", ACCOUNT, FED)]
        imports[ACCOUNT] = [_Import("service", COPY, "$JS.API.>", f"{COPY_API}.>")]
    table |= {user: {"users": [_user(user, passwords[user])]} for user in guests}
    for account, found in table.items():
        if exported := _exports(account, imports):
            found["exports"] = exported
        if account in imports:
            found["imports"] = [each.rendered for each in imports[account]]
    return table


class _Import(NamedTuple):
    kind: Literal["service", "stream"]
    account: str
    """The account that exports the subject."""
    subject: str
    local: str = ""
    """The subject in the importing account, if it is another one."""

    @property
    def rendered(self) -> dict[str, Any]:
        local = {"to": self.local} if self.local else {}
        return {self.kind: {"account": self.account, "subject": self.subject}} | local


def _imports(user: str) -> list[_Import]:
    if user == SUBSCRIBER:
        services = [_Import("service", ACCOUNT if each == _NAMES else COPY, each) for each in asks(user)]
        return [*services, _Import("stream", COPY, _INBOXES)]
    services = [_Import("service", ACCOUNT, each) for each in (*publishes(user), *asks(user))]
    return [*services, _Import("stream", ACCOUNT, f"{STORED}.>")]


def _exports(account: str, imports: Mapping[str, list[_Import]]) -> list[dict[str, Any]]:
    """What the other accounts import from this one."""
    used: dict[tuple[str, str], list[str]] = {}
    for other, theirs in imports.items():
        for each in theirs:
            if each.account == account:
                used.setdefault((each.kind, each.subject), []).append(other)
    return [
        {kind: subject, "accounts": others} | ({"response_type": "stream"} if subject in _MANY_ANSWERS else {})
        for (kind, subject), others in used.items()
    ]


def _user(name: str, password: str) -> dict[str, Any]:
    allowed = permissions(name)
    return {"user": name, "password": password} | ({"permissions": allowed} if allowed else {})
