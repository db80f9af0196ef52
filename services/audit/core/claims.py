"""Writes of users and programs: claims of the API server's audit events, and changes that the watcher recorded.  Pure.

A claim is what one audit event says about who wrote which version of which object.  Only a write that changed something
counts.  An edit without a change is answered with the version that somebody else wrote; the policy of
`shared/installation/auditing.py` notes in the audit event which of the two it was.
"""

from collections.abc import Collection, Iterable, Iterator
from sys import getsizeof
from typing import Annotated

import msgspec

from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job import text
from shared.job.events.catalog import Malformed, UnknownEvent, read_event
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import AUDIT_POLICY, WRITE_CHANGED, WRITE_UNCHANGED, JobKey, key_of
from shared.untrusted import MALFORMED, parts, whole_number

CREATED, DELETED = 0, -1
"""In the place of a version: a uid is created once, and deleted once."""

MOST_GROUPS = 50
LONGEST_NAME = 1024
"""Characters of a user or a group; a shortened name would be another one's."""
LONGEST_AGENT = 256
LONGEST_ID = 128

VERSION_DIGITS = 19

_AROUND = 768
"""Bytes that a claim takes beside its words, with its places in the matcher."""

SCALE = "scale"

Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
Id = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Who wrote this version of the object with this uid."""

    namespace: str
    uid: str
    write: int
    """The version that the write made, or `CREATED`, or `DELETED`."""
    user: str
    groups: tuple[str, ...]
    acting_as: str
    agent: str
    audit: str

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        words = (self.uid, self.user, self.acting_as, self.agent, self.audit, *self.groups)
        return _AROUND + sum(map(getsizeof, words)) + 16 * len(self.groups)


class _User(msgspec.Struct):
    username: Name = ""
    groups: tuple[str, ...] = ()


class _Reference(msgspec.Struct, rename="camel"):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: Name = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Metadata(msgspec.Struct, rename="camel"):
    uid: Id = ""
    resource_version: str = ""


class _Details(msgspec.Struct):
    uid: Id = ""


class _Response(msgspec.Struct):
    """The object that the API server answered with; a `Status` if it is gone."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    details: _Details | None = None


class _Event(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(default="", name="auditID")
    stage: str = ""
    verb: str = ""
    user: _User = msgspec.field(default_factory=_User)
    impersonated_user: _User | None = None
    user_agent: str = ""
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    response_object: _Response | None = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


_list = msgspec.json.Decoder(_List)
_event = msgspec.json.Decoder(_Event)


def claims(body: bytes, kinds: Collection[tuple[str, str]], *, groups: bool = False) -> Iterator[Claim]:
    """The claims in a list of audit events about these kinds, by group and plural.  Raises one of `MALFORMED`.

    Without `groups` a claim has no groups of its user: the name says whom to ask.

    An event that cannot be read is left out: a later one may be about another object.
    """
    for raw in _items(body):
        try:
            found = _claim(_event.decode(raw), kinds)
        except MALFORMED:
            continue
        if found is not None:
            yield found if groups else msgspec.structs.replace(found, groups=())


def _items(body: bytes) -> list[msgspec.Raw]:
    try:
        return _list.decode(body).items
    except RecursionError:
        # One object is nested too deeply; the others count.
        return [item for name, items in parts(body) if name == "items" for _, item in parts(items)]


def _claim(event: _Event, kinds: Collection[tuple[str, str]]) -> Claim | None:
    about, status, response = event.object_ref, event.response_status, event.response_object
    if about is None or status is None or response is None or not event.user.username:
        return None
    if event.stage != "ResponseComplete" or not 200 <= status.code < 300:
        return None
    if (about.api_group, about.resource) not in kinds or about.subresource not in ("", SCALE):
        return None
    notes = _notes(event.annotations)
    if WRITE_CHANGED not in notes or WRITE_UNCHANGED in notes:
        return None
    uid, write = response.metadata.uid, _write(event.verb, status.code, response)
    if event.verb == "delete" and response.details is not None:
        uid = response.details.uid
    if not uid or write is None:
        return None
    known = [group for group in event.user.groups if len(group) <= LONGEST_NAME]
    return Claim(
        namespace=about.namespace,
        uid=uid,
        write=write,
        user=event.user.username,
        groups=tuple(known[:MOST_GROUPS]),
        acting_as=event.impersonated_user.username if event.impersonated_user is not None else "",
        agent=text.first(event.user_agent, LONGEST_AGENT),
        audit=text.first(event.audit_id, LONGEST_ID),
    )


def _notes(annotations: Iterable[str]) -> set[str]:
    """The notes of Muster's policy among the keys of an event's annotations, `<policy>/<note>`.

    The name of the chart's release may stand before the policy's.
    """
    keys = (key.rpartition("/") for key in annotations)
    return {
        note for name, _, note in keys if name.partition(".")[0].endswith(AUDIT_POLICY) and name.endswith(".muster.dev")
    }


def _write(verb: str, code: int, response: _Response) -> int | None:
    match verb:
        case "create":
            return CREATED
        case "patch" if code == 201:
            # A server-side apply of an object that was not there.
            return CREATED
        case "patch" | "update":
            return whole_number(response.metadata.resource_version, VERSION_DIGITS) or None
        case "delete":
            return DELETED
    # What a deletion of many deleted is not certain: its answer lists what there was.
    return None


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
