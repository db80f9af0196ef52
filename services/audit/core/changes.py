"""The changes that the watcher recorded and that somebody made.  Pure."""

from collections.abc import Iterator

import msgspec

from services.audit.core.claims import CREATED, DELETED
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import JobKey, key_of
from shared.job.upcast import Malformed, UnknownEvent, read_event

TYPES = tuple(str(kind.__struct_config__.tag) for kind in (JobObserved, ScaleRequested, JobDeleting, JobGone))
"""The watcher's events that are changes of people and programs."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write that an event of the watcher tells of."""

    sequence: int
    key: JobKey
    uid: str
    """That of the object: the job, or a request."""
    write: int
    """As in a claim."""


def changes(stored: Stored) -> Iterator[Change]:
    """The changes of an event; none of another author's, or of one that cannot be read."""
    try:
        subject = Subject.parse(stored.subject)
        if subject.author != "watcher" or subject.type not in TYPES:
            return
        event = read_event(stored.body, subject.type)
    except (ValueError, Malformed, UnknownEvent):
        return
    key = key_of(subject)
    match event:
        case JobObserved(writes=writes):
            yield from (Change(stored.sequence, key, key.uid, write) for write in writes)
        case ScaleRequested(uid=uid):
            yield Change(stored.sequence, key, uid, CREATED)
        case JobDeleting() | JobGone():
            yield Change(stored.sequence, key, key.uid, DELETED)
