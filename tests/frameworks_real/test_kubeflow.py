"""Kubeflow's SDK as it is published, by `examples/kubeflow/sdk.py`."""

import re
from pathlib import Path

import pytest
import yaml

from devcluster.cluster import ADMIN
from tests.frameworks_real.environments import environment
from tests.frameworks_real.training import PATIENCE_SECONDS, Training
from tests.kit.commands import run

pytestmark = [pytest.mark.frameworks("kubeflow"), pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trainer.md").read_text()
NODES = "jobset.sigs.k8s.io/replicatedjob-name=node"


async def test_the_sdk_trains_on_muster_unchanged(training: Training):
    [runtime] = re.findall(r"^```yaml\n(apiVersion.*?ClusterTrainingRuntime.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    await training.operator.apply(yaml.safe_load(runtime))
    file = ROOT / "examples" / "kubeflow" / "sdk.py"
    kubeconfig = str(training.operator.stack.cluster.kubeconfig(ADMIN))
    python = environment("kubeflow") / "bin" / "python"
    ended = await run(str(python), str(file), environment={"KUBECONFIG": kubeconfig}, patience=PATIENCE_SECONDS)
    assert ended.code == 0, ended.complaint + await training.operator.kubectl("logs", "-l", NODES, "--prefix")
    runtimes, running, status, *lines = ended.out.splitlines()
    assert (runtimes, running) == ("['jax']", "Running")
    assert status == "Complete node-0:Succeeded node-1:Succeeded"
    assert lines[:10] == [f"process 1 step {step}" for step in range(10)]
    told = [line.split()[0] for line in lines[10:-1]]
    assert {"TrainJobRunning", "TrainJobSucceeded"} <= {*told}, told
    assert lines[-1] == "[]"
