"""An accepted job through the core: observed, admitted, given slots, its objects rendered, its status written."""

import re
from typing import Any

import msgspec

from devcluster.apiserver.schema import validate
from services.scheduler.core import effects, keys
from services.status.core.documents import document_of
from services.watcher.core.observed import ObservedJob
from shared.cluster.answers import without_values
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.eventlog import MAX_BODY
from shared.frameworks.framework import Framework, PodContext
from shared.frameworks.kinds import Kinds
from shared.frameworks.pods import with_last_words, with_token_if_asked
from shared.job.events.catalog import AnyEvent, read_event
from shared.job.events.event import Decided
from shared.job.spec import RENDEZVOUS
from shared.job.steps import Effect
from tests.kit.loop import Loop

ENOUGH_PODS = 4
"""A job of thousands makes the same moves again."""
MOST_MOVES = 300


class Life(Loop):
    """A calm loop that renders what its effects create, as the services do."""

    def __init__(self, framework: Framework, manifest: Custom, seen: ObservedJob, schema: dict[str, Any]) -> None:
        super().__init__(0, seen, framework)
        self.calm = True
        self._framework, self._manifest, self._schema = framework, manifest, schema
        self.rendered: list[dict[str, Any]] = []

    def live(self) -> None:
        """Until its pods are there, or nothing is left to do."""
        self.run(lambda loop: loop.job.over or len(loop.pods) >= ENOUGH_PODS, MOST_MOVES)
        if (spec := self.job.spec) is not None:
            names = [self.job.pod_name(slot) for slot in sorted(self.job.attempt.slots)[:ENOUGH_PODS]]
            msgspec.json.encode(self._framework.hosts_files(self.key, spec, names))

    def _append(self, event: AnyEvent) -> None:
        super()._append(event)
        body = self.log[-1].body
        assert len(body) <= MAX_BODY, f"{len(body)} bytes"
        read = read_event(body, event.__struct_config__.tag)
        if isinstance(event, Decided) and isinstance(read, Decided):
            event = msgspec.structs.replace(event, because=read.because, slot=read.slot)
        assert read == event
        assert not self.history.held, self.history.held
        if self.job.resource.generation:
            status = msgspec.json.decode(document_of(self.job, Kinds([self._framework])))
            present = {name: value for name, value in status.items() if value is not None}
            causes = validate(self._schema, self._document() | {"status": present})
            assert not [cause for cause in causes if cause.field.startswith("status")], causes

    def _document(self) -> dict[str, Any]:
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "spec": self._manifest.spec}

    def _do(self, effect: Effect) -> None:
        match effect:
            case effects.CreatePod(slot=slot):
                context = self._context(effect)
                assert self.job.spec is not None
                pod = with_token_if_asked(self._framework.pod(self._manifest, self.job.spec, context))
                pod = with_last_words(pod)
                self._check(pod)
                assert pod["spec"]["restartPolicy"] == "Never"
                labels = self._framework.pod_labels(self.key, slot)
                if slot.role == RENDEZVOUS:
                    # It is no replica: scripts select those by the kind's other labels.
                    labels = {name: labels[name] for name in (self._framework.role_label, self._framework.index_label)}
                assert pod["metadata"]["labels"].items() >= labels.items()
            case effects.CreateService(slot=slot):
                assert self.job.spec is not None
                context = self._context(effect) if slot is not None else None
                self._check(self._framework.service(self._manifest, self.job.spec, self.key, context))
        super()._do(effect)

    def _context(self, effect: effects.CreatePod | effects.CreateService) -> PodContext:
        assert effect.slot is not None
        sizes: dict[str, int] = {}
        for known in self.job.attempt.unreleased:
            sizes[known.role] = sizes.get(known.role, 0) + 1
        name, secret = self.job.pod_name(effect.slot), keys.secret(self.job)
        return PodContext(key=self.key, slot=effect.slot, name=name, sizes=sizes, ssh_secret=secret)

    def _check(self, made: dict[str, Any]) -> None:
        """It goes over the wire, has a name that Kubernetes takes, and can be refused without its secrets."""
        msgspec.json.encode(made)
        name = made["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name), name
        assert made["metadata"]["ownerReferences"][0]["uid"] == self.key.uid
        refused = without_values(Refused("no", reason="Invalid", words="no"), f"create {name}", made)
        assert refused.reason == "Invalid"
        self.rendered.append(made)
