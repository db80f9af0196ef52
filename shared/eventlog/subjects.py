"""Names in the log's NATS account: streams, subjects, and which user may publish what.

Pure.  `server.py` turns the table into a server configuration; the log in memory of the tests obeys the same one.
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
    """The stream that keeps a bucket, by the convention of every NATS client."""
    return f"KV_{bucket}"


def subject_of(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def inbox_of(user: str) -> str:
    """Where answers to a user arrive.  A prefix each, so that no user can listen to another's answers."""
    return f"_INBOX_{user}"


def publishes(user: str) -> tuple[str, ...]:
    """Into which subjects of the log and of the buckets a user may write.

    A service writes as the author it is, and holds leases whose keys begin with its own name.
    """
    if user == ADMIN:
        return (">",)
    if user not in AUTHORS:
        return ()
    heads = (subject_of(HEADS, ">"),) if user == "status" else ()
    leases = (subject_of(LEASES, user), subject_of(LEASES, f"{user}.>"))
    return (*filters(author=user), *leases, *heads)


def asks(user: str) -> tuple[str, ...]:
    """Which JetStream requests a user may make besides: those that read, none that changes or removes a stream."""
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
    """To which subjects a user may subscribe."""
    if user == ADMIN:
        return (">",)
    live = STREAM_SUBJECTS if user == READER else ()
    return (f"{inbox_of(user)}.>", *live)


def permissions(user: str) -> dict[str, list[str]] | None:
    """What NATS is to allow a user, in the words of its configuration; None allows everything."""
    if user == ADMIN:
        return None
    return {"publish": [*publishes(user), *asks(user)], "subscribe": list(listens(user))}
