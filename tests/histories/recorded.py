"""Histories that each release wrote, and the status documents that it made of them.

A file `<release>.jsonl.xz` has one recording a line: the history of a job, and every status document that was new at an
event.  A line is never changed: a field that a later release shows otherwise is named in a decision record.

The file of a release is written once, from histories that its tests made:

    MUSTER_HISTORIES=FOLDER python -m pytest tests/service tests/takeover
    python -m tests.histories.recorded RELEASE FOLDER

Until it is released, a change of what is shown or of the chain makes its histories anew, which is reviewed:

    python -m tests.histories.recorded RELEASE
"""

import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from services.status.core.documents import canonical, of_job, of_requests
from services.status.core.effects import PatchStatus
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.fold import History
from shared.job.naming import key_of
from shared.job.state import with_efforts
from shared.job.steps import Step
from shared.telling.reading import event_of, line_of
from tests.kit.histories import VERSIONS, chained, kinds_of, observed

FOLDER = Path(__file__).parent
LONGEST = 300
"""Events of a history that is recorded; longer ones repeat themselves."""
BUILT_IN_KINDS = {(version.resource.api_version, version.resource.kind) for version in VERSIONS}


class Document(msgspec.Struct, frozen=True, array_like=True):
    """A status document that was new at an event."""

    sequence: int
    kind: str
    uid: str
    status: dict[str, Any]
    """What the API server holds afterwards."""


class Recording(msgspec.Struct, frozen=True):
    """A history, and what the release that wrote it made of it."""

    name: str
    log: list[msgspec.Raw]
    """Events as `muster history --json` writes them."""
    documents: list[Document]

    def events(self) -> list[Stored]:
        return [event_of(bytes(line)) for line in self.log]


def recordings(release: str) -> list[Recording]:
    lines = lzma.decompress((FOLDER / f"{release}.jsonl.xz").read_bytes()).splitlines()
    return [msgspec.json.decode(line, type=Recording) for line in lines]


def documents(events: list[Stored]) -> Iterator[Document]:
    """The status documents of a job and of its requests, each at the event with which it is another one.

    Raises `ValueError` if the history is held.
    """
    kinds, shown = kinds_of(events), dict[tuple[str, str], Any]()
    history = History(key_of(Subject.parse(events[0].subject)))
    for event in events:
        history.fold(event)
        if history.held:
            raise ValueError(history.held)
        # A document that waits for its back-off is one too.
        job = with_efforts(history.job, refusals={})
        steps: list[Step] = [*(of_job(job, kinds) if kinds.knows(job) else ()), *of_requests(job)]
        for step in steps:
            if isinstance(step, PatchStatus):
                # A null only takes a field away.
                status = msgspec.json.decode(canonical(msgspec.json.decode(step.document)))
                if shown.get((step.kind, step.uid)) != status:
                    shown[step.kind, step.uid] = status
                    yield Document(event.sequence, step.kind, step.uid, status)


def record(file: Path) -> Recording | None:
    """A history that services wrote, with its documents; None if it is too long, of a kind of the tests, or held."""
    lines = file.read_bytes().splitlines()
    events = [event_of(line) for line in lines]
    # The services give other ids, and decisions a cause.
    by_hand = any(event.event_id.startswith("event-") or b'"because":0' in event.body for event in events)
    if by_hand or len(events) > LONGEST or not observed(events) <= BUILT_IN_KINDS:
        return None
    try:
        made = [*documents(events)]
    except ValueError:
        return None
    return Recording(file.name.rpartition("-")[0].rpartition(".py-")[2], [msgspec.Raw(line) for line in lines], made)


def features(recording: Recording) -> set[tuple[str, ...]]:
    """What a recording shows: types of events with their reasons, and conditions, each of a kind."""
    found: set[tuple[str, ...]] = set()
    events = recording.events()
    kind = str(sorted(observed(events)))
    for event in events:
        body = msgspec.json.decode(event.body)
        found.add((kind, body["type"], body.get("reason", ""), body.get("source", "")))
    for document in recording.documents:
        found.add((kind, document.kind, str(document.status.get("phase", ""))))
        for known in document.status.get("conditions", ()):
            found.add((kind, document.kind, known["type"], known["status"], known["reason"]))
    return found


def chosen(folder: Path) -> Iterator[Recording]:
    """The shortest histories in a folder that show together what all do."""
    seen: set[tuple[str, ...]] = set()
    found = [made for file in sorted(folder.iterdir()) if (made := record(file)) is not None]
    for recording in sorted(found, key=lambda one: (len(one.log), one.name)):
        new = features(recording) - seen
        if new:
            seen |= new
            yield recording


def again(recording: Recording) -> Recording:
    """The same history with the chain and the documents of today."""
    events = chained(recording.events())
    log = [msgspec.Raw(line_of(event).encode()) for event in events]
    return msgspec.structs.replace(recording, log=log, documents=[*documents(events)])


def main(release: str, folder: str = "") -> None:
    """Write the file of a release."""
    kept = chosen(Path(folder)) if folder else map(again, recordings(release))
    lines = b"".join(msgspec.json.encode(recording) + b"\n" for recording in kept)
    (FOLDER / f"{release}.jsonl.xz").write_bytes(lzma.compress(lines, preset=9))


if __name__ == "__main__":
    main(*sys.argv[1:])
