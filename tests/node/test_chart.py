"""The chart on a real node: our image and NATS as pods under the kubelet's own probes, and a job from start to end."""

from pathlib import Path

import pytest
import yaml

from tests.kit.image import have
from tests.kit.operator import a_job
from tests.kit.platform import a_platform

pytestmark = pytest.mark.node

INSTALL = "helm install muster deploy/helm/muster --namespace muster --create-namespace --wait --timeout 2m"
PATIENCE = 130.0
"""Seconds for a command that waits up to two minutes itself."""


async def test_what_the_chart_installs_by_default_runs_a_job(tmp_path: Path, built: tuple[Path, Path]):
    async with a_platform(tmp_path, disks=1, kubelet=True) as platform:
        for archive in built:
            have(archive)
        await platform.do(INSTALL, patience=PATIENCE)
        await platform.do("kubectl apply -f -", given=yaml.safe_dump(a_job("job", "sleep 1")))
        await platform.do("kubectl wait --for=condition=Succeeded trainingjob/job --timeout=60s", patience=70)

        # Nobody was started again by an impatient probe, and the set-up needed one attempt.
        pods = (await platform.get("pods --namespace muster"))["items"]
        restarts = {
            pod["metadata"]["labels"]["app.kubernetes.io/component"]: container["restartCount"]
            for pod in pods
            for container in pod["status"]["containerStatuses"]
        }
        assert restarts == dict.fromkeys(("nats", "setup", "watcher", "scheduler", "scaler", "status"), 0)
        # The log is on the volume, written by the user of the `restricted` profile.
        assert (tmp_path / "disk-0" / "jetstream").stat().st_uid == 65532
