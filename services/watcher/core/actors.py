"""Who changed a resource, as far as its managed fields tell.  Pure.

Kubernetes keeps for each client the fields that it set in an object, and when it last changed some of them
(`metadata.managedFields`; Kubernetes, "Server-Side Apply", section "Field management").  A client names itself.

A client is named only if it is certain: of a write that the watch showed, the writer is the one entry with a new time;
of a job without edits, the creator is the only client that has fields of the spec.
"""

import msgspec

from services.watcher.core.observed import Change, ObservedJob, Writer
from shared.cluster.objects import CustomMetadata
from shared.job.views import Actor

MOST_CHANGES = 16
"""The most changes of a job that are kept until they are recorded; of older ones the writer is not known."""

MOST_WRITERS = 100
"""The most entries of an object's managed fields that are read: of more the writers are not known."""

STATUS = "status"
"""The subresource that Muster writes, and that is no wish of anybody."""


def writers(meta: CustomMetadata) -> tuple[Writer, ...]:
    """The clients that wrote anything but the status."""
    entries = meta.managed_fields or ()
    return tuple(
        Writer(
            Actor(entry.manager, entry.operation, entry.subresource),
            api_version=entry.api_version,
            time=entry.time or "",
            spec=entry.fields_v1.spec is not None,
        )
        for entry in (entries if len(entries) <= MOST_WRITERS else ())
        if entry.subresource != STATUS
    )


def sole(known: tuple[Writer, ...]) -> Actor | None:
    """The only client that has fields of the spec; None if there are several, or none."""
    found = [*dict.fromkeys(writer.actor for writer in known if writer.spec)]
    return found[0] if len(found) == 1 else None


def of_write(before: tuple[Writer, ...], now: tuple[Writer, ...]) -> Actor | None:
    """The writer of the one write between two states; None if it cannot be told.

    Somebody who writes twice within a second, or only removes fields, leaves no trace.
    """
    seen = {(writer.actor, writer.api_version, writer.time) for writer in before}
    changed = [writer.actor for writer in now if (writer.actor, writer.api_version, writer.time) not in seen]
    return changed[0] if len(changed) == 1 else None


def attributed(now: ObservedJob, before: ObservedJob | None, *, listed: bool) -> ObservedJob:
    """`now` with the changes since the last record and their writers; `before` is the state that was known.

    `listed` says that the watch did not show each write in between.
    """
    version = now.observed.version
    if before is None or before.key != now.key:
        spec = now.observed.spec
        # An annotation leaves the generation as it is, so that a list may show another client's wish to restart.
        first = now.observed.generation == 1 and not (listed and spec is not None and spec.restart)
        created = Change(version, sole(now.writers), 0) if first else Change(version)
        return msgspec.structs.replace(now, changes=(created,))
    changes, of_labels = before.changes, _wishes(now) == _wishes(before)
    if not of_labels or now.observed.labels != before.observed.labels:
        # Without a new version it is the job's runtime that changed; with one, both may have.
        shown = not listed and version != before.observed.version and now.runtime == before.runtime
        actor = of_write(before.writers, now.writers) if shown else None
        change = Change(version, actor, version if shown else None, of_labels)
        *_, former, last = (None, None, *changes)
        if of_labels and last is not None and last.of_labels:
            # Programs that write labels for ever are one writer, or unknown ones: they hide nothing of an edit.
            if last.actor == actor:
                changes = changes[:-1]
            elif former is not None and former.of_labels:
                change, changes = Change(version, of_labels=True), changes[:-1]
        changes = (*changes, change)
    if len(changes) > MOST_CHANGES:
        oldest, last, *newer = changes
        changes = (Change(last.version, of_labels=oldest.of_labels and last.of_labels), *newer)
    return msgspec.structs.replace(now, changes=changes)


def since(version: int, changes: tuple[Change, ...]) -> tuple[Actor, ...]:
    """The clients that changed the job after this version, 0 for ever; empty if one of them is not known."""
    found = [change.actor for change in _after(version, changes)]
    return tuple(dict.fromkeys(actor for actor in found if actor is not None)) if all(found) else ()


def writes(version: int, changes: tuple[Change, ...]) -> tuple[int, ...]:
    """The writes that changed the job after this version, as `since`."""
    found = [change.write for change in _after(version, changes)]
    return tuple(write for write in found if write is not None) if None not in found else ()


def _after(version: int, changes: tuple[Change, ...]) -> list[Change]:
    found = [change for change in changes if change.version > version]
    # A job that was recorded before was changed since its creation.
    return [Change(change.version) if version and change.write == 0 else change for change in found]


def _wishes(job: ObservedJob) -> tuple[object, ...]:
    return job.observed.generation, job.observed.spec, job.observed.problems
