"""How deeply a resource may be nested before the API server refuses it, where a definition is open."""

import msgspec
import pytest

from devcluster.controlplane import ControlPlane
from tests.crds.judges import real
from tests.frameworks.documents import training_job

pytestmark = pytest.mark.real


async def test_more_levels_than_python_follows_are_admitted_and_kept(installed: ControlPlane) -> None:
    deep = msgspec.Raw(b'{"a":' * 2_000 + b"1" + b"}" * 2_000)
    job = training_job()
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["new"] = deep
    async with real(installed) as judge:
        job["metadata"] = {"name": job["metadata"]["name"]}
        body, headers = msgspec.json.encode(job), {"Content-Type": "application/json"}
        async with judge.session.post(judge.path(job), data=body, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
        async with judge.session.get(judge.path(job, named=True)) as answer:
            kept = await answer.read()
    assert kept.count(b'{"a":') >= 2_000
