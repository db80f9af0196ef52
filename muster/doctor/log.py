"""Findings about the log: settings, copies and room of its streams, and histories that are on hold.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from muster.doctor.findings import Finding, fail, names, ok, unknown, warn
from shared.eventlog.inspection import Room, Server, copies_trouble, fsync_trouble, of_stream, size
from shared.eventlog.streams import StreamInfo
from shared.job.fold import Held, History
from shared.job.integrity import Broken, Disputed
from shared.job.naming import NO_UID
from shared.job.state import Job
from shared.job.text import counted
from shared.runtime.heads import Anchor

FEWEST_EVENTS = 100
"""With fewer events there is no pace."""
LATEST_EVENTS = 10_000
FEWEST_DAYS = 14
DAY_SECONDS = 86_400
PATIENT_MINUTES = 10
"""A sealed history that waits longer is a warning; an archiver takes about ten milliseconds for each."""
STARVED_SECONDS = 5.0
"""A copy hears of the log each second; `docs/adr/0019` says what it takes until a reader sees that it does not."""
MOST_BEHIND = 1_000
NANOSECONDS = 1_000_000_000
REMAKE = "run `muster setup`, or `muster subscriber add`, with the size of the copy: it is made anew"

SET_UP = "run `muster setup` with an administrator's NATS credentials"


def missing(these: Sequence[str]) -> Finding:
    return fail("log.streams", f"the log lacks the streams {', '.join(these)}", SET_UP)


def settings(unfit: str, differences: Iterable[str]) -> list[Finding]:
    """The findings about settings; `unfit` says why services refuse the log, and is empty if they do not."""
    found = []
    if unfit:
        found.append(fail("log.settings", unfit, "without it history can be lost, so no service works on this log"))
    for difference in differences:
        # `unfit` covers the vital settings among the differences.
        if difference.partition(", and")[0] not in unfit:
            name = difference.partition(":")[0]
            found.append(warn("log.settings", difference, f"`nats stream edit {name}` if that is not wanted"))
    return found or [ok("log.settings", "the streams have the settings that they need")]


def copies(streams: Sequence[StreamInfo]) -> list[Finding]:
    """Findings about copies: missing, offline or behind the leader."""
    found = []
    for trouble in filter(None, map(copies_trouble, streams)):
        told = fail if trouble.grave else warn
        found.append(told("log.copies", trouble.words, trouble.remedy))
    wanted = ", ".join(f"{stream.name} {stream.config.get('num_replicas') or 1}" for stream in streams)
    return found or [ok("log.copies", f"all copies are up to date ({wanted})")]


def mirrors(streams: Sequence[str]) -> list[Finding]:
    """The findings about streams that answer reads of the log in its place, and may lack events."""
    remedy = "delete it, or make it without `mirror_direct`, or in another account"
    words = "the stream {} answers reads of the log: services read until the log itself answers"
    return [warn("log.mirrors", words.format(name), remedy) for name in streams]


def subscribers(copies: Mapping[str, StreamInfo | None]) -> list[Finding]:
    """Findings about the copies for subscribers, by the user of each: gone, not fed or behind."""
    found = []
    for user, copy in copies.items():
        if copy is None or copy.mirror is None:
            words = f"the copy of {user} is gone, and the log still feeds it"
            found.append(fail("log.subscribers", words, REMAKE))
            continue
        starved = copy.mirror.active / NANOSECONDS
        if not 0 <= starved <= STARVED_SECONDS:
            since = f"for {starved:.0f} s" if starved >= 0 else "since it was made"
            found.append(fail("log.subscribers", f"the copy of {user} was not fed {since}", REMAKE))
        elif copy.mirror.lag > MOST_BEHIND:
            words = f"the copy of {user} is {copy.mirror.lag} events behind the log"
            found.append(
                warn("log.subscribers", words, "look again; if it stays so, the NATS server's disk is too slow")
            )
    if found or not copies:
        return found
    return [ok("log.subscribers", f"the copies for subscribers are up to date ({', '.join(copies)})")]


def room(streams: Iterable[StreamInfo]) -> list[Finding]:
    """The findings about streams with a bound on their size."""
    return [_left("log.room", known, "") for known in map(of_stream, streams) if known.most]


def outlook(log: StreamInfo, since: datetime, events: int, now: datetime) -> list[Finding]:
    """When the log will be full at the pace of its newest events, of which the first was stored at `since`."""
    known, span = of_stream(log), (now - since).total_seconds()
    if not known.most or known.full or events < FEWEST_EVENTS or span <= 0:
        return []
    pace = known.used / max(log.state.messages, 1) * events / span
    days = (known.most - known.used) / pace / DAY_SECONDS
    words = f"{known.of}: at the pace of its last {events} events it is full in {days:.0f} days, if nothing is purged"
    return [warn("log.full", words, known.remedy) if days < FEWEST_DAYS else ok("log.full", words)]


def archive(waiting: int, oldest: datetime | None, now: datetime, *, working: bool) -> Finding:
    """The finding about sealed histories that are still in the log, the oldest since a time."""
    if not waiting or oldest is None:
        return ok("log.archive", "no sealed history waits for the archive")
    words = f"{counted(waiting, 'job')} of the log {'is' if waiting == 1 else 'are'} sealed and wait for the archive"
    if not working:
        remedy = "start the archiver (`archive.enabled` of the chart), or give the log room for all that is over"
        return warn("log.archive", f"{words}, and no archiver works", remedy)
    minutes = (now - oldest).total_seconds() / 60
    if minutes < PATIENT_MINUTES:
        return ok("log.archive", words)
    return warn("log.archive", f"{words}, the oldest for {minutes:.0f} minutes", "`muster archive status -A` says why")


def anchor(known: Anchor, fault: str | None) -> Finding:
    """The finding about an anchor in the cluster, by why the log does not lead to it."""
    if fault is None:
        return ok("log.anchor", f"the anchor of {known.sequence} cannot be compared: jobs of it left the log since")
    if not fault:
        return ok("log.anchor", f"the log leads to its anchor in the cluster, of the event {known.sequence}")
    words = f"the log does not lead to its anchor in the cluster: {fault}"
    return fail("log.anchor", words, "`muster replay --verify` names jobs that differ; the runbook says more")


def disk(server: Server) -> list[Finding]:
    """The findings about a server's disk: whether acknowledged events are on it, and its room."""
    found = []
    if trouble := fsync_trouble(server):
        found.append(warn("log.fsync", trouble, "set it in the server's configuration and restart the server"))
    else:
        found.append(ok("log.fsync", f"NATS {server.name} has on its disk what it acknowledges"))
    if server.room.most:
        found.append(_left("log.disk", server.room, " of its disk"))
    return found


def unmonitored() -> Finding:
    """The finding if `NATS_MONITOR` is not set."""
    words = "whether NATS has on its disk what it acknowledges, and how full that is, is told by its monitor alone"
    return unknown("log.fsync", words, "say where it is in NATS_MONITOR, such as http://HOST:8222")


def _left(check: str, known: Room, where: str) -> Finding:
    part = known.used / known.most
    words = f"{known.of}: {size(known.used)} of at most {size(known.most)}{where} are used ({part:.0%})"
    if known.full:
        return fail(check, f"{words}: it is full", known.remedy)
    return warn(check, words, known.remedy) if known.short else ok(check, words)


UNREADABLE: tuple[Held | None, ...] = ("UnknownEvent",)
"""The reason of held histories that a newer release can read."""


def histories(histories: Iterable[History], identity: str) -> list[Finding]:
    """The findings about all histories; the log's `identity` distinguishes heads of other logs."""
    every = [*histories]
    return troubles(every, identity) or [
        ok("jobs.histories", f"{counted(len(_alive(every)), 'job')}, and every history is whole")
    ]


def troubles(histories: Iterable[History], identity: str) -> list[Finding]:
    """The faults of some histories.  A held history of a deleted job counts too: it is evidence."""
    every = [*histories]
    alive = _alive(every)
    held = [history for history in every if history.held]
    unread = [history for history in held if history.held_for in UNREADABLE]
    damaged = [history for history in held if history.held_for not in UNREADABLE]
    broken = [(history, doubt) for history in alive if isinstance(doubt := history.job.integrity.doubt, Broken)]
    lost = [history for history, doubt in broken if doubt.log == identity]
    foreign = [history for history, doubt in broken if doubt.log != identity]
    disputed = [history for history in alive if isinstance(history.job.integrity.doubt, Disputed)]
    accept = "; each is accepted with `muster history accept KIND/NAME -n NAMESPACE`, and goes on as it is now"
    found = []
    if unread:
        remedy = "upgrade to the release that wrote these events; `muster history KIND/NAME --json` shows them"
        found.append(fail("jobs.held", f"{_these(unread)} cannot be read by this release: {_why(unread)}", remedy))
    if damaged:
        remedy = (
            "compare the log with its backup; `muster history KIND/NAME --json` shows the events, and what none of "
            "Muster's services wrote is set aside with `muster history disown SEQ --reason WHY`"
        )
        words = f"{_these(damaged)} have a history that was damaged: {_why(damaged)}"
        found.append(fail("jobs.damaged", words, remedy))
    if lost:
        remedy = f"restore the log from its backup if there is one{accept}"
        found.append(fail("jobs.broken", f"{_these(lost)} show a history that this log has lost", remedy))
    if foreign:
        remedy = f"connect the services to the log of these jobs (NATS_URL) if there is one{accept}"
        found.append(fail("jobs.foreign", f"{_these(foreign)} have their history in another log", remedy))
    if disputed:
        sides = "; ".join(dict.fromkeys(history.job.integrity.sentence for history in disputed[:3]))
        remedy = f"see who may write the status of these kinds, and who the log{accept}"
        found.append(fail("jobs.disputed", f"the log and the status of {_these(disputed)} disagree: {sides}", remedy))
    return found


def _why(histories: Sequence[History]) -> str:
    return "; ".join(dict.fromkeys(history.held for history in histories[:3]))


def _alive(histories: Iterable[History]) -> list[History]:
    return [history for history in histories if not history.job.resource.gone and history.job.key.uid != NO_UID]


def _these(histories: Sequence[History]) -> str:
    those = sorted(_this(history.job) for history in histories)
    return f"{counted(len(those), 'job')} ({names(those)})"


def _this(job: Job) -> str:
    kind = f"{job.resource.kind.lower()} " if job.resource.kind else ""
    return f"{kind}{job.key}{', deleted' if job.resource.gone else ''}"
