"""Findings about the log's streams: their settings, their copies and their room.  Pure."""

from collections.abc import Iterable, Mapping, Sequence

from muster.doctor.findings import Finding, fail, ok, unknown, warn
from shared.eventlog.durability import Varz, copies_trouble, fsync_trouble
from shared.eventlog.room import Room, of_stream, size
from shared.eventlog.streams import StreamInfo

STARVED_SECONDS = 5.0
"""A copy hears of the log each second; `docs/adr/0019` says what it takes until a reader sees that it does not."""
MOST_BEHIND = 1_000
NANOSECONDS = 1_000_000_000
REMAKE = "run `muster setup`, or `muster subscriber add`, with the size of the copy: it is made anew"

SET_UP = "run `muster setup` with an administrator's NATS credentials"


def missing(these: Sequence[str]) -> Finding:
    """The finding about missing streams."""
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


def disk(varz: Varz) -> list[Finding]:
    """The findings about a server's disk, by its `/varz`: whether acknowledged events are on it, and its room."""
    found = []
    if trouble := fsync_trouble(varz):
        found.append(warn("log.fsync", trouble, "set it in the server's configuration and restart the server"))
    else:
        found.append(ok("log.fsync", f"NATS {varz.server_name} has on its disk what it acknowledges"))
    if varz.room.most:
        found.append(_left("log.disk", varz.room, " of its disk"))
    return found


def unmonitored() -> Finding:
    """The finding if `NATS_MONITOR` is not set."""
    words = "whether NATS has on its disk what it acknowledges, and how full that is, is told by its monitor alone"
    return unknown("log.fsync", words, "say where it is in NATS_MONITOR, such as http://HOST:8222")


def _left(check: str, known: Room, where: str) -> Finding:
    part = known.used / known.most
    words = f"{known.of}: {size(known.used)} of at most {size(known.most)}{where} are used ({part:.0%})"
    return warn(check, words, known.remedy) if known.short else ok(check, words)
