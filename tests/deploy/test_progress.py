"""Programs in pods report to the chart's watcher on the real control plane: tokens, their review and TLS are real."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.job.naming import STALL_TIMEOUT
from tests.deploy.test_install import INSTALL, PATIENCE, WAIT
from tests.kit.platform import a_platform

pytestmark = pytest.mark.real

LIMIT = 10
PROGRAM = """
import time
from muster.train import report
for step in range(1, 21):
    report(step, 100, checkpoint=step // 5 * 5 or None, loss=1 / step)
    time.sleep(0.1)
time.sleep(1000)
"""


def a_job() -> dict[str, Any]:
    """It makes twenty steps, and stops."""
    container = {"name": "pytorch", "image": "muster:0.1.0", "command": ["python", "-c", PROGRAM]}
    spec = {"Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "steps", "namespace": "default", "annotations": {STALL_TIMEOUT: str(LIMIT)}},
        "spec": {"pytorchReplicaSpecs": spec},
    }


async def test_a_program_reports_with_its_own_token_and_is_stalled_once_it_stops(tmp_path: Path):
    async with a_platform(tmp_path, disks=1) as platform:
        await platform.do(f"{INSTALL} --set progress.enabled=true {WAIT}", patience=PATIENCE)
        await platform.do("kubectl apply -f -", given=json.dumps(a_job()))

        def is_stalled(job: Any) -> bool:
            return any("Stalled" in each["message"] for each in job.get("status", {}).get("conditions", ()))

        await platform.until("pytorchjob steps", is_stalled)
        why = await platform.do("kubectl -n muster exec deploy/muster-status -- muster why pytorchjob/steps -n default")
        assert "its newest checkpoint is of step 20" in why
        assert f"no step for {LIMIT} s" in why
