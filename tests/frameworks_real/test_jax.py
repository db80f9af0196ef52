"""JAX: one computation over the processes of a job, which find their coordinator by its name."""

import pytest
import yaml

from tests.frameworks_real.training import Training

pytestmark = [pytest.mark.frameworks("jax"), pytest.mark.asyncio(loop_scope="session")]


async def test_three_processes_of_a_training_job_are_one_computation(training: Training):
    job = await training.start("jax/training_job.yaml")
    await training.succeeds(job)
    await training.learnt("jax-launcher", processes="processes=3")
    await training.end(job)


async def test_the_workers_of_a_jax_job_are_one_computation(training: Training):
    job = await training.start("jax/jax_job.yaml")
    await training.succeeds(job)
    await training.learnt("jax-group-worker-0", processes="processes=3")
    await training.end(job)


async def test_the_complete_framework_of_the_documentation_trains(training: Training):
    operator = training.operator
    # As the page says.
    definitions = yaml.safe_load_all(await operator.muster("crds"))
    await operator.apply(*definitions)
    await operator.established("crd", "--all")
    job = await training.start("jax/own_kind.yaml")
    await training.succeeds(job)
    await training.learnt("jax-own-worker-0", processes="processes=3")
    await training.end(job)
