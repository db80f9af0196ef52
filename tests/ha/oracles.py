"""What must hold after all strikes, asked of what everybody recorded.  Pure; each answer is a list of faults.

The logs of the services say which appends were acknowledged, the witnesses what each server of the log delivered,
the watch of the load what was made, the audit log who wrote what.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from shared.eventlog import Stored
from shared.job.events.catalog import AUTHORS
from tests.ha.witness import Print, print_of

WRITES = ("create", "update", "patch", "delete", "deletecollection")
SCRIPTS = ("exec",)
"""They change what they like, and over a WebSocket the verb is `get`."""
TYPES = {str(known.__struct_config__.tag) for known in AUTHORS}
"""What an append is called in the log of a service; its other lines name sequences as well."""
QUESTIONS = ("selfsubjectaccessreviews",)
"""They are asked by creating them."""
ELECTED = re.compile(r"\] (?P<time>\S+ \S+) \[INF\] JetStream cluster new stream leader for '.* > (?P<stream>\S+)'")


class Acknowledged(NamedTuple):
    """A line of a service's own log: this append was answered."""

    replica: str
    at: float
    sequence: int
    author: str
    uid: str
    type: str


class Place(NamedTuple):
    """A name that an owner's child has."""

    kind: str
    name: str
    owner: str
    """Its uid."""


class Write(NamedTuple):
    """A line of the audit log: this process asked for a change, and got this answer."""

    token: str
    at: float
    verb: str
    what: str
    code: int


class Election(NamedTuple):
    """A line of a NATS server's log: from now on it leads this stream."""

    at: float
    stream: str


def elections(lines: Iterable[str]) -> list[Election]:
    found = [match for line in lines if (match := ELECTED.search(line))]
    return [Election(_by_its_clock(one["time"]), one["stream"]) for one in found]


def acknowledged(replica: str, lines: Iterable[Mapping[str, Any]]) -> list[Acknowledged]:
    return [
        Acknowledged(replica, seconds(line["timestamp"]), line["seq"], line["service"], line["uid"], line["event"])
        for line in lines
        if line["event"] in TYPES and {"uid", "seq"} <= line.keys()
    ]


def writes(audit: Iterable[Mapping[str, Any]]) -> list[Write]:
    found = []
    for line in audit:
        tokens = line["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id")
        about = line.get("objectRef", {})
        writes = line["verb"] in WRITES or about.get("subresource") in SCRIPTS
        if tokens and writes and about.get("resource") not in QUESTIONS:
            what = "/".join(about[key] for key in ("resource", "subresource", "name") if key in about)
            at = seconds(line["requestReceivedTimestamp"])
            found.append(Write(tokens[0], at, line["verb"], what, line["responseStatus"]["code"]))
    return found


def lost(log: Sequence[Stored], told: Iterable[Acknowledged]) -> list[str]:
    """Acknowledged appends that are not in the log, or not where they were."""
    there = {stored.sequence: stored.subject.split(".") for stored in log}
    return [
        f"{ack.type} of {ack.uid} was acknowledged to {ack.replica} at {ack.sequence}, where now is "
        f"{'.'.join(there.get(ack.sequence, ['nothing']))}"
        for ack in told
        if there.get(ack.sequence, [])[3:] != [ack.uid, ack.author, ack.type]
    ]


def changed(log: Sequence[Stored], server: str, seen: Sequence[tuple[int, Print]]) -> list[str]:
    """What a witness saw and is not in the log as it was, and what is there and it never saw."""
    now = {stored.sequence: print_of(stored) for stored in log}
    before = dict(seen)
    order = [sequence for sequence, _ in seen]
    found = [] if order == sorted({*order}) else [f"{server} delivered out of order, or twice"]
    found += [
        f"{server} delivered {print_} at {at}, where now is {now.get(at)}"
        for at, print_ in seen
        if now.get(at) != print_
    ]
    return found + [f"{server} never delivered {at}" for at in now.keys() - before.keys()]


def delay(log: Sequence[Stored]) -> list[str]:
    """Events that are there twice: by their ids, or the same word of the same author again."""
    by_id: dict[str, int] = {}
    newest: dict[str, tuple[int, str, bytes]] = {}
    found = []
    for stored in log:
        if (first := by_id.setdefault(stored.event_id, stored.sequence)) != stored.sequence:
            found.append(f"the event {stored.event_id} is at {first} and at {stored.sequence}")
        scope, _, tag = stored.subject.rpartition(".")
        before, word, body = newest.get(scope, (0, "", b""))
        if (word, body) == (tag, stored.body):
            found.append(f"{stored.subject} says at {stored.sequence} what it said at {before}")
        newest[scope] = (stored.sequence, tag, stored.body)
    return found


def made_twice(made: Mapping[Place, Mapping[str, int]], deleted: Mapping[str, int]) -> list[str]:
    """Names under which one job had two objects, one after the other (I1).

    `made` has the versions at which they came, by uid, `deleted` those at which their owners went.  What comes after
    its owner is no double: the garbage collector takes children before anybody knows, and takes them again.
    """
    found = []
    for place, uids in made.items():
        before = [uid for uid, version in uids.items() if version < deleted.get(place.owner, version + 1)]
        if len(before) > 1:
            found.append(f"{place.kind} {place.name} of {place.owner}: {sorted(before)}")
    return found


def stale(made: Iterable[Write]) -> list[str]:
    """Of the writes of a process that was not the owner those that were accepted."""
    accepted = [write for write in made if write.code < 300]
    return [f"{write.verb} {write.what} was accepted of a process that had stood still" for write in accepted]


def late(made: Iterable[Write], token: str, after: float, before: float) -> list[Write]:
    """What a process wrote between these moments, at which it was not the owner."""
    return [write for write in made if write.token == token and after <= write.at < before]


def _by_its_clock(time: str) -> float:
    # A NATS server writes the time of its place, which is ours, and does not say which place that is.
    return datetime.strptime(time, "%Y/%m/%d %H:%M:%S.%f").astimezone().timestamp()


def seconds(time: str) -> float:
    """Since the epoch."""
    return datetime.fromisoformat(time).timestamp()
