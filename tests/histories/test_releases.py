"""Logs that earlier releases wrote fold to the status documents that those releases published."""

import msgspec
import pytest

from services.status.core.documents import canonical, document_of, of_job, of_requests, with_head
from services.status.core.effects import PatchStatus
from shared.frameworks.kinds import Kinds
from shared.job.fold import Histories, History
from shared.job.milestones import MILESTONES
from tests.histories.recorded import Recording, recordings
from tests.kit.histories import VERSIONS, kinds_of, observed

RECORDINGS = recordings("0.1.0")
BEFORE_ADMISSION = ("Pending", "Refused")
"""What a job that is not admitted shows since then."""
SCALED = ("Scaling",)
"""Since then kinds without a phase show by a condition that they are scaled."""
WITHOUT_PODS = ("Restarting", "Suspended")
"""A job without pods shows no workers since then."""


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_every_status_document_of_a_release_comes_out_again(recording: Recording):
    events = recording.events()
    kinds = kinds_of(events)
    shown = [as_shown(document.encode()) for document in recording.documents]
    histories, found = Histories(), {}
    for event in events:
        history = histories.fold(event)
        assert history is not None
        assert not history.held, history.held
        found |= {(event.sequence, kind, uid): document for kind, uid, document in documents(history, kinds)}
    for sequence, kind, uid, place in recording.published:
        document = as_told(found.get((sequence, kind, uid)))
        assert document == as_told(shown[place]), f"{kind} {uid} at event {sequence}"


def documents(history: History, kinds: Kinds) -> list[tuple[str, str, str]]:
    """Kind, uid and document of the job and of its requests; a document that waits for its back-off is one too."""
    job = msgspec.structs.replace(history.job, refusals={})
    steps = [*(of_job(job, kinds) if kinds.knows(job) else ()), *of_requests(job)]
    return [(step.kind, step.uid, as_shown(step.document)) for step in steps if isinstance(step, PatchStatus)]


def as_shown(document: bytes) -> str:
    """What the API server holds afterwards: a null only takes a field away."""
    return canonical(msgspec.json.decode(document)).decode()


def as_told(status: str | None) -> str | None:
    """The document without what later versions tell in other words, or tell at all: how an MXNet job's leader ended,
    why something is waited for, and what was lost (ADR 12).
    """
    document = msgspec.json.decode(status or "null")
    if not isinstance(document, dict):
        return status
    told = {name: value for name, value in document.items() if name not in ("result", "reason")}
    kept = [
        {name: known[name] for name in ("type", "status", "reason")}
        for known in told.get("conditions", ())
        if known["type"] not in (*MILESTONES, *BEFORE_ADMISSION, *(() if "phase" in told else SCALED))
    ]
    if told.get("phase") in BEFORE_ADMISSION:
        told["phase"] = ""
    if told.get("phase") in WITHOUT_PODS:
        told |= {"workers": "", "currentWorkers": []}
    return canonical(told | {"conditions": sorted(kept, key=lambda known: str(known["type"]))}).decode()


@pytest.mark.parametrize("recording", [each for each in RECORDINGS if each.shown], ids=lambda recording: recording.name)
def test_what_the_api_server_held_at_the_end_comes_out_again(recording: Recording):
    events = recording.events()
    kinds = kinds_of(events)
    for uid, shown in recording.shown:
        head = msgspec.json.decode(shown)["history"]
        histories = Histories()
        for event in events:
            if event.sequence <= head["sequence"]:
                histories.fold(event)
        (history,) = (known for known in histories if known.job.key.uid == uid)
        status = with_head(document_of(history.job, kinds), head["log"], history.head, history.time)
        assert as_told(canonical(status).decode()) == as_told(shown)


def test_the_recordings_have_every_kind_and_every_type_of_event_of_the_release():
    events = [event for recording in RECORDINGS for event in recording.events()]
    types = {event.subject.rpartition(".")[2] for event in events}
    assert len(types) == 40
    jobs = {seen for recording in RECORDINGS for seen in observed(recording.events())}
    assert len(jobs) == 9
    assert jobs <= {(version.resource.api_version, version.resource.kind) for version in VERSIONS}
    published = {kind for recording in RECORDINGS for _, kind, _, _ in recording.published}
    assert published == {kind for _, kind in jobs} | {"ScaleOut", "ScaleIn"}
