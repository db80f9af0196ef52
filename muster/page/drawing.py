"""A job as the page draws it: its report, and each event with its sentence and its cause.

`muster report --html` writes that into one file, which opens without a server and loads nothing.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

import msgspec

from muster.history import events_now
from shared.errors import Refused
from shared.eventlog import Stored
from shared.eventlog.subject import Subject, names_people
from shared.frameworks.kinds import Kinds
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.watcher import ProgressReported
from shared.job.ledger import BUCKETS, CAUSES, Bucket, Cause
from shared.job.naming import JobKey, key_of
from shared.job.state import Job
from shared.process.settings import Settings
from shared.runtime.appends import stamp
from shared.telling.causes.links import Link
from shared.telling.report import Life, Report, report_lines, reported
from shared.telling.targets import Asked, find, known_kinds
from shared.telling.why import explained
from shared.telling.words import said
from shared.untrusted import MALFORMED


class Told(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An event in a sentence; of an event about several pods, one for each."""

    sequence: int
    time: str
    type: str
    author: str
    text: str
    cause: int | None
    """The place of its cause in `Drawing.links`."""
    unknown: str
    """The cause that must exist and is not in the log."""


class Chain(msgspec.Struct, frozen=True):
    """A question or a name, and the places of its links in `Drawing.links`."""

    title: str
    links: tuple[int, ...]


class Progress(msgspec.Struct, frozen=True, gc=False):
    """What the training said of itself at a moment."""

    time: str
    values: dict[str, float]
    """The step, and the metrics that are numbers."""

    @classmethod
    def of(cls, report: ProgressReported, time: str) -> "Progress":
        values = {} if report.step is None else {"step": float(report.step)}
        for name, text in report.metrics:
            with suppress(ValueError):
                if isfinite(number := float(text)):
                    values.setdefault(name, number)
        return cls(time, values)


class Drawing(msgspec.Struct, frozen=True):
    """All that the page shows of a job."""

    heading: tuple[str, ...]
    """The first lines of `muster why`."""
    report: Report
    why: tuple[Chain, ...]
    """The answers of `muster why`."""
    links: tuple[Told, ...]
    events: tuple[int, ...]
    """By event in the order of the log, its place in `links`."""
    lives: dict[str, tuple[int, ...]]
    """By place, such as `worker/3`, what happened to its pods over all attempts."""
    requests: tuple[Chain, ...]
    """By scale request, what happened to it."""
    progress: tuple[Progress, ...] = ()
    buckets: dict[Bucket, str] = msgspec.field(default_factory=BUCKETS.copy)
    causes: dict[Cause, str] = msgspec.field(default_factory=CAUSES.copy)


class Version(NamedTuple):
    """How far a sketch had come with a drawing."""

    sketch: str
    """Its id: another sketch has other places."""
    links: int
    """The links that stay where they are in its later drawings."""
    events: int
    progress: int


class Sketched(Drawing, frozen=True, kw_only=True):
    """A drawing that later ones go on from."""

    version: Version
    since: Version | None = None
    """The version that a browser has: links, events and progress are those after it.

    `lives` has the places with new links: how many of the known ones stay, and those that follow.
    """


def news_since(drawing: Sketched, known: str) -> Sketched:
    """What is new after a version, as JSON; all of it after that of another sketch, or of none."""
    version = drawing.version
    try:
        then = msgspec.json.decode(known, type=Version)
    except MALFORMED:
        return drawing
    if then.sketch != version.sketch or not all(0 <= at <= now for at, now in zip(then[1:], version[1:], strict=True)):
        return drawing
    lives = dict[str, tuple[int, ...]]()
    for place, links in drawing.lives.items():
        # Each link of a new event comes after all that were known.
        same = next((at for at, link in enumerate(links) if link >= then.links), len(links))
        if same < len(links):
            lives[place] = (same, *links[same:])
    return msgspec.structs.replace(
        drawing,
        links=drawing.links[then.links :],
        events=drawing.events[then.events :],
        progress=drawing.progress[then.progress :],
        lives=lives,
        since=then,
    )


AT_ONCE = 2_000
"""Things of a list in a piece of JSON."""


def pieces(drawing: Drawing, shape: type[Drawing] = Sketched) -> Iterator[bytes]:
    """The drawing as JSON, in pieces: as a whole it is as large as all events, and takes as long as many answers."""
    before = b"{"
    for field in msgspec.structs.fields(shape):
        yield before + msgspec.json.encode(field.encode_name) + b":"
        value, before = getattr(drawing, field.name), b","
        if not isinstance(value, tuple) or isinstance(value, Version):
            yield msgspec.json.encode(value)
            continue
        for at in range(0, len(value), AT_ONCE):
            yield (b"," if at else b"[") + msgspec.json.encode(value[at : at + AT_ONCE])[1:-1]
        yield b"]" if value else b"[]"
    yield b"}"


class _Places:
    """Links by their place in one list; each comes after its cause."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._known: dict[int, tuple[int, Link]] = {}

    def of(self, link: Link) -> int:
        new = []
        for each in link.chain():
            if id(each) in self._known:
                break
            new.append(each)
        for each in reversed(new):
            cause = self._known[id(each.cause)][0] if each.cause is not None else None
            # With the link itself, so that no other has its id.
            self._known[id(each)] = len(self.told), each
            self.told.append(Told(each.sequence, each.time, each.type, each.author, each.text, cause, each.unknown))
        return self._known[id(link)][0]

    def each_of(self, links: Iterable[Link]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(map(self.of, links)))

    def forget(self, count: int) -> None:
        """Keep the first `count` of them."""
        while len(self.told) > count:
            self.told.pop()
            self._known.popitem()


class _Life(Life):
    """A job's life with its progress."""

    def __init__(self, key: JobKey) -> None:
        super().__init__(key)
        self.progress: list[Progress] = []

    def note(self, before: Job, event: AnyEvent, after: Job, at: At) -> None:
        super().note(before, event, after, at)
        if isinstance(event, ProgressReported) and not event.backwards:
            self.progress.append(Progress.of(event, at.time))


class Sketch:
    """What was drawn of a job's events so far: a long history is folded once, and then from its last event on."""

    def __init__(self) -> None:
        self.id = token_hex(8)
        self._life: _Life | None = None
        self._places = _Places()
        self._events: list[int] = []

    def go_on(self, events: Sequence[Stored]) -> tuple[_Life, _Places, list[int]]:
        """Fold those of all these events that are new."""
        new = events[len(self._events) :]
        # What fails in the middle of an event is no beginning for the next one.
        life, self._life = self._life, None
        if life is None:
            life, new = _Life(key_of(Subject.parse(events[0].subject))), events
        for stored in new:
            life.fold(stored)
        if new is events or any(names_people(stored.subject) for stored in new):
            # Who made a change is in its sentence.
            self.id, self._places, self._events, new = token_hex(8), _Places(), [], events
        at = life.causes.at
        self._events += [self._places.of(at.get(stored.sequence) or _untold(stored)) for stored in new]
        self._life = life
        return life, self._places, self._events


def drawn(
    events: Sequence[Stored], asked: Asked, kinds: Kinds, *, until: str, sketch: Sketch | None = None
) -> Sketched:
    """The drawing of a job from all its events, which go on with those of the sketch's former drawing.

    Raises `Refused` if there are no events, or none of what is asked for.
    """
    if not events:
        raise Refused(f"no event of {asked.kind}/{asked.name} came: ask again", reason="NotFound")
    sketch = sketch or Sketch()
    life, places, of_events = sketch.go_on(events)
    causes = life.causes
    target, _ = find([causes.history], asked, causes.job.key.namespace)
    lives: dict[str, list[Link]] = {}
    for slot, links in causes.lives.items():
        lives.setdefault(f"{slot.role}/{slot.index}", []).extend(links)
    of_places = {place: places.each_of(links) for place, links in lives.items()}
    requests = tuple(
        Chain(f"{causes.known[uid].kind} {causes.known[uid].name}", places.each_of(links))
        for uid, links in causes.requests.items()
        if uid in causes.known
    )
    kept = len(places.told)
    heading, chains = explained(causes, "", target)
    # Some of these links are worded anew for each drawing.
    why = tuple(Chain(chain.question, places.each_of(chain.links)) for chain in chains)
    told = tuple(places.told)
    places.forget(kept)
    return Sketched(
        tuple(heading),
        reported(life, kinds, until=until),
        why=why,
        events=tuple(of_events),
        lives=of_places,
        requests=requests,
        links=told,
        progress=tuple(life.progress),
        version=Version(sketch.id, kept, len(of_events), len(life.progress)),
    )


def _untold(stored: Stored) -> Link:
    """An event without news for people, by its fields."""
    subject = Subject.parse(stored.subject)
    return Link(stored.sequence, stored.time, subject.type, subject.author, said(stored.body, subject.type))


START = """
const view = new JobView();
document.getElementById("main").replaceChildren(view.root);
view.show(JSON.parse(document.getElementById("drawing").textContent));
"""


async def write(path: Path, asked: Asked, namespace: str, settings: Settings, *, uid: str, nats: bool) -> None:
    """Write the drawing of a job as it is now.  Raises `Trouble` as `muster report` does."""
    events = await events_now(asked, namespace, settings, uid=uid, nats=nats)
    text = written(drawn(events, asked, known_kinds(), until=stamp(datetime.now(UTC))))
    try:
        await asyncio.to_thread(path.write_text, text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"write {path}: {error.strerror}", reason="NotWritten") from error


def written(drawing: Drawing) -> str:
    """The file.  Its policy lets run these scripts alone, by their hashes."""
    script, style = f"{asset('draw.js')}{START}", asset("page.css")
    # Inside of a script's element only `<` can end it.
    data = b"".join(pieces(drawing, Drawing)).decode().replace("<", "\\u003c")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src blob: data:"
    text = "\n".join(report_lines(drawing.report, as_json=False))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(drawing.report.job.name)} - Muster</title><style>{style}</style>"
        f'<body><main id="main"><pre>{escape(text)}</pre></main>'
        f'<script type="application/json" id="drawing">{data}</script><script type="module">{script}</script>'
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


TYPES = {"page.js": "text/javascript", "draw.js": "text/javascript", "page.css": "text/css"}
"""The files below `static`, with their types."""


def asset(name: str) -> str:
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")
