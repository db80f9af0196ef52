"""An MPIJob stays of its version on both API servers, also when a program writes it in the other one."""

import pytest

from shared.frameworks.mpijob import MPIJOB
from shared.job.spec import LAUNCHER, JobSpec
from tests.frameworks.documents import custom, mpi_job
from tests.kit.clusters import Api


def path_of(api: Api, version: str, name: str = "") -> str:
    root = f"/apis/kubeflow.org/{version}/namespaces/{api.namespace}/mpijobs"
    return f"{root}/{name}" if name else root


@pytest.mark.parametrize(("version", "policy"), [("v1", "Never"), ("v2beta1", "OnFailure")])
async def test_it_stays_of_its_version(api: Api, version: str, policy: str) -> None:
    job = mpi_job() | {"apiVersion": f"kubeflow.org/{version}", "metadata": {"name": "pi"}}
    made = await api.client.create(path_of(api, version), job)
    assert made.code == 201, made.body
    for other in ("v2beta1", "v1"):
        # A write of the whole object, as it is read in that version.
        read = (await api.client.get(path_of(api, other, "pi"))).body
        read["spec"].setdefault("runPolicy", {})["suspend"] = other == "v2beta1"
        written = await api.client.replace(path_of(api, other, "pi"), read)
        assert written.code == 200, written.body
    seen = custom((await api.client.get(path_of(api, "v1", "pi"))).body)
    spec = MPIJOB.parse(seen)
    assert isinstance(spec, JobSpec)
    assert spec.policy(LAUNCHER) == policy
