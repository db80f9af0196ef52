"""The readers: each takes any bytes, and ends with a value or with an error that its contract names."""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
from pydantic import ValidationError

from muster.outgoing import secret_of, wait_of
from services.audit.core import LONGEST_NAME, MOST_GROUPS, Matcher, claims
from services.scaler.core import commands
from services.status.core.documents import document_of
from services.watcher.core.views import observed_job, observed_pod, observed_request
from shared.cluster import Applied, Deleted, Resource
from shared.cluster.answers import FailedRequest, read_status, trouble
from shared.cluster.decoding import Lines, read_object, read_page
from shared.cluster.executing import ERROR, STDOUT, _exit_code, _Received
from shared.cluster.kinds import PODS
from shared.cluster.kubeconfig import current_context, namespace_of
from shared.cluster.objects import Custom, Pod
from shared.cluster.reflector import Pace, Reflector
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import MAX_BODY, Stored, wire
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import checkpointed
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent, Malformed, UnknownEvent, read_event
from shared.job.fold import History
from shared.job.naming import subject_of
from shared.process.serving import reports_in
from shared.process.settings import Settings, complaint
from shared.release import is_older, this_release
from shared.telling.reading import event_of, line_of
from shared.telling.targets import parse_target
from shared.untrusted import MALFORMED
from tests.kit.histories import KEY
from tests.kit.loop import steps_of

Errors = tuple[type[Exception], ...]

KNOWN = {kind.__struct_config__.tag: kind for kind in AUTHORS}
"""The types of events by tag."""
FRAMEWORKS = {each.resource: each for kind in BUILT_IN for each in (kind, *kind.others)}
DOCUMENTS: tuple[Resource[Custom], ...] = (*FRAMEWORKS, SCALEINS, SCALEOUTS)
VARIABLES = frozenset(
    str(alias)
    for name, field in Settings.model_fields.items()
    for alias in getattr(field.validation_alias, "choices", [f"MUSTER_{name.upper()}"])
)
"""What a process reads of its environment."""


def read_an_event(data: bytes) -> None:
    """A tag, and below it the body."""
    tag, _, body = data.partition(b"\n")
    kept = Stored(1, "facts.a.b.c.watcher.X", "id", "time", body)
    saved = event_of(line_of(kept).encode())
    event = read_event(body, tag.decode(errors="replace"))
    assert read_event(msgspec.json.encode(event), tag.decode()) == event
    # A decoder skips what it does not know, and a line of JSON holds UTF-8 alone.
    if body == body.decode(errors="replace").encode():
        assert saved == kept, "an event that can be read is saved as it is"


def fold_a_log(data: bytes) -> None:
    """Lines: an event as JSON each; whatever they say, the fold goes on, and the services know what to do or hold."""
    history = History(KEY)
    for number, line in enumerate(data.split(b"\n"), 1):
        history.fold(_stored(history, line, number))
    if not history.held:
        # Events that no service wrote can lead where no service gets: the runtime then holds the job.
        with suppress(AssertionError):
            steps_of(history.job)
        if BUILT_IN.knows(history.job):
            document_of(history.job)


def _stored(history: History, body: bytes, sequence: int) -> Stored:
    """The event as the log keeps it, by its author and on the newest basis."""
    try:
        tag = msgspec.json.decode(body, type=_Tagged).type
    except MALFORMED:
        tag = ""
    kind: type[AnyEvent] | None = KNOWN.get(tag)  # type: ignore[assignment]
    author = min(AUTHORS[kind]) if kind is not None else "watcher"
    decision = kind is not None and kind not in FACTS
    subject = subject_of(KEY, "jobs" if decision else "facts", author, tag)
    time = f"2030-01-01T{sequence // 3600:02d}:{sequence // 60 % 60:02d}:{sequence % 60:02d}.000Z"
    return Stored(sequence, subject, f"id-{sequence}", time, body, history.basis if decision else "")


class _Tagged(msgspec.Struct):
    type: str


def follow_a_watch(data: bytes) -> None:
    """Lines of a watch, to its end or to an error, as each of two resources."""
    for resource in (TRAININGJOBS, PODS):
        try:
            _follow(resource, data)
        except (Transient, FailedRequest):
            # The watch is begun again.
            continue


def _follow(resource: Resource[Any], data: bytes) -> None:
    # Without a caller: nothing is asked for.
    reflector: Reflector[Any] = Reflector(None, resource, "", "", Pace())  # type: ignore[arg-type]
    lines = Lines()
    for start in range(0, len(data), 100):
        for line in lines.split(data[start : start + 100]):
            for seen, version in reflector._read(line):
                reflector._version = max(reflector._version, version)
                if isinstance(seen, Applied | Deleted):
                    _view(resource, seen.object)


def read_a_list(data: bytes) -> None:
    """One page of a list."""
    page = read_page(data, "list")
    int(page.metadata.resource_version)
    for raw in page.items or ():
        for resource in (TRAININGJOBS, PODS):
            try:
                _view(resource, read_object(resource, raw))
            except Refused:
                continue


def read_a_document(data: bytes) -> None:
    """A resource, as each kind that there is: read, checked, and made an event."""
    for resource in DOCUMENTS:
        _view(resource, read_object(resource, data))


def _view(resource: Resource[Any], found: Any) -> None:
    """What the watcher keeps of the object; it becomes part of an event."""
    int(found.metadata.version)
    if isinstance(found, Pod):
        view: object = observed_pod(found)
        assert len(msgspec.json.encode(view)) < MAX_BODY
        return
    framework = FRAMEWORKS.get(resource)
    if framework is None:
        view = observed_request(resource.kind, found)  # type: ignore[arg-type]
    else:
        framework.ours(found)
        view = observed_job(framework, found)
    msgspec.json.encode(view)


def read_headers(data: bytes) -> None:
    """The headers of a message, below a line that counts for nothing."""
    _, _, headers = data.partition(b"\n")
    wire.place(headers)
    wire.status(headers)
    wire.status_line(headers)
    for name in ("Nats-Last-Sequence", "Nats-Num-Pending"):
        wire.number(headers, name)
    for operation in (wire.OPERATION, wire.MESSAGE_ID):
        wire.header(headers, operation)
    history = History(KEY)
    for family in ("facts", "jobs"):
        subject = subject_of(KEY, family, "watcher", "JobGone")  # type: ignore[arg-type]
        history.fold(wire.stored(history.sequence + 1, subject, headers, b"{}"))


def read_an_answer(data: bytes) -> None:
    """The Retry-After of a failed request, and below it the answer."""
    after, _, body = data.partition(b"\n")
    for code in (200, 409, 500):
        status = read_status(body, code, after.decode("latin-1"))
        for method in ("GET", "POST", "PATCH"):
            assert isinstance(trouble(status, "ask", method=method), Trouble)


def read_the_end_of_a_command(data: bytes) -> None:
    """Lines of its output, the last of them its end."""
    *output, end = data.split(b"\n")
    received = _Received(1_000)
    for line in output:
        received.take(bytes([STDOUT]) + line)
    received.take(bytes([ERROR]) + end)
    commands.in_use(received.output, [(1, "resnet-worker-1")])
    assert 0 <= _exit_code(received, "execute", ["true"]) < 2**31


def read_audit_events(data: bytes) -> None:
    """A batch of an API server; a claim in it is bounded, and can be written down."""
    for claim in claims(data, {("kai.alibabacloud.com", "trainingjobs")}):
        assert claim.uid
        assert 0 < len(claim.user) <= LONGEST_NAME
        assert len(claim.groups) <= MOST_GROUPS
        assert all(words.replace("\n", "").isprintable() for words in (claim.agent, claim.audit))
        assert len(msgspec.json.encode(claim)) > 0
        assert [*Matcher().claim(claim, 0)] == []


def read_a_kubeconfig(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            namespace_of([file.name])
        finally:
            current_context([file.name, file.name])


def read_settings(data: bytes) -> None:
    """Lines: a variable of the environment with its value each."""
    lines = (line.partition("=") for line in os.fsdecode(data).replace("\0", "").split("\n"))
    with patch.dict(os.environ, {name: value for name, _, value in lines if name in VARIABLES}):
        try:
            Settings()
        except ValidationError as error:
            if not complaint(error):
                raise


def read_texts(data: bytes) -> None:
    """What people and other programs write in one line."""
    text = data.decode(errors="replace")
    for reader, errors in TEXTS.items():
        try:
            reader(text)
        except errors:
            continue


TEXTS: Mapping[Callable[[str], object], Errors] = {
    lambda text: Subject.parse(str(Subject.parse(text))): (ValueError,),
    lambda text: event_of(text.encode()): (ValueError,),
    lambda text: reports_in(text.encode()): MALFORMED,
    lambda text: is_older(text, this_release()): (),
    parse_target: (Refused,),
    secret_of: (Refused,),
    lambda text: wait_of(text, 0.0): (),
    checkpointed: (),
}
"""One-line readers with their errors."""


class Target(NamedTuple):
    """A reader, and the errors by which it refuses."""

    read: Callable[[bytes], None]
    refuses: Errors = ()

    def try_on(self, data: bytes) -> bool:
        """Read; False if it was refused as the contract says.  Any other error is a finding."""
        try:
            self.read(data)
        except self.refuses:
            return False
        return True


TARGETS: Mapping[str, Target] = {
    "event": Target(read_an_event, (UnknownEvent, Malformed)),
    "fold": Target(fold_a_log),
    "headers": Target(read_headers),
    "watch": Target(follow_a_watch),
    "list": Target(read_a_list, (Transient,)),
    "document": Target(read_a_document, (Refused,)),
    "answer": Target(read_an_answer),
    "command": Target(read_the_end_of_a_command, (Transient, Refused)),
    "audit": Target(read_audit_events, MALFORMED),
    "kubeconfig": Target(read_a_kubeconfig, (Refused,)),
    "settings": Target(read_settings),
    "texts": Target(read_texts),
}
