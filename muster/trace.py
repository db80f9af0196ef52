"""`muster trace`: a job's life as one trace of OpenTelemetry, from its history alone.

Its spans are the parts of `muster report`, and their events those of the log, each with its sentence.  All ids are made
of the job's uid and of what a span is about, so that a trace that is sent again is the same one.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from muster.forward import place
from muster.history import events_now
from muster.page.drawing import Drawing, Told, drawn
from muster.terminal import say
from shared.errors import Refused, Transient
from shared.job.ledger import CAUSES
from shared.job.reasons import plain
from shared.job.text import counted
from shared.process.settings import Settings
from shared.release import this_release
from shared.runtime.appends import stamp
from shared.telling.targets import Asked, known_kinds

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PATH = "/v1/traces"
MOST_EVENTS = 1000
"""The most events of a span, the newest: receivers refuse large requests."""
AT_ONCE = 256
"""The most spans of a request."""
ROOT = "job"
Attributes = dict[str, str | int]
_UNBOUNDED = (
    *("max_attributes", "max_span_attributes", "max_event_attributes"),
    *("max_attribute_length", "max_span_attribute_length"),
)
"""What the environment may bound elsewhere, and a trace has whole."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(NamedTuple):
    """A part of a job's life that is over."""

    key: str
    """What it is about, of which its id is made."""
    parent: str
    """The key of the span that it is a part of; empty of the root."""
    name: str
    sequence: int
    """That of the event with which it began."""
    since: str
    until: str
    attributes: Attributes
    fault: str = ""
    """What went wrong in it; empty otherwise."""
    events: Sequence[Told] = ()


def spans_of(drawing: Drawing) -> list[Span]:
    """The parts of a job's life that are over; the whole of it, too, once the job is over and holds no place.

    An event with a time that cannot be read begins and ends none.
    """
    *parts, root = _spans(drawing)
    if root.until:
        # A request of a job that is gone has no end of its own.
        ends = (part.until or max(part.since, root.until, key=_nanoseconds) for part in parts)
        parts = [part._replace(until=end) for part, end in zip(parts, ends, strict=True)]
    return [span for span in (*parts, root) if _nanoseconds(span.since) and _nanoseconds(span.until)]


def _spans(drawing: Drawing) -> Iterator[Span]:
    report, told = drawing.report, [drawing.links[at] for at in drawing.events]
    last = report.phases[-1] if report.phases and report.job.over else None
    for phase in report.phases[: -1 if last else None]:
        about: Attributes = {"reason": phase.reason, "message": phase.message}
        yield Span(f"phase/{phase.sequence}", ROOT, phase.phase, phase.sequence, phase.since, phase.until, about)
    for tried in report.attempts:
        about = {"reason": tried.reason, "counted": tried.counted, "pods": tried.pods}
        name = f"attempt {tried.number}"
        yield Span(f"attempt/{tried.sequence}", ROOT, name, tried.sequence, tried.since, tried.until, about)
    for asked in report.scalings:
        about = {"before": asked.before, "after": asked.after, "phase": asked.phase, "reason": asked.reason}
        name, fault = f"{asked.kind} {asked.name}".rstrip(), plain(asked.reason) if asked.phase == "Failed" else ""
        yield Span(f"scaling/{asked.sequence}", ROOT, name, asked.sequence, asked.since, asked.until, about, fault)
    ended = last.since if last else told[-1].time if report.job.gone else ""
    ends = [ended, *(lane.stretches[-1].until for lane in report.places)]
    for lane in report.places:
        key, first, newest = f"{lane.role}/{lane.index}", lane.stretches[0], lane.stretches[-1]
        for each in lane.stretches:
            about = {"attempt": each.attempt, "cause": each.cause, "k8s.node.name": each.node}
            fault = CAUSES[each.cause] if each.cause else ""
            yield Span(f"{key}/{each.sequence}", key, each.bucket, each.sequence, each.since, each.until, about, fault)
        life = [drawing.links[at] for at in drawing.lives.get(key, ())]
        # While the job lives, the place may be held again.
        until = newest.until if ended else ""
        yield Span(key, ROOT, f"{lane.role} {lane.index}", first.sequence, first.since, until, {}, events=life)
    until = max(ends, key=_nanoseconds) if all(ends) else ""
    fault = last.message or plain(last.reason) if last and last.phase == "Failed" else ""
    name = f"{report.job.called}/{report.job.name}"
    yield Span(ROOT, "", name, told[0].sequence, told[0].time, until, {}, fault, told)


def trace_id(uid: str) -> int:
    """The trace of a job, which in hexadecimal is its uid without hyphens; of another form of uid a hash."""
    try:
        return UUID(uid).int
    except ValueError:
        return _hash(uid, 16)


def recorded(drawing: Drawing) -> "tuple[ReadableSpan, ...]":
    """The spans of a job as exporters of OpenTelemetry take them."""
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

    job = drawing.report.job

    class Ids(IdGenerator):
        key = ROOT

        def generate_trace_id(self) -> int:
            return trace_id(job.uid)

        def generate_span_id(self) -> int:
            return _hash(f"{job.uid}/{self.key}", 8)

    about = {"k8s.namespace.name": job.namespace, "muster.kind": job.kind, "muster.name": job.name}
    ids, ended = Ids(), InMemorySpanExporter()
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create({"service.name": "muster", **about, "muster.uid": job.uid}),
        id_generator=ids,
        span_limits=SpanLimits(max_events=MOST_EVENTS, **dict.fromkeys(_UNBOUNDED, SpanLimits.UNSET)),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(ended))
    tracer = provider.get_tracer("muster", this_release())
    spans = spans_of(drawing)
    for span in spans:
        within = Context()
        if span.parent:
            ids.key = span.parent
            parent = SpanContext(trace_id(job.uid), ids.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED))
            within = set_span_in_context(NonRecordingSpan(parent), within)
        ids.key = span.key
        known = _attributes(span.attributes | {"sequence": span.sequence})
        made = tracer.start_span(span.name, within, attributes=known, start_time=_nanoseconds(span.since))
        for told in span.events:
            because = drawing.links[told.cause].sequence if told.cause is not None else ""
            said: Attributes = {"text": told.text, "author": told.author, "sequence": told.sequence, "because": because}
            made.add_event(told.type, _attributes(said), _nanoseconds(told.time))
        if span.fault:
            made.set_status(Status(StatusCode.ERROR, span.fault))
        made.end(_nanoseconds(span.until))
    made_all = ended.get_finished_spans()
    if len(made_all) != len(spans):
        raise Refused("OpenTelemetry records no spans here: unset OTEL_SDK_DISABLED", reason="Invalid")
    return made_all


async def trace(asked: Asked, namespace: str, settings: Settings, *, uid: str, nats: bool, to: str) -> None:
    """Send the trace of a job as it is now.  Raises `Trouble` if there is no such job, or if it is not taken."""
    events = await events_now(asked, namespace, settings, uid=uid, nats=nats)
    drawing = drawn(events, asked, known_kinds(), until=stamp(datetime.now(UTC)))
    number = await sent(drawing, to)
    say(f"{counted(number, 'span')} of the trace {trace_id(drawing.report.job.uid):032x} sent to {place(to)}")


async def sent(drawing: Drawing, to: str) -> int:
    """Send the spans of a job, and return their number.  Raises `Trouble` if they are not taken."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError as error:
        raise Refused("a trace takes packages of its own: pip install 'muster[otel]'", reason="NotFound") from error
    spans, exporter = recorded(drawing), OTLPSpanExporter(to.rstrip("/") + PATH)
    try:
        for at in range(0, len(spans), AT_ONCE):
            taken = await asyncio.to_thread(exporter.export, spans[at : at + AT_ONCE])
            if taken is not SpanExportResult.SUCCESS:
                raise Transient(f"{place(to)} takes no trace; after {counted(at, 'span')} of {len(spans)} it failed")
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]
    return len(spans)


def _attributes(known: Attributes) -> Attributes:
    """Those that have a value, by their names in OpenTelemetry."""
    return {name if "." in name else f"muster.{name}": value for name, value in known.items() if value != ""}


def _hash(words: str, size: int) -> int:
    return int.from_bytes(sha256(words.encode()).digest()[:size])


def _nanoseconds(time: str) -> int:
    """Since 1970; 0 for a time that cannot be read."""
    try:
        return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError):
        return 0
