"""A world that a test can direct: pods that hang, a garbage collector that waits, events that trigger something.

It also holds status writes to the rule of the CRD (a head only grows), and remembers what was written.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from services.status.core.documents import canonical, document_of, with_head
from shared.cluster import Manifest, Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUESTS, SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import Histories, History
from shared.job.state import Job
from tests.kit.world import NAMESPACE, World, must_grow
from tests.memory.cluster import Weather
from tests.memory.eventlog import MemoryJournal
from tests.memory.watching import At, Held

Document = dict[str, Any]

MOST_EVENTS = 5_000
"""More than any story here has."""

QUICK_SECONDS = 0.002
SLOW_SECONDS = 5.0
"""How often the kubelet looks: while something is waited for, and while hours pass."""


class Stage(World):
    """One cluster and one log; `of` brings the cluster of another stage, `journal` its log too."""

    def __init__(
        self,
        *,
        drain_seconds: int = 0,
        kinds: Kinds = BUILT_IN,
        of: "Stage | None" = None,
        log: str = "memory",
        journal: MemoryJournal | None = None,
        takes_over: bool = False,
        weather: Callable[[str], Weather | None] = lambda _: None,
    ) -> None:
        super().__init__(drain_seconds=drain_seconds, kinds=kinds, takes_over=takes_over, weather=weather)
        self.journal = journal or MemoryJournal(identity=log, most=MOST_EVENTS)
        if of is not None:
            self.store = of.store
        # No API server counts from zero.
        self.store.version = max(self.store.version, 1)
        self._pace = QUICK_SECONDS
        self.stuck: set[str] = set()
        """Pods, by name, that are placed and do not start."""
        self.odd: set[str] = set()
        """Pods, by name, that no kubelet looks at."""
        self.lingering: set[str] = set()
        """Pods, by uid, that do not end when they are deleted."""
        self.collecting = True
        """The garbage collector works."""
        self.statuses: defaultdict[tuple[str, str, str], list[Document]] = defaultdict(list)
        """Every status that was written, by (kind, namespace, name)."""
        self.hosts_files: defaultdict[At, list[Document]] = defaultdict(list)
        """Every content of a ConfigMap that was written."""
        for resource in (*(kind.resource for kind in kinds), SCALEINS, SCALEOUTS):
            self.store.admit(resource, self._admit_status)
        self.store.admit(CONFIGMAPS, self._note_hosts)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        if kind is None:
            self._every_status_is_replayed()

    def _every_status_is_replayed(self) -> None:
        """Each status that was written is what the log says at the head that it shows, as `--verify` asks.

        A head that this log does not lead to was written by a person.
        """
        identity, shown = self.journal.events[0].event_id, defaultdict[int, list[Document]](list)
        for (kind, _, _), written in self.statuses.items():
            for status in written if kind not in REQUESTS else ():
                head = status.get("history") or {}
                if head.get("log") == identity:
                    shown[head["sequence"]].append(status)
        histories = Histories()
        for stored in self.journal.events:
            history = histories.fold(stored)
            assert history is not None
            for status in shown[stored.sequence]:
                if status["history"]["hash"] == history.head.hash and self._kinds.knows(history.job):
                    document = document_of(history.job, self._kinds)
                    replayed = with_head(document, identity, history.head, history.time)
                    assert canonical(replayed) == canonical(status), f"at event {stored.sequence}"

    def delete(self, resource: Resource[Any], name: str, namespace: str = NAMESPACE) -> None:
        self.store.delete(resource, namespace, name)

    def annotate(self, name: str, annotations: Mapping[str, str], namespace: str = NAMESPACE) -> None:
        self.store.patch(TRAININGJOBS, namespace, name, {"metadata": {"annotations": dict(annotations)}})

    def condition(
        self, resource: Resource[Any], name: str, kind: str, namespace: str = NAMESPACE
    ) -> tuple[str, str] | None:
        """(status, reason) of a condition, None without one."""
        for known in self.status(resource, name, namespace).get("conditions", ()):
            if known["type"] == kind:
                return known["status"], known["reason"]
        return None

    def owned_by(self, uid: str) -> list[Held]:
        """Pods, Services, ConfigMaps and Secrets with this owner."""
        return [
            held
            for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS)
            for held in self.store.find(resource)
            if any(owner["uid"] == uid for owner in held.metadata.get("ownerReferences") or ())
        ]

    def life(self, uid: str) -> Job:
        """The job with this uid, from the log alone."""
        return self.history(uid).job

    def history(self, uid: str) -> History:
        histories = Histories()
        for stored in self.journal.events:
            histories.fold(stored)
        (found,) = (history for history in histories if history.job.key.uid == uid)
        assert not found.held, found.held
        return found

    def count(self, kind: str) -> int:
        return self.types().count(kind)

    async def phase(
        self, phase: str, resource: Resource[Any] = TRAININGJOBS, name: str = "resnet", namespace: str = NAMESPACE
    ) -> None:
        await self.until(
            lambda: self.status(resource, name, namespace).get("phase") == phase,
            f"{resource.kind} {namespace}/{name} is {phase} and not {self.status(resource, name, namespace)}",
        )

    async def shows(self, kind: str, reason: str, resource: Resource[Any] = TRAININGJOBS, name: str = "resnet") -> None:
        """Wait for a condition with this reason."""
        await self.until(
            lambda: (self.condition(resource, name, kind) or ("", ""))[1] == reason, f"{name} shows {kind} {reason}"
        )

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass: what is tested is what does not follow from it."""
        self._pace = min(seconds / 10, SLOW_SECONDS)
        await asyncio.sleep(seconds)
        self._pace = QUICK_SECONDS

    def _admit_status(self, before: Manifest | None, after: Manifest) -> None:
        must_grow(before, after)
        old, new = ((manifest or {}).get("status") or {} for manifest in (before, after))
        if old != new:
            self.statuses[after["kind"], after["metadata"]["namespace"], after["metadata"]["name"]].append(new)

    def _note_hosts(self, before: Manifest | None, after: Manifest) -> None:
        if before is None or before.get("data") != after.get("data"):
            self.hosts_files[after["metadata"]["namespace"], after["metadata"]["name"]].append(after.get("data"))

    async def _obey(self) -> None:
        while True:
            for held in self.store.find(PODS):
                self._care(held)
            if self.collecting:
                self.store.collect_garbage()
            await asyncio.sleep(self._pace)

    def _care(self, held: Held) -> None:
        if held.at[1] in self.odd:
            return
        (namespace, name), going = held.at, held.metadata.get("deletionTimestamp")
        waits = name in self.stuck and not going and held.manifest["spec"].get("nodeName")
        # Pods end by name in one namespace; their namesakes elsewhere go on.
        spared = name in self.exit_codes and namespace != NAMESPACE and not going
        if not waits and not spared and not (going and held.metadata["uid"] in self.lingering):
            super()._care(held)
