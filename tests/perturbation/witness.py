"""What really was: a record of every version of every object, kept by the administrator straight at the API server.

The facts of a watcher's log are held against it.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import msgspec

from devcluster.cluster import DevelopmentCluster
from services.watcher.core.cache import CHILDREN
from services.watcher.core.views import observed_child, observed_job, observed_pod, observed_request
from shared.cluster import Resource
from shared.cluster.decoding import decoder
from shared.cluster.objects import Object, Pod
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.training_job import TRAININGJOB
from shared.job.events.catalog import AnyEvent, read_event
from shared.job.events.watcher import (
    ChildGone,
    ChildrenObserved,
    JobDeleting,
    JobGone,
    JobObserved,
    LauncherLost,
    PodsGone,
    PodsObserved,
    ScaleRequested,
    ScaleRequestGone,
    TimePassed,
)
from shared.job.naming import key_of
from tests.perturbation.plans import WATCHED
from tests.perturbation.sight import Sight

CLOCK_SECONDS = 0.002
"""Times in the log are cut to milliseconds."""


class Witness(Sight):
    """`async with Witness(plane)`: watches everything from now on; after `anew` what was seen stays on record."""

    def __init__(self, plane: DevelopmentCluster) -> None:
        super().__init__(plane, WATCHED)
        self.versions = defaultdict[tuple[str, str, int], list[Object]](list)
        """By kind, uid and version; a store that went back counts again, so there may be several."""
        self.there: dict[str, dict[str, Object]] = {resource.kind: {} for resource in WATCHED}
        """By kind and uid, as far as the watch told."""
        self.ended: dict[str, float] = {}
        """Wall clock before which an object, by uid, had surely not ended: when a client began to end it."""
        self.owners: dict[str, set[str]] = {}
        self.deleted: set[str] = set()
        """The uids whose end the watch told."""
        self._collected: list[float] = []
        """Since when Kubernetes' own garbage collector ends what it finds without an owner."""

    def ending(self, *uids: str) -> None:
        """A client is about to end these."""
        for uid in uids:
            self.ended.setdefault(uid, time.time())

    def collecting(self) -> None:
        """From now on Kubernetes may take owners for gone: their kind is not served."""
        self._collected = [time.time()]

    def relisted(self, resource: Resource[Any]) -> None:
        self.there[resource.kind] = {}

    def shown(self, resource: Resource[Any], manifest: Any) -> None:
        self.note(resource, manifest)

    def gone(self, resource: Resource[Any], manifest: Any) -> None:
        uid = manifest["metadata"]["uid"]
        self.there[resource.kind].pop(uid)
        self.deleted.add(uid)

    def note(self, resource: Resource[Any], manifest: Any) -> Object:
        """On record from now on, as the API server showed it."""
        thing: Object = decoder(resource.type).decode(json.dumps(manifest))
        meta = thing.metadata
        self.versions[resource.kind, meta.uid, meta.version].append(thing)
        self.there[resource.kind][meta.uid] = thing
        self.owners.setdefault(meta.uid, set()).update(owner.uid for owner in meta.owner_references or ())
        return thing

    def belongings(self, job: str) -> list[str]:
        """Uids of the pods and children that a job, by its uid, has now."""
        views = [observed_pod(cast(Pod, pod)) for pod in self.there["Pod"].values()]
        children = [observed_child(kind, it) for kind in CHILDREN for it in self.there[kind].values()]
        return sorted(sight[1].uid for sight in (*views, *children) if sight is not None and sight[0].uid == job)

    def lies(self, log: Iterable[Stored]) -> list[str]:
        """Facts of the watcher that were not true when they were recorded."""
        found = []
        for stored in log:
            _, author, tag = stored.subject.rsplit(".", 2)
            if author == "watcher":
                event = read_event(stored.body, tag)
                found += [f"{stored.sequence} {stored.subject}: {why}" for why in self._lies(stored, event)]
        return found

    def _lies(self, stored: Stored, event: AnyEvent) -> list[str]:
        key = key_of(Subject.parse(stored.subject))
        match event:
            case JobObserved():
                views = self._seen("TrainingJob", key.uid, event.version)
                shown = [observed_job(TRAININGJOB, sight).observed for sight in views]
                # Who wrote it, and in which writes, follows from several sights.
                return self._compare(msgspec.structs.replace(event, epoch=0, by=(), writes=()), shown)
            case JobDeleting():
                views = self._seen("TrainingJob", key.uid, event.version)
                return [] if any(sight.metadata.deletion_timestamp for sight in views) else ["it was not deleted"]
            case PodsObserved():
                return [
                    lie
                    for pod in event.pods
                    for lie in self._compare((key, pod), map(observed_pod, self._seen("Pod", pod.uid, pod.version)))
                ]
            case ChildrenObserved():
                return [
                    lie
                    for child in event.children
                    for lie in self._compare(
                        (key, child),
                        (
                            observed_child(child.kind, sight)
                            for sight in self._seen(child.kind, child.uid, child.version)
                        ),
                    )
                ]
            case ScaleRequested():
                views = [observed_request(event.kind, s) for s in self._seen(event.kind, event.uid, event.version)]
                told = (event.name, event.owner, event.spec, event.problems)
                return self._compare(told, [(s.name, s.owner, s.spec, s.problems) for s in views])
            case JobGone():
                return self._gone(stored, key.uid)
            case PodsGone():
                return [lie for uid in event.uids for lie in self._gone(stored, uid)]
            case LauncherLost() | ChildGone():
                return self._gone(stored, event.uid)
            case ScaleRequestGone():
                return self._gone(stored, event.uid) if event.reason == "Deleted" else []
            case TimePassed():
                return []
            case _:
                return ["no write is the reason for this"]

    def _seen(self, kind: str, uid: str, version: int) -> list[Any]:
        return self.versions.get((kind, uid, version), [])

    def _compare(self, told: object, shown: Iterable[object]) -> list[str]:
        shown = list(shown)
        return [] if told in shown else [f"told {told}, shown {shown}"]

    def _gone(self, stored: Stored, uid: str) -> list[str]:
        """It was recorded before its end began."""
        recorded = datetime.fromisoformat(stored.time).timestamp()
        begun = min(self._began(uid), default=None)
        if begun is None:
            return [f"{uid} was not ended at all"]
        return [] if begun <= recorded + CLOCK_SECONDS else [f"{uid} ended {begun - recorded:.3f} s later"]

    def _began(self, uid: str) -> list[float]:
        """The end of an owner ends what it owns."""
        begun = [self.ended[one] for one in (uid, *self.owners.get(uid, ())) if one in self.ended]
        return begun + self._collected if uid in self.deleted and self.owners.get(uid) else begun
