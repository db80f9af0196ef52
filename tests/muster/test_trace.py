"""`muster trace`: a job's life as one trace of OpenTelemetry, the same one each time that it is sent."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from muster.page.drawing import Drawing, drawn
from muster.trace import MOST_EVENTS, _spans, recorded, sent, spans_of, trace_id
from shared.errors import Refused, Transient
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleFailed
from shared.job.events.status import JobFailed
from shared.job.events.watcher import JobGone, NodeBack, NodeLost, PodsGone
from shared.job.naming import NO_UID, JobKey, Uid, key_of
from shared.telling.targets import parse_target
from tests.histories.recorded import Recording, recordings
from tests.kit.builders import R1, a_running_job, a_spec, observed, pods, scaling_out, worker, workers
from tests.kit.histories import KEY, log_of

AWAY = 37
OUTAGE = NodeLost(node="gpu-7", uids=(Uid("pod-1"),), reason="NodeUnreachable")
LIFE = [
    *a_running_job(2),
    pods(worker(1, version=12, node="gpu-7")),
    OUTAGE,
    *[observed(a_spec(2))] * (AWAY - 1),
    NodeBack(node="gpu-7", uids=OUTAGE.uids),
]
END = [
    *scaling_out(2),
    ScaleFailed(request=R1, reason="ScalingTimeout", released=(workers(2),)),
    JobFailed(reason="Crash", message="it <failed>"),
    JobGone(version=90),
    PodsGone(uids=tuple(Uid(f"pod-{number}") for number in ("launcher", 0, 1))),
]


def key_of_life(log: Sequence[Stored]) -> JobKey:
    return key_of(Subject.parse(log[0].subject))


def drawing_of(log: Sequence[Stored]) -> Drawing:
    key = key_of_life(log)
    return drawn(log, parse_target(f"job/{key.name}"), BUILT_IN, until=log[-1].time)


def drawing(*events: AnyEvent) -> Drawing:
    """The job of these events, one a second."""
    return drawing_of(log_of(events))


def by_name(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


LIVES = [life for life in recordings("0.1.0") if key_of_life(life.events()).uid != NO_UID]


@asynccontextmanager
async def a_receiver(*answers: int) -> AsyncIterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """One that answers so, the last answer for ever, and what it was sent."""
    taken: list[ExportTraceServiceRequest] = []
    left = [*answers]

    async def take(request: web.Request) -> web.Response:
        taken.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(status=left.pop(0) if len(left) > 1 else left[0])

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", taken
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_every_recorded_life_is_a_tree_of_spans_with_ids_of_their_own(life: Recording):
    told = drawing_of(life.events())
    spans, keys = recorded(told), {span.key for span in _spans(told)}
    assert {span.parent for span in spans_of(told)} <= keys | {""}
    contexts = {span.context.span_id: span for span in spans}
    assert len(contexts) == len(spans)
    assert len({span.context.trace_id for span in spans}) <= 1
    roots = [span for span in spans if span.parent is None]
    for span in spans if roots else ():
        assert seconds(span) >= 0
        assert span.parent is None or span.parent.span_id in contexts
    assert len(roots) <= 1


def test_an_outage_of_37_seconds_is_a_span_of_its_place_with_its_node():
    spans = recorded(drawing(*LIFE, *END))
    (outage,) = (span for span in spans if span.name == "lost")
    assert seconds(outage) == AWAY
    assert outage.status.status_code is StatusCode.ERROR
    assert outage.attributes is not None
    assert outage.attributes["k8s.node.name"] == "gpu-7"
    assert outage.parent == by_name(spans)["worker 1"].context


def test_the_root_lasts_from_the_first_event_to_the_last_pod_and_says_why_the_job_failed():
    told = drawing(*LIFE, *END)
    spans = by_name(recorded(told))
    root = spans["trainingjob/resnet"]
    assert root.parent is None
    assert seconds(root) == len(LIFE) + len(END) - 1
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "it <failed>")
    assert {"Created", "Running", "attempt 1", "ScaleOut scaleout-request-1", "launcher 0", "worker 0"} <= {*spans}
    assert "Failed" not in spans
    assert spans["ScaleOut scaleout-request-1"].status.status_code is StatusCode.ERROR


def test_each_event_stands_in_the_root_with_its_sentence_and_its_cause():
    told = drawing(*LIFE, *END)
    events = by_name(recorded(told))["trainingjob/resnet"].events
    assert len(events) == len(LIFE) + len(END)
    admitted = next(event for event in events if event.name == "JobCreated")
    assert admitted.attributes == {
        "muster.text": "the job is admitted (TrainingJobCreated)",
        "muster.author": "status",
        "muster.sequence": 2,
        "muster.because": 1,
    }
    assert admitted.timestamp == 1_893_456_002_000_000_000


def test_what_lasts_comes_with_its_id_once_it_is_over():
    # Worker 2 has no place any more, and may have one again.
    first = recorded(
        drawing(*LIFE, *scaling_out(2), ScaleFailed(request=R1, reason="ScalingTimeout", released=(workers(2),)))
    )
    early, last = (
        {each.context.span_id: each.to_json() for each in of} for of in (first, recorded(drawing(*LIFE, *END)))
    )
    assert {number: last[number] for number in early} == early
    assert {"Created", "lost", "ScaleOut scaleout-request-1"} <= {span.name for span in first}
    assert not {"trainingjob/resnet", "attempt 1", "worker 2"} & {span.name for span in first}


def test_a_request_of_a_job_that_is_gone_ends_with_the_root():
    told = drawing(*LIFE, *scaling_out(2), *END[-2:])
    spans = by_name(recorded(told))
    assert len(spans) == len({span.name for span in _spans(told)})
    assert spans["ScaleOut scaleout-request-1"].end_time == spans["trainingjob/resnet"].end_time


def test_what_the_environment_bounds_elsewhere_is_sent_whole_or_refused(monkeypatch: pytest.MonkeyPatch):
    told = drawing(*LIFE, *END)
    whole = [span.to_json() for span in recorded(told)]
    for bound in ("COUNT", "VALUE_LENGTH"):
        for about in ("ATTRIBUTE", "SPAN_ATTRIBUTE", "EVENT_ATTRIBUTE"):
            monkeypatch.setenv(f"OTEL_{about}_{bound}_LIMIT", "1")
    assert [span.to_json() for span in recorded(told)] == whole
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with pytest.raises(Refused, match="unset OTEL_SDK_DISABLED"):
        recorded(told)


def test_a_trace_is_found_by_the_uid_of_its_job():
    assert f"{trace_id('4be2fa0a-8e3a-4a8b-9d0e-5a4f1a7c2b11'):032x}" == "4be2fa0a8e3a4a8b9d0e5a4f1a7c2b11"
    assert trace_id("uid-1") != trace_id("uid-2")


def test_the_root_of_a_long_life_has_the_newest_events():
    root = by_name(recorded(drawing(*LIFE, *[observed(a_spec(2))] * MOST_EVENTS, *END)))["trainingjob/resnet"]
    assert len(root.events) == MOST_EVENTS
    assert root.dropped_events == len(LIFE) + len(END)
    assert root.events[-1].name == "PodsGone"


async def test_a_receiver_of_otlp_gets_every_span_and_one_that_fails_is_said(monkeypatch: pytest.MonkeyPatch):
    told = drawing(*LIFE, *END)
    monkeypatch.setattr("muster.trace.AT_ONCE", 5)
    async with a_receiver(503, 200) as (url, taken):
        number = await sent(told, f"{url}/")
    [*names] = (span.name for request in taken[1:] for of in request.resource_spans[0].scope_spans for span in of.spans)
    assert names == [span.name for span in recorded(told)]
    assert len(names) == number > 5
    of = {each.key: each.value.string_value for each in taken[-1].resource_spans[0].resource.attributes}
    assert (of["service.name"], of["muster.uid"], of["k8s.namespace.name"]) == ("muster", KEY.uid, "team-a")
    async with a_receiver(400) as (url, _):
        with pytest.raises(Transient, match=f"{url} takes no trace; after 0 spans of {number} it failed"):
            await sent(told, url)
