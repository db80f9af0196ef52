"""`muster replay --verify` finds no difference, whatever the jobs do at that moment and whatever its hash seed is.

The services are processes, each with the hash seed that chance gave it.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Devcluster
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.waiting import waiting
from tests.determinism.processes import SEEDS
from tests.frameworks.documents import (
    Document,
    fioravanzo_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    mpi_job,
    pytorch_job,
    tf_job,
)
from tests.kit.commands import run
from tests.kit.histories import folded
from tests.kit.operator import FOR_EVER, Operator, a_job, a_request, an_operator

pytestmark = pytest.mark.e2e

STUCK = [
    tf_job(Chief=1, PS=2, Worker=3),
    pytorch_job(Master=1, Worker=3),
    mpi_job(Launcher=1, Worker=2),
    kubeflow_mx_job(Scheduler=1, Server=2, Worker=3),
    fioravanzo_job(),
    mpba_job(),
    mlkube_job(),
    a_job("stuck", "true", workers=3, worker={"name": "main", "image": "none"}),
]
"""A job of each kind.  No container says a command: on a node without images it cannot start, or, where the kind has a
command of its own for workers, ends at once."""


def as_published(number: int, job: Document) -> Document:
    """Under a name of its own, without a command and without what an API server fills in."""
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {"name": f"stuck-{number}", "namespace": "default"},
        "spec": _without_commands(job["spec"]),
    }


def _without_commands(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_commands(inner) for key, inner in value.items() if key != "command"}
    return [_without_commands(inner) for inner in value] if isinstance(value, list) else value


async def test_jobs_in_every_state_are_verified_under_each_hash_seed(tmp_path: Path):
    async with an_operator(tmp_path, Devcluster) as operator:
        await operator.apply(*(as_published(number, job) for number, job in enumerate(STUCK)))
        await operator.apply(
            a_job("fails", "exit 1"),
            a_job("begins-again", "exit 1", restartPolicy="OnFailure", backoffLimit=3),
            a_job("suspended", FOR_EVER),
            a_job("scales", FOR_EVER),
        )
        await operator.until(partial(none_runs, operator), lambda: "some job is neither stuck nor over")
        await operator.phase("Failed", TRAININGJOBS, "fails")
        await operator.phase("Running", TRAININGJOBS, "suspended")
        await operator.phase("Running", TRAININGJOBS, "scales")
        await operator.kubectl("patch", "trainingjob", "suspended", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        await operator.apply(a_request("ScaleOut", "more", "scales", toAdd={"count": 1}))
        await says_the_same(operator)
        await operator.phase("Suspended", TRAININGJOBS, "suspended")
        await operator.phase("Running", TRAININGJOBS, "scales")
        await operator.delete("fails")
        await says_the_same(operator)
        words = ("-m", "muster", "replay", "--verify", "-n", "another")
        ended = await run(sys.executable, *words, environment=operator.stack.reader())
        assert ended.out == "0 events folded; jobs compared: 0, different: 0\n"


async def none_runs(operator: Operator) -> bool:
    """Each of the jobs without a command is stuck or over."""
    without = [history.job for history in folded(await operator.log()) if history.job.key.name.startswith("stuck-")]
    return sum(bool(waiting(job)) or job.over for job in without) == len(STUCK)


async def says_the_same(operator: Operator) -> None:
    async def verify(seed: int) -> None:
        environment = operator.stack.reader() | {"PYTHONHASHSEED": str(seed)}
        ended = await run(sys.executable, "-m", "muster", "replay", "--verify", environment=environment)
        assert ended.code == 0, f"PYTHONHASHSEED={seed}: {ended.out}{ended.complaint}"
        assert ended.out.splitlines()[-1].endswith("different: 0")

    await asyncio.gather(*map(verify, SEEDS))
