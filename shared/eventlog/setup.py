"""Makes the log, with an administrator's credentials: the stream, the buckets, and the genesis event.

Safe to repeat.  Existing streams are compared and reported; copies and room grow on request.  Of the rest only those
settings are changed that concern new messages alone: any other change of a limit may cost history.
"""

import contextlib
import functools
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Unpack

from shared.errors import Conflict, Refused, accepting
from shared.eventlog import Entry, api
from shared.eventlog.account import (
    ADMIN,
    ARCHIVE,
    GENESIS,
    RELAY,
    STREAM,
    Copy,
)
from shared.eventlog.connection import Connection
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.retry import insist
from shared.eventlog.streams import CONFIGS, STREAMS, StreamInfo, changeable, compare, growth, unlike
from shared.eventlog.subscribers import (
    fed_copies,
    follows,
    found_copy,
    make_copy,
    make_names,
    remove_copy,
    remove_feed,
    resized,
)
from shared.eventlog.tls import Login

_CREATE = 10.0
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
"""Settings of every stream; with other values events or leases would be lost, or appends not be answered."""
_VITAL_OF_HISTORY = (*_VITAL, "discard")
"""Settings of the stream of events, which must not discard old events for new ones."""


class SetUp:
    """The work on each stream, and the result of `set_up`."""

    def __init__(self, connection: Connection, *, check: bool) -> None:
        self.url = connection.url
        """The address of the log, without secrets."""
        self.identity = ""
        """Empty if a check finds no log."""
        self.created: tuple[str, ...] = ()
        """The streams that were made."""
        self.grown: tuple[str, ...] = ()
        """Sizes that were raised and settings that were changed, one sentence each."""
        self.kept: tuple[str, ...] = ()
        """Sizes that were asked for and not granted, one sentence each."""
        self.differences: tuple[str, ...] = ()
        """Settings that differ from those of a new log, one sentence each."""
        self._connection = connection
        self._check = check

    async def make(self, config: dict[str, Any], asked: dict[str, int]) -> None:
        name = config["name"]
        try:
            stream = await api.stream_info(self._connection, name)
        except Refused as error:
            if error.reason != "NotSetUp":
                raise
            made = await self._change("CREATE", config | asked)
            # A concurrent set-up may have written the genesis already.
            if name == STREAM and made is not None and made.state.last_seq > 1:
                raise Refused(
                    f"make the stream {name}: {made.state.last_seq} events were in the server's folder already, of a "
                    "stream that this server did not offer, perhaps one of a cluster that it is no longer in; start no "
                    "service, and see that the server has the configuration and the folder that belong together",
                    reason="OldStore",
                ) from error
            self.created += (name,)
            return
        found = stream.config
        if _unbounded(found) and not _unbounded(config):
            asked = {"max_bytes": config["max_bytes"], **asked}
        grows = growth(found, asked, stream.state.bytes)
        changes: dict[str, Any] = {**grows.changes, **changeable(found, config)}
        if changes:
            await self._change("UPDATE", found | changes)
        self.grown += tuple(f"{name}: {key} is {value} now, and was {found.get(key)}" for key, value in changes.items())
        self.kept += tuple(f"{name}: {sentence}" for sentence in grows.kept)
        self.differences += tuple(compare(found | changes, config))

    async def make_copy(self, copy: Copy, max_bytes: int) -> None:
        found = await found_copy(self._connection, copy)
        if copy.relay and STREAM not in self.created:
            # As large as the log, so that a copy that is made later has what its own size allows.
            max_bytes = int((await api.stream_info(self._connection, STREAM)).config.get("max_bytes", -1))
        if found is not None and await follows(self._connection, copy, found):
            self.grown += tuple(await resized(self._connection, copy, found, max_bytes, check=self._check))
            return
        if not self._check:
            if found is not None:
                await remove_copy(self._connection, copy)
            await make_copy(self._connection, copy, max_bytes)
            if copy.relay:
                await make_names(self._connection)
        self.created += (copy.name,)

    async def _change(self, verb: str, config: dict[str, Any]) -> StreamInfo | None:
        if self._check:
            return None
        request = f"STREAM.{verb}.{config['name']}"
        return await api.call(self._connection, request, config, StreamInfo, timeout=_CREATE)


async def set_up(
    url: str,
    *,
    replicas: int | None = None,
    max_bytes: int | None = None,
    archive_bytes: int | None = None,
    subscribers: Mapping[Copy, int] | None = None,
    patience: float = 30.0,
    check: bool = False,
    **login: Unpack[Login],
) -> SetUp:
    """Make missing streams, raise sizes on request, and compare the other settings; with `check` only report.

    `replicas` is 3 on a cluster by default; `max_bytes` is the size at which the stream refuses events (-1: the disk),
    `archive_bytes` that of the archive.
    `subscribers` are the sizes of the subscribers' copies, which are made only on request.  An existing stream keeps
    its own sizes without a request.  Raises `Refused(reason="Unfit")` if the settings of one could lose history.
    """
    login = {"user": ADMIN, **login}
    connection = await Connection.open(url, name="setup", patience=patience, **login)
    log = JetStreamEventLog(connection, patience=patience)
    copies = {"num_replicas": replicas} if replicas is not None else {}
    rooms = {STREAM: max_bytes, ARCHIVE: archive_bytes}
    work = SetUp(connection, check=check)
    try:
        for config in CONFIGS:
            room = rooms.get(config["name"])
            asked = copies | ({"max_bytes": room} if room is not None else {})
            # A starting cluster has no leader for a while.
            make = functools.partial(work.make, config, asked)
            await insist(make, what=f"set up the stream {config['name']}", patience=patience)
        await must_fit(log, [name for name in STREAMS if not (check and name in work.created)])
        if check:
            work.identity = "" if STREAM in work.created else await _identity(log) or ""
        else:
            work.identity = await _begin(log, connection)
        for copy, size in {RELAY: -1, **subscribers}.items() if subscribers else ():
            await insist(
                functools.partial(work.make_copy, copy, size), what=f"set up the stream {copy.name}", patience=patience
            )
        if not check:
            await _forget_feeds(connection)
    finally:
        await log.close()
    return work


async def _forget_feeds(connection: Connection) -> None:
    """Remove the feeds of copies whose accounts the server has no more."""
    for copy in await fed_copies(connection):
        try:
            await found_copy(connection, copy)
        except Refused as error:
            if error.reason != "NoAccount":
                raise
            await remove_feed(connection, copy)


def _unbounded(config: Mapping[str, Any]) -> bool:
    return int(config.get("max_bytes", -1)) <= 0


async def must_fit(log: JetStreamEventLog, streams: Collection[str] = STREAMS) -> None:
    """Raise `Refused(reason="Unfit")` if a stream's settings could lose history, and `NotSetUp` without streams."""
    wrong: list[str] = []
    for config in CONFIGS:
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
            f"use the log: {'; '.join(wrong)}; an administrator fixes it with `muster setup` or `nats stream edit`",
            reason="Unfit",
        )


async def _begin(log: JetStreamEventLog, connection: Connection) -> str:
    """The identity of the log; a new log gets one."""
    known = await _identity(log)
    if known is None and (await api.stream_info(connection, STREAM)).state.last_seq > 0:
        # A concurrent set-up may have written the genesis after the first look.
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
    # On a conflict the genesis of a concurrent set-up counts.
    with contextlib.suppress(Conflict):
        await log.append(genesis, expect=0)
    return await log.identity()


async def _identity(log: JetStreamEventLog) -> str | None:
    with accepting("NotSetUp"):
        return await log.identity()
    return None
