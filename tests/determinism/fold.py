"""Folds kept histories in this process and prints what comes out at each prefix: a process of a determinism check.

    PYTHONHASHSEED=3 python -m tests.determinism.fold LISTING            a line for each prefix of each file in LISTING
    PYTHONHASHSEED=3 python -m tests.determinism.fold FILE --at 17       the state, documents and steps themselves

A prefix has a line where the log has a decision, or where what the services owe the job is not what it was before.
"""

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from services.scaler.core import Policy
from services.scaler.core.decide import decide as scaler
from services.scheduler.core.decide import decide as scheduler
from services.status.core.decide import decide as status
from services.status.core.documents import of_job, of_requests
from shared.eventlog import Stored
from shared.eventlog.subject import Subject, is_decision
from shared.frameworks.kinds import Kinds
from shared.job.fold import History
from shared.job.naming import JobKey, key_of
from shared.job.steps import Record, Step
from shared.job.timing import next_due
from shared.telling.reading import event_of
from tests.determinism.spelling import Spelling
from tests.kit.histories import kinds_of

POLICY = Policy()


class Prefix(msgspec.Struct, frozen=True):
    """What one process makes of a history up to one event."""

    sequence: int
    state: bytes
    documents: bytes
    steps: bytes


def events_in(file: Path) -> list[Stored]:
    return [event_of(line) for line in file.read_bytes().splitlines()]


def prefixes(events: list[Stored]) -> Iterator[Prefix]:
    kinds = kinds_of(events)
    histories, spelled = dict[JobKey, History](), Spelling()
    owed: dict[JobKey, bytes] = {}
    for event in events:
        key = key_of(Subject.parse(event.subject))
        history = histories.setdefault(key, History(key))
        try:
            history.fold(event)
            steps = spelled(steps_of(history, kinds))
        except Exception as error:  # noqa: BLE001  a service holds the job, for the same reason in every process
            yield Prefix(event.sequence, spelled((history.held, history.job)), b"", type(error).__name__.encode())
            continue
        if is_decision(event.subject) or steps != owed.get(key):
            owed[key] = steps
            job = history.job
            documents = [*(of_job(job, kinds) if kinds.knows(job) else ()), *of_requests(job)]
            yield Prefix(event.sequence, spelled((history.held, job)), spelled(documents), steps)


def steps_of(history: History, kinds: Kinds) -> list[Step | int | tuple[str, int, int]]:
    """What the scheduler, the scaler and status owe a job, what made each decision, and the watcher's timers."""
    if history.held:
        return []
    job = history.job
    # Timers are "in no particular order": the watcher measures each by itself.
    timers = sorted((timer.name, timer.anchor, timer.seconds) for timer in next_due(job))
    steps = [*scheduler(job), *scaler(job, POLICY), *status(job, kinds)]
    return [*steps, *(step.because.sequence for step in steps if isinstance(step, Record)), *timers]


def main(path: Path, at: int | None) -> None:
    if at is not None:
        for prefix in prefixes(events_in(path)):
            if prefix.sequence == at:
                sys.stdout.buffer.write(b"\n".join((prefix.state, prefix.documents, prefix.steps)) + b"\n")
        return
    for file in path.read_text().splitlines():
        for prefix in prefixes(events_in(Path(file))):
            hashes = (sha256(part).hexdigest()[:16] for part in (prefix.state, prefix.documents, prefix.steps))
            print(file, prefix.sequence, *hashes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 2 else None)
