"""TensorFlow: its own strategies read the TF_CONFIG that a TFJob's pods get."""

import pytest

from tests.frameworks_real.training import Training

pytestmark = [pytest.mark.frameworks("tensorflow"), pytest.mark.asyncio(loop_scope="session")]


async def test_the_workers_of_a_tfjob_learn_together(training: Training):
    job = await training.start("tensorflow/workers.yaml")
    await training.succeeds(job)
    await training.learnt("mirrored-worker-0", processes="workers=2")
    await training.end(job)


async def test_the_chief_of_a_tfjob_has_its_workers_train_a_model_on_a_parameter_server(training: Training):
    job = await training.start("tensorflow/parameter_server.yaml")
    await training.succeeds(job)
    await training.learnt("served-chief-0", processes="workers=2")
    # They would serve for ever.
    await training.has_no_pods("served-ps-", "served-worker-")
    await training.end(job)
