"""The writes of users and programs that an event of the watcher tells of.  Pure."""

import msgspec

from services.audit.core.claims import CREATED, DELETED
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.events.catalog import Malformed, UnknownEvent, read_event
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import JobKey, key_of

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
    gone: bool = False
    """It is the end of a deletion, whose begin may have an event of its own."""


class Recorded(msgspec.Struct, frozen=True):
    """What an event of the watcher tells."""

    changes: tuple[Change, ...] = ()
    epoch: int | None = None
    """The epoch of the cluster's versions: the watcher counts it up when etcd was restored; None if it tells none."""


def changes(stored: Stored) -> Recorded:
    """The changes of an event; none of another author's, or of one that cannot be read."""
    try:
        subject = Subject.parse(stored.subject)
        if subject.author != "watcher" or subject.type not in TYPES:
            return Recorded()
        event = read_event(stored.body, subject.type)
    except (ValueError, Malformed, UnknownEvent):
        return Recorded()
    key = key_of(subject)
    match event:
        case JobObserved(writes=writes, epoch=epoch):
            return Recorded(tuple(Change(stored.sequence, key, key.uid, write) for write in writes), epoch)
        case ScaleRequested(uid=uid):
            return Recorded((Change(stored.sequence, key, uid, CREATED),))
        case JobDeleting() | JobGone():
            return Recorded((Change(stored.sequence, key, key.uid, DELETED, isinstance(event, JobGone)),))
    return Recorded()
