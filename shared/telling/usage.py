"""What places cost: their time and what they requested in it, by bucket, and the incidents that took most of it.  Pure.

Of one job in its report, and of the jobs of a namespace, of which one report is in memory at a time.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO

import msgspec

from shared.job.ledger import BUCKETS, CAUSES, Bucket, Cause, Ledger, Place, Stretch
from shared.job.naming import Slot
from shared.job.spec import JobSpec, is_device
from shared.job.text import counted, in_a_row, named, range_words
from shared.job.views import ranges
from shared.telemetry.metrics import seconds_between
from shared.telling.causes.links import Link
from shared.telling.causes.walk import Causes
from shared.telling.shown import Shown
from shared.telling.words import aligned

MOST_INCIDENTS = 10
"""The dearest ones are told."""
PLACES = "places"
"""In CSV, the hours of places beside those of resources."""
COLUMNS = ("namespace", "job", "uid", "bucket", "cause", "resource", "hours")

Requests = Mapping[str, Mapping[str, float]]
"""By role, what a place of it requests, by resource."""


class Share(msgspec.Struct, frozen=True, rename="camel"):
    """The time of all places of a job, or of several, in one bucket."""

    bucket: Bucket
    cause: Cause
    """Why the places were lost; empty in every other bucket."""
    seconds: float
    hours: dict[str, float] = {}
    """By resource, what the newest spec requests for them, for that time: core hours, byte hours, device hours."""


class Incident(msgspec.Struct, frozen=True, rename="camel"):
    """An event that kept places from training, and what that cost until they trained again."""

    namespace: str
    job: str
    """Such as `trainingjob/resnet`."""
    uid: str
    sequence: int
    time: str
    cause: Cause
    places: str
    """Such as `worker 0-3`."""
    nodes: tuple[str, ...]
    seconds: float
    """Of all these places."""
    hours: dict[str, float]
    """As those of a share."""
    text: str
    """The event's sentence."""


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """What the jobs of a namespace cost; `muster report --json` has these fields."""

    namespace: str
    """Empty for all."""
    since: str
    """Empty from the beginning on."""
    until: str
    jobs: int
    """Those that held a place in that time."""
    goodput: float | None
    shares: tuple[Share, ...]
    incidents: tuple[Incident, ...]
    unread: tuple[str, ...]
    """Jobs that could not be read, each with the reason; they are in no other figure."""


class Sum:
    """The usage of several jobs, told one by one."""

    def __init__(self) -> None:
        self._jobs = 0
        self._shares: dict[tuple[Bucket, Cause], Share] = {}
        self._incidents: Sequence[Incident] = ()
        self.unread: list[str] = []

    def add(self, shares: Iterable[Share], incidents: Iterable[Incident]) -> None:
        """Add what one job cost."""
        jobs = 0
        for share in shares:
            known = self._shares.get((share.bucket, share.cause), Share(share.bucket, share.cause, 0.0))
            self._shares[share.bucket, share.cause] = msgspec.structs.replace(
                known, seconds=known.seconds + share.seconds, hours=_added(known.hours, share.hours)
            )
            jobs = 1
        self._jobs += jobs
        self._incidents = dearest((*self._incidents, *incidents))

    def usage(self, namespace: str, since: str, until: str) -> Usage:
        shares = tuple(sorted(self._shares.values(), key=_longest_first))
        unread = tuple(self.unread)
        return Usage(namespace, since, until, self._jobs, goodput_of(shares), shares, tuple(self._incidents), unread)


def requests_of(spec: JobSpec | None) -> Requests:
    return {role.name: dict(role.requests) for role in spec.roles} if spec is not None else {}


def shares_of(ledger: Ledger, requests: Requests, until: str) -> list[Share]:
    """The shares of a job that took time, the longest first."""
    shares = [
        Share(*known, round(sum(of_roles.values()), 3), _hours(of_roles, requests))
        for known, of_roles in ledger.seconds(until).items()
    ]
    return sorted((share for share in shares if share.seconds), key=_longest_first)


def _longest_first(share: Share) -> float:
    return -share.seconds


def goodput_of(shares: Sequence[Share]) -> float | None:
    """The part of the time in which places trained, from 0 to 1; None if no place was held."""
    held = sum(share.seconds for share in shares)
    return round(sum(share.seconds for share in shares if share.bucket == "training") / held, 4) if held else None


def incidents_of(ledger: Ledger, requests: Requests, causes: Causes, job: Shown, until: str) -> list[Incident]:
    """The dearest incidents of a job, the dearest first."""
    lost = defaultdict[int, list[tuple[Place, Stretch]]](list)
    for place, lane in ledger.lanes.items():
        sequence, known = 0, ("", "")
        for stretch in (each for each in lane if each.bucket == "lost"):
            # Another node begins another stretch of the same loss.
            sequence = sequence if known == (stretch.cause, stretch.since) else stretch.sequence
            known = stretch.cause, stretch.until
            lost[sequence].append((place, stretch))
    found = [
        _incident(sequence, of, requests, causes, job, until) for sequence, of in _together(lost, causes, until).items()
    ]
    return dearest(each for each in found if each.seconds)


def _together(
    lost: Mapping[int, list[tuple[Place, Stretch]]], causes: Causes, until: str
) -> Mapping[int, list[tuple[Place, Stretch]]]:
    """The losses by the first of the events that led to them: of a restart, by the loss that it was for."""
    found, ends = dict[int, list[tuple[Place, Stretch]]](), dict[int, str]()
    first_of, newest = dict[int, int](), dict[Cause, int]()
    for sequence, losses in sorted(lost.items()):
        cause, since, link = losses[0][1].cause, losses[0][1].since, causes.at.get(sequence)
        led = (
            [first_of[each.sequence] for each in link.chain() if each.sequence in first_of] if link is not None else []
        )
        if link is not None and link.author != "watcher" and cause in newest:
            # A decision takes no place away: it goes on with a loss, though it names another event as its cause.
            led.append(newest[cause])
        first = next((each for each in led if ends[each] >= since and cause != "repeat"), sequence)
        first_of[sequence] = newest[cause] = first
        found.setdefault(first, []).extend(losses)
        ends[first] = max(ends.get(first, ""), *(each.until or until for _, each in losses))
    return found


def _incident(
    sequence: int, losses: list[tuple[Place, Stretch]], requests: Requests, causes: Causes, job: Shown, until: str
) -> Incident:
    of_roles, indices = defaultdict[str, float](float), defaultdict[str, set[int]](set)
    for place, stretch in losses:
        of_roles[place.role] += seconds_between(stretch.since, stretch.until or until) or 0.0
        indices[place.role].add(place.index)
    link = _link(sequence, losses, causes)
    return Incident(
        namespace=job.namespace,
        job=f"{job.called}/{job.name}",
        uid=job.uid,
        sequence=sequence,
        time=causes.times.get(sequence, ""),
        cause=losses[0][1].cause,
        places=in_a_row([f"{role} {range_words(ranges(of))}" for role, of in sorted(indices.items())]),
        nodes=tuple(sorted({stretch.node for _, stretch in losses if stretch.node})),
        seconds=round(sum(of_roles.values()), 3),
        hours=_hours(of_roles, requests),
        text=link.text if link is not None else CAUSES[losses[0][1].cause],
    )


def _link(sequence: int, losses: Sequence[tuple[Place, Stretch]], causes: Causes) -> Link | None:
    """The link of the event: where it tells of several pods, that of the first place that was lost with it."""
    for place, stretch in losses:
        for link in causes.lives.get(Slot(stretch.attempt - 1, place.role, place.index), ()):
            if link.sequence == sequence:
                return link
    return causes.at.get(sequence)


def dearest(incidents: Iterable[Incident]) -> list[Incident]:
    """Those that cost most device hours, and without devices most time of places."""
    return sorted(incidents, key=lambda each: (-sum(_devices(each.hours).values()), -each.seconds))[:MOST_INCIDENTS]


def _devices(hours: Mapping[str, float]) -> Mapping[str, float]:
    """The hours of devices, which people pay for; those of processors and memory are in JSON and CSV."""
    return {name: each for name, each in hours.items() if is_device(name)}


def _hours(of_roles: Mapping[str, float], requests: Requests) -> dict[str, float]:
    hours: dict[str, float] = {}
    for role, seconds in of_roles.items():
        hours = _added(hours, {name: each * seconds / 3600 for name, each in requests.get(role, {}).items()})
    return {name: round(each, 6) for name, each in hours.items()}


def _added(hours: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    return {**hours, **{name: hours.get(name, 0.0) + each for name, each in more.items()}}


def share_words(share: Share, held: float) -> tuple[str, str, str]:
    """A share as cells, of the seconds that all places were held."""
    part = f"{100 * share.seconds / held:.0f} %" if held else ""
    why = f": {CAUSES[share.cause]}" if share.cause else ""
    return lasted(share.seconds), part, f"{BUCKETS[share.bucket]}{why}{_hours_words(share.hours)}"


def incident_words(incident: Incident) -> tuple[str, ...]:
    """An incident as cells: its sequence, its time, the seconds of its places, the places, and what happened."""
    nodes = f" on {named([*incident.nodes])}" if incident.nodes else ""
    what = f"{incident.text}{_hours_words(incident.hours)}"
    return str(incident.sequence), incident.time[:19], lasted(incident.seconds), f"{incident.places}{nodes}", what


def lasted(seconds: float) -> str:
    return f"{seconds:.{1 if seconds < 10 else 0}f} s"


def _hours_words(hours: Mapping[str, float]) -> str:
    return "".join(f"; {each:.2f} {name} hours" for name, each in _devices(hours).items())


def usage_lines(found: Usage, *, as_json: bool) -> Iterator[str]:
    """The usage as JSON, or as lines for people."""
    if as_json:
        yield msgspec.json.format(msgspec.json.encode(found)).decode()
        return
    where = f"namespace {found.namespace}" if found.namespace else "all namespaces"
    goodput = "" if found.goodput is None else f"; of the time of their places they trained {100 * found.goodput:.0f} %"
    yield f"{where}{f' since {found.since[:19]}' if found.since else ''}: {counted(found.jobs, 'job')}{goodput}"
    held = sum(share.seconds for share in found.shares)
    blocks: tuple[tuple[tuple[str, ...], list[tuple[str, ...]]], ...] = (
        (("FOR", "PART", "PLACES"), [share_words(each, held) for each in found.shares]),
        (
            ("JOB", "SEQUENCE", "TIME", "FOR", "INCIDENT", ""),
            [(f"{each.namespace}/{each.job}", *incident_words(each)) for each in found.incidents],
        ),
    )
    for columns, rows in blocks:
        if rows:
            yield ""
            yield from aligned([columns, *rows])


def csv_lines(job: Shown, shares: Iterable[Share]) -> Iterator[str]:
    """The shares of a job below `COLUMNS`: a line for each resource, and one for the places themselves."""
    of = job.namespace, f"{job.called}/{job.name}", job.uid
    for share in shares:
        for name, hours in {PLACES: share.seconds / 3600, **share.hours}.items():
            yield csv_line((*of, share.bucket, share.cause, name, f"{hours:.6f}"))


def csv_line(cells: Sequence[str]) -> str:
    line = StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
