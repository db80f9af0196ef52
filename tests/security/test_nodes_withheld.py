"""An administrator may withhold the right to see nodes: everything else works as before."""

from pathlib import Path

import pytest

from devcluster.controlplane import ControlPlane
from muster import permissions
from muster.stack import APPLIED, Stack
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.controlplane import require_control_plane
from tests.kit.operator import Operator, a_job

pytestmark = [pytest.mark.real, pytest.mark.e2e]

SAID = "nodes are not watched"
WATCHER = f"system:serviceaccount:{permissions.HOME}:watcher"


async def test_a_watcher_that_may_not_see_nodes_says_so_once_and_works(tmp_path: Path):
    require_control_plane()
    async with Stack(tmp_path, ControlPlane, settings={"MUSTER_DRAIN": "PT0S"}) as stack:
        operator, watcher = Operator(stack, tmp_path / "audit.jsonl"), stack.services["watcher"]
        kept = permissions.rules("watcher", permissions.HOME)
        await stack.kube.patch(APPLIED["ClusterRole"], "", permissions.role("watcher"), {"rules": kept})

        async def withheld() -> bool:
            # It ends with an error for a no, which `fails` asks for.
            await operator.kubectl("auth", "can-i", "list", "nodes", "--as", WATCHER, fails=True)
            return True

        await operator.until(withheld, lambda: "the watcher may still list nodes")
        watcher.kill()
        watcher.start()

        async def told() -> bool:
            return SAID in watcher.log.read_text()

        await operator.until(told, lambda: "the watcher never said it")
        await operator.apply(a_job("blind", "sleep 0.5", workers=1))
        await operator.phase("Succeeded", TRAININGJOBS, "blind")
        assert watcher.log.read_text().count(SAID) == 1
