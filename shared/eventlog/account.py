"""The log's NATS account: its streams and buckets, its users and the rights of each.  Pure.

`server.py` turns the table into a server configuration; the tests' log in memory applies the same one.
"""

from shared.eventlog.subject import Subject, filters

STREAM = "JOBS"
STREAM_SUBJECTS = filters()
LEASES = "LEASES"
HEADS = "HEADS"
GENESIS = str(Subject("facts", "none", "none", "none", "setup", "LogCreated"))

ADMIN = "admin"
READER = "reader"
AUTHORS = ("watcher", "scheduler", "scaler", "status")
USERS = (ADMIN, READER, *AUTHORS)


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
    """The JetStream requests that a user may make: they read, and change or remove no stream."""
    if user == ADMIN:
        return ()
    api = "$JS.API"
    readable = (STREAM, stream_of(LEASES), stream_of(HEADS))
    return (
        f"{api}.CONSUMER.CREATE.{STREAM}.>",
        f"{api}.CONSUMER.MSG.NEXT.{STREAM}.>",
        f"{api}.DIRECT.GET.{STREAM}",
        f"{api}.DIRECT.GET.{STREAM}.>",
        *(f"{api}.STREAM.INFO.{stream}" for stream in readable),
        *(f"{api}.STREAM.MSG.GET.{stream}" for stream in readable),
    )


def listens(user: str) -> tuple[str, ...]:
    """The subjects to which a user may subscribe."""
    if user == ADMIN:
        return (">",)
    live = STREAM_SUBJECTS if user == READER else ()
    return (f"{inbox_of(user)}.>", *live)


def permissions(user: str) -> dict[str, list[str]] | None:
    """A user's `permissions` in the server's configuration; None allows everything."""
    if user == ADMIN:
        return None
    return {"publish": [*publishes(user), *asks(user)], "subscribe": list(listens(user))}
