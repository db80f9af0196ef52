"""The services of one namespace on a real API server, with Roles in that namespace and nothing else."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.controlplane import ControlPlane
from muster import permissions
from muster.stack import Stack
from shared.cluster import Snapshot
from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SECRETS, SERVICES
from shared.eventlog.account import LEASES, READER
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.controlplane import require_control_plane
from tests.kit.nats import connected
from tests.kit.operator import Operator, a_job, a_request
from tests.security.rights import calls, compare

pytestmark = [pytest.mark.real, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

HERE, ELSEWHERE = permissions.HOME, "default"
FOR_EVER = "sleep 1000 & wait"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    require_control_plane()
    folder: Path = tmp_path_factory.mktemp("alone")
    # Not held against the roles as the others' recordings are: these are of the other variant.
    audit = folder / "audit.jsonl"
    async with Stack(folder, ControlPlane, settings={"MUSTER_DRAIN": "PT0S"}, audit=audit, alone=True) as stack:
        yield Operator(stack, audit)


async def test_a_job_lives_with_roles_alone_and_others_are_ignored(operator: Operator):
    kube = operator.stack.kube
    for namespace, name in ((ELSEWHERE, "other"), (HERE, "ours")):
        job = a_job(name, FOR_EVER, workers=1)
        job["metadata"]["namespace"] = namespace
        await kube.create(TRAININGJOBS, namespace, job)
    await phase(operator, "Running", TRAININGJOBS, "ours")
    for resource, request in (
        (SCALEOUTS, a_request("ScaleOut", "out", "ours", toAdd={"count": 1})),
        (SCALEINS, a_request("ScaleIn", "in", "ours", toDelete={"count": 1})),
    ):
        request["metadata"]["namespace"] = HERE
        made = await kube.create(resource, HERE, request)
        await phase(operator, "ScaleSucceeded", resource, made.metadata.name)
    for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS, EVENTS):
        made = [found for found in await everything(operator, resource) if found.metadata.namespace == ELSEWHERE]
        assert [found.metadata.name for found in made if found.metadata.name.startswith("other")] == []
    untouched = await kube.get(TRAININGJOBS, ELSEWHERE, "other")
    assert untouched is not None
    assert not untouched.status
    assert {stored.subject.split(".")[1] for stored in await operator.log()} == {HERE, "none"}


async def test_leases_are_of_that_namespace(operator: Operator):
    async with connected(operator.stack.nats, READER) as reader:
        leases = await reader.bucket(LEASES)
        for service in permissions.SERVICE_ACCOUNTS:
            assert await leases.get(f"{service}.{HERE}") is not None
            assert await leases.get(service) is None


async def test_a_deleted_job_leaves_nothing(operator: Operator):
    job = await operator.stack.kube.get(TRAININGJOBS, HERE, "ours")
    assert job is not None
    await operator.stack.kube.delete(TRAININGJOBS, HERE, "ours", uid=job.metadata.uid)

    async def nothing() -> bool:
        left = [thing for resource in (PODS, SERVICES, SECRETS) for thing in await everything(operator, resource)]
        return not [thing for thing in left if thing.metadata.name.startswith("ours")]

    await operator.until(nothing, lambda: "something of the job is left")


async def test_nothing_beyond_the_namespace_was_asked_or_refused(operator: Operator):
    lines = operator.audit.read_text().splitlines()
    made = list(calls(lines))
    assert made
    assert {call.namespace for call in made} == {HERE}
    found = compare(made, [])
    assert (found.refused, found.elsewhere) == ((), ())


async def phase(operator: Operator, wanted: str, resource, name: str) -> None:
    async def there() -> bool:
        found = await operator.stack.kube.get(resource, HERE, name)
        return found is not None and isinstance(found.status, dict) and found.status.get("phase") == wanted

    await operator.until(there, lambda: f"{name} is not {wanted}")


async def everything(operator: Operator, resource) -> list:
    """All objects of a kind in the whole cluster."""
    async with aclosing(operator.stack.kube.watch(resource)) as watch:
        seen = await anext(watch)
    assert isinstance(seen, Snapshot)
    return list(seen.objects)
