"""Writes of users and programs: claims of the API server's audit events, and changes that the watcher recorded.  Pure.

A claim is what one audit event says about who wrote which version of which object.  Only a write that changed something
counts.  An edit without a change is answered with the version that somebody else wrote; the policy of
`muster/policies.py` notes in the audit event which of the two it was.
"""

from collections import OrderedDict, defaultdict, deque
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


KEPT_SECONDS = 900.0
"""Seconds for which a claim and a change wait for each other: an API server sends again for some minutes."""

MOST_CHANGES = 50_000
"""The most writes that were recorded and are kept, at some 700 bytes each."""

MOST_BYTES = 2**25
MOST_BYTES_OF_NAMESPACE = 2**22
"""The most bytes of all claims and of those of one namespace, so that one flood takes nothing from the others."""

MOST_OF_ONE = 8
"""The most events about one write, and the most claims of it: more than one are a fault or a forgery."""

_Write = tuple[str, int]


class Match(msgspec.Struct, frozen=True, gc=False):
    """Who made a change."""

    change: Change
    claim: Claim


class _Kept(msgspec.Struct):
    since: float
    changes: list[Change] = msgspec.field(default_factory=list)
    matched: bool = False


class _Claimed(msgspec.Struct):
    since: float
    namespace: str
    claims: list[Claim] = msgspec.field(default_factory=list)
    bytes: int = 0
    matched: bool = False


class Matcher:
    """Claims and changes that may still meet."""

    def __init__(self) -> None:
        self.forced_out = 0
        """How many claims and changes without a match left before their time, for want of room."""
        self.clear()

    def clear(self) -> None:
        """Forget all: the sequences of the changes are those of another log now."""
        self._epoch = 0
        self._changes: OrderedDict[_Write, _Kept] = OrderedDict()
        self._claims: OrderedDict[_Write, _Claimed] = OrderedDict()
        self._bytes = 0
        self._of_namespace: defaultdict[str, int] = defaultdict(int)
        self._oldest: defaultdict[str, deque[_Write]] = defaultdict(deque)

    @property
    def bytes(self) -> int:
        """About how many bytes the claims take."""
        return self._bytes

    def record(self, recorded: Recorded, now: float) -> Iterator[Match]:
        """Keep what an event tells; its matches with the claims so far.

        Versions of another epoch are other writes: after etcd was restored, an API server gives them out again.
        """
        if recorded.epoch is not None and recorded.epoch < self._epoch:
            return
        if recorded.epoch is not None and recorded.epoch > self._epoch:
            self.clear()
            self._epoch = recorded.epoch
        for change in recorded.changes:
            yield from self.change(change, now)

    def change(self, change: Change, now: float) -> Iterator[Match]:
        """Keep a change of the log; its matches with the claims so far."""
        self._forget(now)
        kept = self._changes.setdefault((change.uid, change.write), _Kept(now))
        if len(kept.changes) >= MOST_OF_ONE or any(known.sequence == change.sequence for known in kept.changes):
            return
        if change.write == DELETED and not change.gone and any(not known.gone for known in kept.changes):
            # A later request of a user who only changed how the deletion goes on.
            return
        kept.changes.append(change)
        if len(self._changes) > MOST_CHANGES:
            _, oldest = self._changes.popitem(last=False)
            self.forced_out += not oldest.matched
        if (claimed := self._claims.get((change.uid, change.write))) is not None:
            claimed.matched = kept.matched = True
            yield from (Match(change, claim) for claim in claimed.claims)

    def claim(self, claim: Claim, now: float) -> Iterator[Match]:
        """Keep a claim; its matches with the changes so far.  The same one again has none."""
        self._forget(now)
        at = claim.uid, claim.write
        claimed = self._claims.get(at)
        if claimed is None:
            claimed = self._claims[at] = _Claimed(now, claim.namespace)
            self._oldest[claim.namespace].append(at)
        if claim in claimed.claims or len(claimed.claims) >= MOST_OF_ONE:
            return
        claimed.claims.append(claim)
        claimed.bytes += claim.weight
        self._count(claimed.namespace, claim.weight)
        kept = self._changes.get(at)
        found = [Match(change, claim) for change in (kept.changes if kept is not None else ())]
        if kept is not None:
            claimed.matched = kept.matched = True
        self._make_room(claimed.namespace)
        yield from found

    def _forget(self, now: float) -> None:
        while self._changes and now - next(iter(self._changes.values())).since > KEPT_SECONDS:
            self._changes.popitem(last=False)
        while self._claims and now - (oldest := next(iter(self._claims.values()))).since > KEPT_SECONDS:
            self._drop_oldest(oldest.namespace)

    def _make_room(self, namespace: str) -> None:
        while self._of_namespace.get(namespace, 0) > MOST_BYTES_OF_NAMESPACE:
            self.forced_out += self._drop_oldest(namespace)
        while self._bytes > MOST_BYTES:
            self.forced_out += self._drop_oldest(next(iter(self._claims.values())).namespace)

    def _drop_oldest(self, namespace: str) -> int:
        """Forget the oldest write of a namespace; how many claims without a match it had."""
        gone = self._claims.pop(self._oldest[namespace].popleft())
        self._count(namespace, -gone.bytes)
        if not self._oldest[namespace]:
            del self._of_namespace[namespace], self._oldest[namespace]
        return 0 if gone.matched else len(gone.claims)

    def _count(self, namespace: str, by: int) -> None:
        self._bytes += by
        self._of_namespace[namespace] += by
