"""The NATS accounts of the two servers: the log's, and the one that subscribers connect to.  Pure.

On the log's server the account `LOG` has the streams and buckets, and each user an account with what it may reach.

The log's account exports to each user's account the subjects that this user may use, and nothing else.  Permissions
within one account are not enough: a server does not check the reply subject of a request, so that an answer could be
stored as an event.  An answer to a request from another account stays in that account.
Programs of users have the user `subscriber`, or one for a namespace, such as `subscriber-team-a`, on the server of the
copies alone, a leaf node of the log's.  They make consumers as any NATS client does, of a copy of the events
(`subscribers.py`) in an account of its own: their connections, consumers and requests never reach the log's server.
`server.py` and the chart make the servers' configurations of these tables.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from shared.errors import Refused
from shared.eventlog.subject import Subject, archived_under, filters, people, people_of

ACCOUNT = "LOG"
"""The account of the streams and of the administrator; each other user has an account with its own name."""
STREAM = "JOBS"
STREAM_SUBJECTS = filters()
STORED = "stored"
"""The server publishes each stored event again, under this prefix and its own subject."""
LEASES = "LEASES"
HEADS = "HEADS"
ARCHIVE = "ARCHIVE"
"""The stream of sealed histories, under `archive.<namespace>.<name>.<uid>`."""
ARCHIVED = archived_under()
IN_ARCHIVE = (ARCHIVED, people_of(ARCHIVED))
GET_MANY = f"$JS.API.DIRECT.GET.{STREAM}"
GET_ARCHIVED = f"$JS.API.DIRECT.GET.{ARCHIVE}"
"""The requests for many messages at once, which any server with a copy answers, with one message for each."""
GENESIS = str(Subject("facts", "none", "none", "none", "setup", "LogCreated"))

ADMIN = "admin"
READER = "reader"
"""For people: `muster` reads histories, leases and heads with it."""
SUBSCRIBER = "subscriber"
COPIES = "copies"
"""The server of the copies: its user at the log, its JetStream domain, and the consumer of the log that feeds it."""
_FEED = "subscribers"
HISTORY = "history"
"""The history service, which reads as the reader does."""
AUDIT = "audit"
"""The audit service, which reads events and writes facts of one type."""
ARCHIVER = "archiver"
"""The archiver, which writes the archive; it and the administrator alone purge events."""
ATTRIBUTIONS = people()
AUTHORS = ("watcher", "scheduler", "scaler", "status")
SERVICES = (HISTORY, AUDIT, ARCHIVER, *AUTHORS)
USERS = (ADMIN, READER, *SERVICES[:3], COPIES, *AUTHORS)
"""The users at the log's server."""

LOG_API = f"$JS.{ACCOUNT}.API"
"""The prefix, in the account of a copy, of the JetStream requests to the stream that it copies."""
NAMES = "NAMES"
"""The account of a stream without events, which answers for all copies which stream has a subject: a copy has none."""
MAX_CONSUMERS = 200
"""The most consumers of one copy, of all its subscribers together."""
MAX_ACK_PENDING = 512 * 1024
"""The most events that a subscriber's consumer has sent and not heard of.

The older functions of nats.go ask for so many, and no client for more; who names no number has the server's 1,000.
"""
MAX_CONNECTIONS = 32
"""The most connections of one user, at either server."""
SERVICE_CONNECTIONS = 256
"""Those of a service: installations for several namespaces share its user."""
_INBOXES = "_INBOX.>"
"""The default of NATS clients for answers, and for what a push consumer sends."""
_NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.*"
_MANY_ANSWERS = (GET_MANY, GET_ARCHIVED, _NEXT)
_NAMES = "$JS.API.STREAM.NAMES"
"""A client that subscribes to a subject asks so for its stream."""


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def must_be_namespace(name: str, what: str) -> None:
    """Raises `Refused` for what names no namespace; `what` would be done for it."""
    if not _NAMESPACE.fullmatch(name):
        words = "a namespace has 1 to 63 lower-case letters, digits and hyphens, and no hyphen at an end"
        raise Refused(f"{what} {name[:80]!r}: {words}", reason="Invalid")


FOR_CLIENTS = (
    "this user sees a copy of the events, which is for NATS clients and `muster forward`; the commands take "
    f"NATS_USER={READER}, those that change the log {ADMIN}, or the kubeconfig alone without the variables NATS_…"
)
"""What a subscriber is told who gives its name to a command."""


class Copy(NamedTuple):
    """A copy of the events, in an account without users, and the user who reads it from another account."""

    namespace: str = ""
    """Empty for the copy of all events."""
    relay: bool = False
    """True for the copy that has no reader, which the log feeds, and which feeds the others."""

    @classmethod
    def of(cls, namespace: str) -> Self:
        """The copy of this namespace's events.  Raises `Refused` for what names no namespace."""
        must_be_namespace(namespace, "make a subscriber for")
        return cls(namespace)

    @classmethod
    def named(cls, feed: str) -> Self | None:
        """The copy that this consumer of the log feeds; None for another consumer."""
        kind, _, namespace = feed.partition("-")
        return cls(namespace) if kind == _FEED else None

    @property
    def user(self) -> str:
        return COPIES if self.relay else self._one_of(SUBSCRIBER)

    @property
    def account(self) -> str:
        return ACCOUNT if self.relay else self._one_of("COPY")

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{STREAM} of {COPIES if self.relay else self.account}"

    @property
    def feed(self) -> str:
        """The consumer that feeds it: of the log for the relay, of the relay for another copy."""
        return COPIES if self.relay else self._one_of(_FEED)

    @property
    def fed(self) -> str:
        """The subject to which the feed sends."""
        return f"copied.{COPIES if self.relay else self.account}"

    @property
    def api(self) -> str:
        """The prefix of its JetStream requests in the log's account: the administrator makes and sees it."""
        return f"$JS.{COPIES}.API" if self.relay else f"$JS.{COPIES}.{self.account}.API"

    @property
    def source(self) -> str:
        """The prefix of the requests to the stream that it copies, in the log's account."""
        return "$JS.API" if self.relay else RELAY.api

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects of its events; none for all."""
        return filters(self.namespace) if self.namespace else ()

    @property
    def reset(self) -> str:
        """The request by which it is sent what it lacks."""
        return f"$JS.API.CONSUMER.RESET.{STREAM}.{self.feed}"

    @property
    def flow(self) -> str:
        """By answers to these subjects it tells what it has stored."""
        return f"$JS.FC.{STREAM}.{self.feed}.>"

    def _one_of(self, kind: str) -> str:
        return f"{kind}-{self.namespace}" if self.namespace else kind


RELAY = Copy(relay=True)


def copy_of(user: str) -> Copy | None:
    """The copy that this user reads; None for a user who is no subscriber."""
    kind, _, namespace = user.partition("-")
    return Copy(namespace) if kind == SUBSCRIBER else None


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

    A service publishes events as their author, and leases whose keys begin with its name; `audit` has no lease.
    """
    if user == ADMIN:
        return (">",)
    if user == AUDIT:
        return (ATTRIBUTIONS,)
    if user not in (ARCHIVER, *AUTHORS):
        return ()
    heads = (subject_of(HEADS, ">"),) if user == "status" else ()
    leases = (subject_of(LEASES, user), subject_of(LEASES, f"{user}.>"))
    return (*(IN_ARCHIVE if user == ARCHIVER else filters(author=user)), *leases, *heads)


def asks(user: str) -> tuple[str, ...]:
    """The JetStream requests that a user may make: they read, and but for the archiver's remove nothing."""
    if user == ADMIN:
        return ()
    api = "$JS.API"
    if copy_of(user) is not None:
        return (_NAMES, *_asks_of_copy())
    archived = user in (READER, HISTORY, ARCHIVER)
    readable = [STREAM] if user == AUDIT else [STREAM, stream_of(LEASES), stream_of(HEADS)]
    readable += [ARCHIVE] if archived else []
    return (
        # Without it the server would answer all of JetStream's requests from the user's own account, which has none.
        f"{api}.INFO",
        GET_MANY,
        *(f"{api}.STREAM.INFO.{stream}" for stream in readable),
        *(f"{api}.STREAM.MSG.GET.{stream}" for stream in readable),
        *([GET_ARCHIVED] if archived else []),
        *([f"{api}.STREAM.PURGE.{stream}" for stream in (STREAM, ARCHIVE)] if user == ARCHIVER else []),
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
    return (f"{inbox_of(user)}.>", _INBOXES if copy_of(user) is not None else f"{STORED}.>")


def permissions(user: str) -> dict[str, Any] | None:
    """A user's `permissions` in the server's configuration; None allows everything in its account.

    Its account reaches no more.  With them a refused request is answered at once, and by name.
    """
    if user == ADMIN:
        return None
    allowed: Any = [*publishes(user), *asks(user)]
    if (copy := copy_of(user)) is not None:
        # It would tell the log that the copy has what it lacks.
        allowed = {"allow": allowed, "deny": [copy.flow]}
    return {"publish": allowed, "subscribe": list(listens(user))}


def accounts(passwords: Mapping[str, str]) -> dict[str, Any]:
    """The `accounts` of the log's server, for the users with these passwords."""
    guests = [user for user in passwords if user != ADMIN]
    imports = {user: _imports(user) for user in guests}
    table: dict[str, Any] = {
        ACCOUNT: {
            "jetstream": "enabled",
            "users": [_user(user, passwords[user]) for user in passwords if user == ADMIN],
        }
    }
    table |= {user: {"users": [_user(user, passwords[user])], "limits": _limits(user)} for user in guests}
    if COPIES in guests:
        imports[COPIES] = _imports_of_copy(RELAY)
        # The administrator's requests to the copies.
        imports[ACCOUNT] = [_Import("service", COPIES, f"$JS.{COPIES}.>")]
    return _connected(table, imports)


def accounts_of_copies(passwords: Mapping[str, str]) -> dict[str, Any]:
    """The `accounts` of the copies' server, for the subscribers with these passwords."""
    copies = {user: copy for user in passwords if (copy := copy_of(user)) is not None}
    # Who imports it is said there alone: so an account that comes later changes nothing of another one.
    feeds = [{"service": RELAY.reset.replace(COPIES, "*")}, {"service": f"$JS.FC.{STREAM}.>"}, {"stream": "copied.*"}]
    table: dict[str, Any] = {
        ACCOUNT: {"jetstream": "enabled", "exports": feeds},
        NAMES: {"jetstream": _jetstream(consumers=1), "exports": [{"service": _NAMES}, {"service": "$JS.API.>"}]},
    }
    table |= {copy.account: {"jetstream": _jetstream(consumers=MAX_CONSUMERS)} for copy in copies.values()}
    table |= {user: {"users": [_user(user, passwords[user])], "limits": _limits(user)} for user in copies}
    imports = {user: _imports(user) for user in copies}
    imports |= {copy.account: _imports_of_copy(copy) for copy in copies.values()}
    imports[ACCOUNT] = [
        _Import("service", account, "$JS.API.>", f"$JS.{COPIES}.{account}.API.>")
        for account in (NAMES, *(copy.account for copy in copies.values()))
    ]
    return _connected(table, imports)


def _limits(user: str) -> dict[str, int]:
    most = SERVICE_CONNECTIONS if user in SERVICES else MAX_CONNECTIONS
    return {"max_connections": most, "max_subscriptions": 2000}


def _jetstream(*, consumers: int) -> dict[str, int]:
    return {"max_streams": 1, "max_consumers": consumers, "max_mem": -1, "max_file": -1}


def _connected(table: dict[str, Any], imports: Mapping[str, list["_Import"]]) -> dict[str, Any]:
    for account, found in table.items():
        if "exports" not in found and (exported := _exports(account, imports)):
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
    if (copy := copy_of(user)) is not None:
        services = [_Import("service", NAMES if each == _NAMES else copy.account, each) for each in asks(user)]
        return [*services, _Import("stream", copy.account, _INBOXES)]
    services = [_Import("service", ACCOUNT, each) for each in (*publishes(user), *asks(user))]
    return [*services, _Import("stream", ACCOUNT, f"{STORED}.>")]


def _imports_of_copy(copy: Copy) -> list[_Import]:
    return [
        _Import("service", ACCOUNT, copy.reset, copy.reset.replace("$JS.API", LOG_API)),
        _Import("service", ACCOUNT, copy.flow),
        _Import("stream", ACCOUNT, copy.fed),
    ]


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
    user: dict[str, Any] = {"user": name, "password": password}
    if copy_of(name) is None:
        # A leaf node could pass on the connections of others.
        user |= {"allowed_connection_types": ["LEAFNODE" if name == COPIES else "STANDARD"]}
    allowed = permissions(name) if name != COPIES else None
    return user | ({"permissions": allowed} if allowed else {})
