"""Making the log, with an administrator's credentials: the stream, the buckets, and the genesis event.

Safe to repeat.  What is already there is compared and reported; copies and room grow when that is asked for, and
nothing else is changed: of a log's limits every other change may cost history.
"""

import contextlib
import functools
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import Conflict, Refused
from shared.eventlog import Entry, api
from shared.eventlog.connection import Connection
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.limits import CHOSEN, compare, growth, unlike
from shared.eventlog.retry import insist
from shared.eventlog.subjects import ADMIN, GENESIS, HEADS, LEASES, STREAM, STREAM_SUBJECTS, stream_of, subject_of
from shared.eventlog.tls import Tls

_NANOSECONDS = 1_000_000_000
_DUPLICATES = 600
"""Seconds in which the server itself recognises an event id: a courtesy, since the guard does so for ever."""
_CREATE = 10.0
STREAMS = (STREAM, stream_of(LEASES), stream_of(HEADS))
_VITAL = (
    "subjects",
    "retention",
    "max_age",
    "max_msgs",
    "max_msgs_per_subject",
    "allow_msg_ttl",
    "sealed",
    "no_ack",
    "allow_rollup_hdrs",
)
"""Settings of every stream under which events or leases would be lost, or never be answered."""
_VITAL_OF_HISTORY = (*_VITAL, "discard")
"""Of the log itself: nothing that is in it may make room for what is new."""


class SetUp(msgspec.Struct, frozen=True, kw_only=True):
    """What `set_up` found and did."""

    url: str
    """Where the log is, fit to be told."""
    identity: str
    """Empty where a check finds no log."""
    created: tuple[str, ...]
    """Streams that were not there before."""
    grown: tuple[str, ...]
    """Sizes that were raised, one sentence each."""
    kept: tuple[str, ...]
    """Sizes that were asked for and not granted, one sentence each."""
    differences: tuple[str, ...]
    """Settings that are not as they would be made today, one sentence each."""


async def set_up(
    url: str,
    *,
    user: str = ADMIN,
    password: str = "",
    password_file: Path | None = None,
    credentials: Path | None = None,
    tls: Tls | None = None,
    replicas: int | None = None,
    max_bytes: int | None = None,
    patience: float = 30.0,
    check: bool = False,
) -> SetUp:
    """Make what is missing, let grow what shall be larger, and compare the rest; with `check` only say so.

    `replicas` is 3 on a cluster; `max_bytes` is what the stream may grow to before it refuses events (-1: the disk).
    A stream that is there keeps its own where nothing is asked.  Raises `Refused(reason="Unfit")` where the settings of
    one could lose history.
    """
    connection = await Connection.open(
        url,
        name="setup",
        user=user,
        password=password,
        password_file=password_file,
        credentials=credentials,
        tls=tls,
        patience=patience,
    )
    log = JetStreamEventLog(connection, patience=patience)
    copies = {"num_replicas": replicas} if replicas is not None else {}
    room = {"max_bytes": max_bytes} if max_bytes is not None else {}
    work = _Work(connection, check=check)
    try:
        for config in _configs():
            asked = copies | (room if config["name"] == STREAM else {})
            # A cluster that has just come up has no leader for a while.
            make = functools.partial(work.make, config, asked)
            await insist(make, what=f"set up the stream {config['name']}", patience=patience)
        await must_fit(log, [name for name in STREAMS if not (check and name in work.created)])
        if check:
            identity = "" if STREAM in work.created else await _identity(log) or ""
        else:
            identity = await _begin(log, connection)
    finally:
        await log.close()
    return SetUp(
        url=connection.url,
        identity=identity,
        created=tuple(work.created),
        grown=tuple(work.grown),
        kept=tuple(work.kept),
        differences=tuple(work.differences),
    )


class _Work:
    """What is done stream by stream, and what there is to say of it."""

    def __init__(self, connection: Connection, *, check: bool) -> None:
        self.created: list[str] = []
        self.grown: list[str] = []
        self.kept: list[str] = []
        self.differences: list[str] = []
        self._connection = connection
        self._check = check

    async def make(self, config: dict[str, Any], asked: dict[str, int]) -> None:
        name = config["name"]
        try:
            found = (await api.stream_info(self._connection, name)).config
        except Refused as error:
            if error.reason != "NotSetUp":
                raise
            made = await self._change("CREATE", config | asked)
            # A rival's set-up may have written its genesis already.
            if name == STREAM and made is not None and made.state.last_seq > 1:
                raise Refused(
                    f"make the stream {name}: {made.state.last_seq} events were in the server's folder already, of a "
                    "stream that this server did not offer, perhaps one of a cluster that it is no longer in; start no "
                    "service, and see that the server has the configuration and the folder that belong together",
                    reason="OldStore",
                ) from error
            self.created.append(name)
            return
        grows = growth(found, asked)
        if grows.changes:
            await self._change("UPDATE", found | grows.changes)
        self.grown += [
            f"{name}: {key} is {value} now, and was {found.get(key)}" for key, value in grows.changes.items()
        ]
        self.kept += [f"{name}: {sentence}" for sentence in grows.kept]
        self.differences += _compare(found, config)

    async def _change(self, verb: str, config: dict[str, Any]) -> api.StreamInfo | None:
        if self._check:
            return None
        request = f"STREAM.{verb}.{config['name']}"
        return await api.call(self._connection, request, config, api.StreamInfo, timeout=_CREATE)


def log_config(*, replicas: int, max_bytes: int) -> dict[str, Any]:
    return {
        "name": STREAM,
        "subjects": list(STREAM_SUBJECTS),
        "retention": "limits",
        "storage": "file",
        # With s2 a server of three that was killed, started and stopped in order may have compressed the block that it
        # writes to, and appends plainly behind: then nothing of it can be read again (NATS 2.15.1).
        "compression": "none",
        "num_replicas": replicas,
        "max_age": 0,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_bytes": max_bytes,
        "discard": "new",
        "deny_delete": True,
        # An administrator purges what was archived; services have no right to, and this could never be taken back.
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "allow_direct": True,
        "allow_msg_ttl": False,
        "duplicate_window": _DUPLICATES * _NANOSECONDS,
    }


def bucket_config(name: str, *, replicas: int, lifetimes: bool = False) -> dict[str, Any]:
    return {
        "name": stream_of(name),
        "subjects": [subject_of(name, ">")],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "max_age": 0,
        "max_msgs": -1,
        # With a longer history the server raises a lifetime silently.
        "max_msgs_per_subject": 1,
        "max_bytes": -1,
        "discard": "new",
        "deny_delete": True,
        "deny_purge": False,
        # With it whoever may write one key may wipe them all.
        "allow_rollup_hdrs": False,
        "allow_direct": True,
        "allow_msg_ttl": lifetimes,
    }


def differences(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What of these streams' settings, by name, is not as it would be made today, one sentence each.

    How many copies and how large is the owner's choice.
    """
    there = [config for config in _configs() if config["name"] in found]
    return [sentence for config in there for sentence in _compare(found[config["name"]], config)]


async def must_fit(log: JetStreamEventLog, streams: Collection[str] = STREAMS) -> None:
    """Raise `Refused(reason="Unfit")` when a stream's settings could lose history, and `NotSetUp` without streams."""
    wrong: list[str] = []
    for config in _configs():
        name, vital = config["name"], _VITAL_OF_HISTORY if config["name"] == STREAM else _VITAL
        if name not in streams:
            continue
        found = (await api.stream_info(log.connection, name)).config
        wrong += [
            f"{name}: {key} is {found.get(key, False)!r} and has to be {value!r}"
            for key, value in unlike(found, {key: config.get(key, False) for key in vital})
        ]
    if wrong:
        raise Refused(
            f"use the log: {'; '.join(wrong)}; an administrator mends it with `nats stream edit`", reason="Unfit"
        )


def _configs() -> tuple[dict[str, Any], ...]:
    return (
        log_config(replicas=1, max_bytes=-1),
        bucket_config(LEASES, replicas=1, lifetimes=True),
        bucket_config(HEADS, replicas=1),
    )


def _compare(found: Mapping[str, Any], config: dict[str, Any]) -> list[str]:
    wanted = {key: value for key, value in config.items() if key not in CHOSEN}
    return compare(config["name"], found, wanted)


async def _begin(log: JetStreamEventLog, connection: Connection) -> str:
    """The identity of the log, given to it now if it is new."""
    known = await _identity(log)
    if known is None and (await api.stream_info(connection, STREAM)).state.last_seq > 0:
        # Another set-up may have begun it between these two looks; one more look tells.
        known = await _identity(log)
        if known is None:
            raise Refused(
                f"set up the log: the stream {STREAM} has events but no genesis; its beginning was lost, "
                "and a new identity would hide that",
                reason="LogTruncated",
            )
    if known is not None:
        return known
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    genesis = Entry(subject=GENESIS, event_id=str(uuid.uuid4()), time=time, body=b'{"type":"LogCreated"}')
    # On a conflict another set-up was quicker, and its genesis counts.
    with contextlib.suppress(Conflict):
        await log.append(genesis, expect=0)
    return await log.identity()


async def _identity(log: JetStreamEventLog) -> str | None:
    try:
        return await log.identity()
    except Refused as error:
        if error.reason != "NotSetUp":
            raise
        return None
