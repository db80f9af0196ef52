"""What Kueue and Muster write about one job's quota: taken from the audit log of a real run, and played back.

A recording has chapters, each the answer to something that a person does.  Played back, each call of Kueue is made
when all before it were made; each of Muster's is waited for.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.errors import accepting
from shared.frameworks.queueing import GROUP, WORKLOADS
from shared.job.policies.quota import REPLACED
from tests.kit.operator import Operator, audited

RECORDED = Path(__file__).with_name("recorded")
KUEUE, MUSTER = "kueue", "muster"
WRITES = ("create", "update", "patch", "delete")
QUIET_SECONDS = 2.0
"""The end of a chapter: for so long no call was made."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
NOON = "2030-01-01T12:00:00Z"

Document = dict[str, Any]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A call, with what it left of the object."""

    chapter: str
    by: str
    verb: str
    resource: str
    name: str
    """`{uid}` in it is the job's uid."""
    subresource: str = ""
    metadata: Document = {}
    spec: Document = {}
    status: Document = {}


class Chapters(Protocol):
    """The run of a job whose chapters are recorded, or played back."""

    real: bool
    """True while Kueue itself answers."""

    def chapter(self, name: str) -> Any:
        """An asynchronous context: all that is written in answer to what a person did before it."""


class Recorder:
    """Records what is written about one job."""

    real = True

    def __init__(self, operator: Operator, job: str, resource: Resource[Any]) -> None:
        self._operator, self._job, self._resource = operator, job, resource
        self._heard = operator.audit.stat().st_size
        self._names: list[str] = []
        self.written: list[Written] = []

    @asynccontextmanager
    async def chapter(self, name: str) -> AsyncIterator[None]:
        yield
        found: list[Document] = []
        while (now := self._about()) != found or not found:
            found = now
            await asyncio.sleep(QUIET_SECONDS)
        self._heard = self._operator.audit.stat().st_size
        job = await self._operator.stack.kube.get(self._resource, "default", self._job)
        assert job is not None
        self.written += [_written(name, call, job.metadata.uid) for call in found]

    def _about(self) -> list[Document]:
        """The calls since the last chapter."""
        return [call for call in audited(self._operator.audit, after=self._heard) if self._is_about(call)]

    def _is_about(self, call: Document) -> bool:
        at, after = call.get("objectRef") or {}, call.get("responseObject") or {}
        who = call.get("userAgent", "").partition("/")[0]
        if who not in (KUEUE, MUSTER) or call["verb"] not in WRITES or call["responseStatus"]["code"] >= 300:
            return False
        if (at.get("apiGroup"), at.get("resource")) == (self._resource.group, self._resource.plural):
            return at.get("name") == self._job and who == KUEUE
        if (at.get("apiGroup"), at.get("resource")) != (GROUP, WORKLOADS.plural):
            return False
        owners = after.get("metadata", {}).get("ownerReferences", ())
        if any(owner["name"] == self._job for owner in owners):
            self._names.append(after["metadata"]["name"])
        return (at.get("name") or after["metadata"]["name"]) in self._names


def _written(chapter: str, call: Document, uid: str) -> Written:
    after: Document = call.get("responseObject") or {}
    meta, at = after.get("metadata", {}), call["objectRef"]
    by, subresource = call["userAgent"].partition("/")[0], at.get("subresource", "")
    kept = ("labels", "annotations", "finalizers") + (("ownerReferences",) if call["verb"] == "create" else ())
    found = Written(
        chapter=chapter,
        by=by,
        verb=call["verb"],
        resource=at["resource"],
        name=at.get("name") or meta["name"],
        subresource=subresource,
        metadata={} if subresource else {field: meta[field] for field in kept if field in meta},
        spec={} if subresource or call["verb"] == "delete" else after.get("spec", {}),
        status=after.get("status", {}) if subresource else {},
    )
    text = TIME.sub(NOON, msgspec.json.encode(found).decode().replace(uid, "{uid}"))
    return msgspec.json.decode(text, type=Written)


def save(name: str, written: Iterable[Written]) -> None:
    lines = (json.dumps(msgspec.to_builtins(each), sort_keys=True) for each in written)
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def load(name: str) -> list[Written]:
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [msgspec.json.decode(line, type=Written) for line in lines]


def decisions(written: Iterable[Written]) -> set[tuple[str, str]]:
    """What Kueue decides in each chapter: the conditions that hold then, but for Muster's own.

    A Workload that was replaced is gone if Muster deletes it before Kueue finishes it.
    """
    return {
        (each.chapter, f"{known['type']}={known['status']}/{known['reason']}")
        for each in written
        if each.by == KUEUE
        for known in each.status.get("conditions", ())
        if known["type"] != "PodsReady" and known["reason"] != REPLACED
    }


class Player:
    """Plays a recording back on a cluster without Kueue."""

    real = False

    def __init__(self, operator: Operator, job: str, resource: Resource[Any], written: list[Written]) -> None:
        self._operator, self._job, self._resource = operator, job, resource
        self._written = written
        self._kube = operator.stack.kube
        self._deleted: set[str] = set()

    @asynccontextmanager
    async def chapter(self, name: str) -> AsyncIterator[None]:
        playing = asyncio.create_task(self._play([each for each in self._written if each.chapter == name]))
        try:
            yield
            await playing
        finally:
            playing.cancel()

    async def _play(self, written: list[Written]) -> None:
        job = await self._kube.get(self._resource, "default", self._job)
        assert job is not None
        for each in written:
            text = msgspec.json.encode(each).decode().replace("{uid}", job.metadata.uid)
            call = msgspec.json.decode(text, type=Written)
            await (self._make(call) if call.by == KUEUE else self._wait_for(call))

    async def _make(self, call: Written) -> None:
        of = self._resource if call.resource == self._resource.plural else WORKLOADS
        if call.verb == "create":
            metadata = call.metadata | {"name": call.name, "namespace": "default"}
            await self._kube.create(of, "default", {"metadata": metadata, "spec": call.spec})
            return
        held = await self._kube.get(of, "default", call.name)
        replaced = _conditions(call.status).get("Finished") == ("True", REPLACED)
        if held is None and replaced:
            return
        assert held is not None, f"{call.name} is not there"
        if call.verb == "delete":
            await self._kube.delete(of, "default", call.name, uid=held.metadata.uid)
        elif call.subresource:
            patch = {"status": _change(held.status, call.status)}
            # Muster deletes what was replaced, perhaps at this moment.
            with accepting(*["NotFound"] if replaced else []):
                await self._kube.patch(of, "default", call.name, patch, subresource=call.subresource)
        else:
            spec = _change(held.spec, call.spec)
            await self._kube.patch(of, "default", call.name, {"metadata": call.metadata, "spec": spec})

    async def _wait_for(self, call: Written) -> None:
        """Wait until Muster has made the same call."""
        differing: list[str] = []

        async def made() -> bool:
            held = await self._kube.get(WORKLOADS, "default", call.name)
            differing[:] = [*_differences(call, held)] if held is not None or call.name not in self._deleted else []
            return not differing

        if call.verb == "delete":
            self._deleted.add(call.name)
        await self._operator.until(made, lambda: f"Muster did not {call.verb} {call.name}: {differing}")


def _change(now: Any, wanted: Any) -> Any:
    """The merge patch from one document to another."""
    if not isinstance(now, dict) or not isinstance(wanted, dict):
        return wanted
    gone = {field: None for field in now if field not in wanted}
    return gone | {field: _change(now.get(field), value) for field, value in wanted.items() if value != now.get(field)}


def _differences(call: Written, held: Custom | None) -> Iterator[str]:
    """What of a call is not there yet."""
    if call.verb == "delete" or held is None:
        if (held is None) != (call.verb == "delete"):
            yield "it is not there" if held is None else "it is there"
        return
    if call.subresource:
        status = held.status or {}
        if ("admission" in status) != ("admission" in call.status):
            yield "the admission"
        now, wanted = _conditions(status), _conditions(call.status)
        yield from (f"{kind}: {now.get(kind)}" for kind, said in wanted.items() if now.get(kind) != said)
        return
    if sorted(held.metadata.finalizers or ()) != sorted(call.metadata.get("finalizers", ())):
        yield f"the finalizers: {held.metadata.finalizers}"
    for field in ("queueName", "priority", "priorityClassRef"):
        if held.spec.get(field) != call.spec.get(field):
            yield f"{field}: {held.spec.get(field)}"
    if _counts(held.spec) != _counts(call.spec):
        yield f"the counts: {_counts(held.spec)}"
    for kind in ("labels", "annotations"):
        shown = getattr(held.metadata, kind) or {}
        yield from (f"{name}: {shown.get(name)}" for name, value in _kueues(call, kind) if shown.get(name) != value)


def _kueues(call: Written, kind: str) -> Iterator[tuple[str, str]]:
    """The labels or annotations that Kueue reads."""
    return ((name, value) for name, value in call.metadata.get(kind, {}).items() if name.startswith(GROUP))


def _conditions(status: Document) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}


def _counts(spec: Document) -> dict[str, int]:
    return {each["name"]: each["count"] for each in spec["podSets"]}
