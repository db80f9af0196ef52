"""Checkpoints, stored in a bucket: the newest head of each job before a status shows it, and last documents; and which
jobs have all their Kubernetes Events.

If a resource shows a head that the log does not have, the watcher compares it with the checkpoint of the job.  A
replica that starts finds the last documents of ended jobs here, and asks the API server for none of these jobs.  Once
a job is gone, and its children and requests are gone, the bucket keeps nothing of it.  Two sequences say which jobs
need nothing after a start.

The anchor, outside of the log's server, is compared with the log before this replica writes it for the first time, and
never over another.
"""

import asyncio
from collections.abc import Iterable
from hashlib import sha256

import msgspec
import structlog

from services.status.core.effects import Announce
from shared.cluster import Cluster
from shared.cluster.kinds import LEASES
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Bucket, Revised
from shared.job.chain import Head, checkpoint_of, checkpointed
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.runtime.heads import SEALS_SECONDS, Anchor, differs
from shared.runtime.run import Runtime
from shared.untrusted import whole_number

SWEPT = "swept"
"""The key of a sequence: the bucket keeps nothing of jobs that were closed at this sequence or before."""
ANNOUNCED = "announced"
"""The key of a sequence: jobs without later events have all their Kubernetes Events."""


class Checkpoints:
    def __init__(self, bucket: Bucket, identity: str) -> None:
        self._bucket = bucket
        self._identity = identity
        self._kept: dict[Uid, Revised] = {}
        """The checkpoints as this process wrote them."""

    async def reach(self, uid: Uid, head: Head) -> None:
        """Advance the checkpoint of this job to `head`; one that is newer stays, as after a pause of this process.

        Raises `Conflict` if another process wrote it meanwhile, and the bucket's errors.
        """
        kept = self._kept.get(uid) or await self._bucket.get(uid)
        log, newest = checkpointed(kept.value.decode() if kept is not None else "")
        if log == self._identity and newest is not None and (newest.sequence > head.sequence or newest == head):
            return
        value = checkpoint_of(self._identity, head).encode()
        try:
            revision = await self._bucket.put(uid, value, expect=kept.revision if kept is not None else 0)
        except Conflict:
            self.forget(uid)
            raise
        self._kept[uid] = Revised(value, revision)

    async def shows(self, uid: Uid, document: bytes, epoch: int) -> bool:
        """True if the status of this object showed this document in this epoch of the cluster's store.

        Raises the bucket's errors.
        """
        kept = await self._bucket.get(_shown(uid))
        return kept is not None and kept.value == _mark(document, epoch)

    async def shown(self, uid: Uid, document: bytes, epoch: int) -> None:
        """Note the document that the status of an ended object shows.  Raises `Conflict` and the bucket's errors."""
        kept = await self._bucket.get(_shown(uid))
        if kept is None or kept.value != _mark(document, epoch):
            await self._bucket.put(_shown(uid), _mark(document, epoch), expect=kept.revision if kept is not None else 0)

    async def remove(self, job: Job) -> None:
        """Remove the entries of a job and of its requests.  Raises the bucket's errors."""
        self.forget(job.key.uid)
        for key in (job.key.uid, _shown(job.key.uid), *map(_shown, job.scaling.requests)):
            await self._bucket.delete(key)

    async def remove_shown(self, uid: Uid) -> None:
        """Remove the entry of an object that is gone.  Raises the bucket's errors."""
        await self._bucket.delete(_shown(uid))

    async def noted(self, key: str, end: int) -> int:
        """The sequence that was noted under this key, or 0, also if the log ended before it, at `end`.

        Such a log was restored from a backup.  Raises the bucket's errors.
        """
        kept = await self._bucket.get(key)
        log, _, sequence = (kept.value.decode() if kept is not None else "").partition("/")
        found = whole_number(sequence) or 0
        return found if log == self._identity and found <= end else 0

    async def note(self, key: str, sequence: int) -> None:
        """Raises the bucket's errors."""
        await self._bucket.put(key, f"{self._identity}/{sequence}".encode())

    def forget(self, uid: Uid) -> None:
        """Drop this process's copy; the checkpoint itself stays."""
        self._kept.pop(uid, None)


def _shown(uid: Uid) -> str:
    return f"{uid}.shown"


def _mark(document: bytes, epoch: int) -> bytes:
    return f"{epoch}:{sha256(document).hexdigest()}".encode()


class Announced:
    """The Kubernetes Events of one process.

    A sequence tells the next one of them: each job without an event after it has all its Events.  A job that has one
    is decided anew, as an Event may be named after an earlier event of the log.
    """

    def __init__(self) -> None:
        self._made: dict[JobKey, set[str]] = {}
        """Targets of Events that are there, of those that each job wanted last."""
        self._complete: dict[JobKey, int] = {}
        """The last event of a job for which all its Events are there."""

    def decided(self, history: History, steps: Iterable[Step]) -> None:
        """These are all steps for the job after its last event."""
        key, wanted = history.job.key, set[str]()
        made = self._made.setdefault(key, set())
        for step in steps:
            if isinstance(step, Record):
                # Events that follow from it are not wanted yet.
                return
            if isinstance(step, Announce):
                wanted.add(step.target)
        made &= wanted
        if made == wanted:
            self._complete[key] = history.sequence

    def made(self, key: JobKey, announce: Announce) -> None:
        # A job that was gone before the call ended stays forgotten.
        if key in self._made:
            self._made[key].add(announce.target)

    def forget(self, key: JobKey) -> None:
        """The job is gone, and needs no Events."""
        self._made.pop(key, None)
        self._complete.pop(key, None)

    def owes(self, history: History) -> bool:
        """True if the job may lack an Event."""
        return not history.job.resource.gone and self._complete.get(history.job.key) != history.sequence


ANCHOR_SECONDS = 10.0
"""Seconds between two anchors of a log in which something happens."""
log = structlog.get_logger()


class Anchoring:
    """The anchor of one log, in a Lease that is there."""

    def __init__(self, cluster: Cluster, place: str, identity: str) -> None:
        """`place` is NAMESPACE/NAME; empty for the lines of this process alone."""
        self._cluster = cluster
        self._namespace, _, self._name = place.rpartition("/")
        self._identity = identity
        self._known: Anchor | None = None
        """To which this fold leads."""
        self._version = ""

    async def keep(self, runtime: Runtime) -> None:
        """Compare, and then write it as the log goes on, for ever."""
        told = ""
        while True:
            try:
                if runtime.acting:
                    await self.turn(runtime)
                    told = ""
                else:
                    # Another replica may write.
                    self._known, self._version = None, ""
            except Conflict:
                self._known, self._version = None, ""
            except (Transient, Refused) as trouble:
                if str(trouble) != told:
                    log.warning("no anchor", why=(told := str(trouble)))
            await asyncio.sleep(ANCHOR_SECONDS)

    async def turn(self, runtime: Runtime) -> None:
        """Write the anchor of now, if the one that is there is right.  Raises the cluster's and the log's errors."""
        if self._known is None and self._name and not await self._leads(runtime):
            return
        if (now := runtime.eventlog.now()) is None:
            return
        known = self._known
        if known is not None and known.sequence == runtime.histories.position and now - known.time < SEALS_SECONDS:
            return
        anchor = Anchor.of(self._identity, runtime.histories, now)
        log.info("anchor", **msgspec.structs.asdict(anchor))
        if self._name:
            await self._write(anchor)
        self._known = anchor

    async def _leads(self, runtime: Runtime) -> bool:
        """False if this log does not lead to the anchor that is there, until a person has removed that."""
        held = await self._cluster.get(LEASES, self._namespace, self._name)
        if held is None:
            raise Refused(f"there is no Lease {self._namespace}/{self._name}", reason="NotFound")
        found, self._version = Anchor.read(held.metadata.annotations or {}), held.metadata.resource_version
        fault = ""
        if found is not None:
            fault = await differs(runtime.eventlog, found, runtime.subjects) or ""
        if fault and fault != runtime.metrics.anchor:
            log.error("the log does not lead to its anchor", anchor=f"{self._namespace}/{self._name}", why=fault)
        runtime.metrics.anchor = fault
        if found is not None and fault and not found.fault:
            # A day later it could no longer be said.
            await self._write(msgspec.structs.replace(found, fault=fault))
        return not fault

    async def _write(self, anchor: Anchor) -> None:
        patch = {"metadata": {"resourceVersion": self._version, "annotations": anchor.annotations}}
        held = await self._cluster.patch(LEASES, self._namespace, self._name, patch)
        self._version = held.metadata.resource_version
