"""From this release to the next one and back, with jobs that train meanwhile: nothing restarts, nothing is lost.

Readers go before writers: the set-up and the services are of the next release before anything new is written.
"""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devcluster.child import Child
from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from muster.stack import SERVICES, Stack
from shared.cluster.kinds import DEFINITIONS
from shared.eventlog import Entry, api
from shared.eventlog.account import ADMIN, STREAM
from shared.eventlog.connection import Connection
from shared.eventlog.streams import StreamInfo
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.commands import run
from tests.kit.hosts import MakeHost, real
from tests.kit.nats import connected
from tests.kit.next_release import EVENT, FIELD, VERSION, next_release
from tests.kit.operator import UNTIL_TOLD, Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.real]

DEFINITION = f"{TRAININGJOBS.plural}.{TRAININGJOBS.group}"
ROOM = 1 << 30


class Releases(Operator):
    """An operator whose services change their release."""

    def __init__(self, stack: Stack, audit: Path, following: Mapping[str, str]) -> None:
        super().__init__(stack, audit)
        self.following = following

    async def setup(self, *words: str, release: Mapping[str, str] | None = None) -> str:
        """`muster setup` of this release, or of another."""
        who = {**self.stack.environment(ADMIN), "MUSTER_KINDS": "TrainingJob.kai.alibabacloud.com"}
        ended = await run(
            *(sys.executable, "-m", "muster", "setup", "--timeout", "60", *words),
            environment={**who, **(release or {})},
        )
        assert ended.code == 0, ended.out + ended.complaint
        return ended.out + ended.complaint

    async def roll_out(self, release: Mapping[str, str]) -> None:
        """One service after another."""
        for name in SERVICES:
            await self.stack.services[name].stop()
            environment = self.stack.environment(name) | {"MUSTER_DRAIN": "PT1S"} | release
            command = [sys.executable, "-m", f"services.{name}"]
            log = self.stack.data / f"{name}-{len(list(self.stack.data.glob('*.log')))}.log"
            service = self.stack.services[name] = Child(f"the {name}", command, log, environment)
            service.start()
            await self._until_started(service)

    async def _until_started(self, service: Child) -> None:
        async def started() -> bool:
            return '"started"' in service.log.read_text()

        await self.until(started, lambda: f"{service.name} does not start")

    async def definition(self) -> Any:
        found = await self.stack.kube.get(DEFINITIONS, "", DEFINITION)
        assert found is not None
        return found.spec

    async def stream(self, **change: Any) -> dict[str, Any]:
        """The stream's settings, after an administrator's change."""
        nats = self.stack.nats
        admin = await Connection.open(nats.url, name="test", user=ADMIN, password=nats.users[ADMIN])
        try:
            found = (await api.stream_info(admin, STREAM)).config
            if change:
                await api.call(admin, f"STREAM.UPDATE.{STREAM}", found | change, StreamInfo)
            return (await api.stream_info(admin, STREAM)).config
        finally:
            await admin.close()

    async def note(self, job: str, *, optional: bool) -> None:
        """What the status service of the next release would write."""
        key = (await self.history(job)).job.key
        subject = f"facts.{key.namespace}.{key.name}.{key.uid}.status.{EVENT}"
        before = [
            stored.sequence for stored in await self.log() if stored.subject.startswith(subject.rpartition(".")[0])
        ]
        entry = Entry(
            subject=subject,
            event_id=f"note-{optional}",
            time="2026-01-01T00:00:00.000Z",
            body=json.dumps({"type": EVENT}).encode(),
            optional=optional,
        )
        async with connected(self.stack.nats, "status") as log:
            await log.append(entry, expect=max(before, default=0))


@asynccontextmanager
async def releases(folder: Path, host: MakeHost) -> AsyncIterator[Releases]:
    following = next_release(folder / "next")
    audit = folder / "audit.jsonl"
    async with Stack(folder / "stack", host, settings={"MUSTER_DRAIN": "PT1S"}, audit=audit) as stack:
        operator = Releases(stack, audit, following)
        yield operator


async def test_to_the_next_release_and_back_with_jobs_that_train(tmp_path: Path):
    async with releases(tmp_path, real()) as operator:
        await operator.stream(max_bytes=ROOM)
        assert f"definition {DEFINITION} unchanged" in await operator.setup()
        await operator.apply(a_job("steady", UNTIL_TOLD), a_job("held", UNTIL_TOLD))
        for job in ("steady", "held"):
            await operator.phase("Running", TRAININGJOBS, job)
        uids = {job: await operator.pod_uids(job) for job in ("steady", "held")}
        before = await operator.log()

        # Forward: the set-up first, then service by service; old and new ones work side by side meanwhile.
        said = await operator.setup("--max-bytes", str(2 * ROOM), release=operator.following)
        assert f"definition {DEFINITION} upgraded (it lacks .spec.{FIELD} (v1alpha1))" in said
        assert f"{STREAM}: max_bytes is {2 * ROOM} now, and was {ROOM}" in said
        await operator.roll_out(operator.following)
        await operator.apply(a_job("young", UNTIL_TOLD, **{FIELD: "new"}))
        await operator.phase("Running", TRAININGJOBS, "young")
        await operator.apply(a_request("ScaleOut", "out", "steady", toAdd={"count": 1}))
        await operator.phase("ScaleSucceeded", SCALEOUTS, "out")
        await operator.note("steady", optional=True)
        definition, stream = await operator.definition(), await operator.stream()

        # Back: what is stored and served stays as the newer release made it, but for the size that is asked for.
        said = await operator.setup("--max-bytes", str(ROOM))
        assert f"it is newer than this release: release {VERSION} made it" in said
        assert f"max_bytes is {ROOM} now, and was {2 * ROOM}" in said
        assert (await operator.definition(), await operator.stream()) == (definition, stream | {"max_bytes": ROOM})
        await operator.roll_out({})
        await operator.apply(a_request("ScaleIn", "in", "steady", toDelete={"count": 1}))
        await operator.phase("ScaleSucceeded", SCALEINS, "in")
        assert "different: 0" in await operator.muster("replay", "--verify")
        created = [stored for stored in await operator.log() if stored.subject.endswith(".status.JobCreated")]
        assert [FIELD.encode() in stored.body for stored in created] == [False, False, True]

        # An event that this release cannot skip holds that job alone, until the next release reads it.
        await operator.note("held", optional=False)
        await operator.apply(a_request("ScaleOut", "held-out", "held", toAdd={"count": 1}))

        async def told() -> bool:
            logs = [service.log.read_text() for service in operator.stack.services.values()]
            return all(f"unknown event {EVENT}" in log for log in logs)

        await operator.until(told, lambda: "no report says that the job is held")
        await operator.tell_to_end("young")
        await operator.phase("Succeeded", TRAININGJOBS, "young")
        assert (await operator.pod_uids("held")) == uids["held"]
        await operator.roll_out(operator.following)
        await operator.phase("ScaleSucceeded", SCALEOUTS, "held-out")

        # Nothing of all this was felt: same pods, whole histories, no event lost.
        for job, known in uids.items():
            now = await operator.pod_uids(job)
            assert {name: now.get(name) for name in known} == known
        after = await operator.log()
        assert after[: len(before)] == before
        assert [stored.sequence for stored in after] == [*range(1, len(after) + 1)]
        environment = {**operator.stack.environment("reader"), **operator.following}
        environment["KUBECONFIG"] = str(operator.stack.cluster.kubeconfig(CLUSTER_ADMIN))
        verified = await run(sys.executable, "-m", "muster", "replay", "--verify", environment=environment)
        assert verified.code == 0, verified.out + verified.complaint
        for job in uids:
            await operator.tell_to_end(job)
            await operator.phase("Succeeded", TRAININGJOBS, job)
