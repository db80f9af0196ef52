"""Logs that earlier releases wrote fold to the status documents that those releases published."""

import msgspec
import pytest

from services.status.core.documents import canonical, document_of, of_job, of_requests, with_head
from services.status.core.effects import PatchStatus
from shared.frameworks.kinds import Kinds
from shared.job.fold import Histories, History
from tests.histories.recorded import Recording, recordings
from tests.kit.histories import VERSIONS, kinds_of, observed

RECORDINGS = recordings("0.1.0")


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
        document = as_told(found.get((sequence, kind, uid)), shown[place])
        assert document == shown[place], f"{kind} {uid} at event {sequence}"


def documents(history: History, kinds: Kinds) -> list[tuple[str, str, str]]:
    """Kind, uid and document of the job and of its requests; a document that waits for its back-off is one too."""
    job = msgspec.structs.replace(history.job, refusals={})
    steps = [*(of_job(job, kinds) if kinds.knows(job) else ()), *of_requests(job)]
    return [(step.kind, step.uid, as_shown(step.document)) for step in steps if isinstance(step, PatchStatus)]


def as_shown(document: bytes) -> str:
    """What the API server holds afterwards: a null only takes a field away."""
    return canonical(msgspec.json.decode(document)).decode()


def as_told(found: str | None, published: str) -> str | None:
    """The document without what the release did not tell: how an MXNet job's leader ended, lost workers, and waiting
    (ADR 12).
    """
    document, before = msgspec.json.decode(found or "null"), msgspec.json.decode(published)
    if isinstance(document, dict) and "result" not in before:
        document.pop("result", None)
        found = canonical(document).decode()
    if document is None or len(document.get("conditions", ())) != len(before.get("conditions", ())):
        return found
    for condition, known in zip(document.get("conditions", ()), before.get("conditions", ()), strict=True):
        if " and is not replaced (" in condition["message"]:
            condition |= {"message": known["message"], "lastUpdateTime": known["lastUpdateTime"]}
        elif condition["type"] == "Pending":
            condition["message"] = known["message"]
    return canonical(document).decode()


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
        assert as_told(canonical(status).decode(), shown) == shown


def test_the_recordings_have_every_kind_and_every_type_of_event_of_the_release():
    events = [event for recording in RECORDINGS for event in recording.events()]
    types = {event.subject.rpartition(".")[2] for event in events}
    assert len(types) == 40
    jobs = {seen for recording in RECORDINGS for seen in observed(recording.events())}
    assert len(jobs) == 9
    assert jobs <= {(version.resource.api_version, version.resource.kind) for version in VERSIONS}
    published = {kind for recording in RECORDINGS for _, kind, _, _ in recording.published}
    assert published == {kind for _, kind in jobs} | {"ScaleOut", "ScaleIn"}
