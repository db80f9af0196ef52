"""The chart on a real node: our image and NATS as pods under the kubelet's own probes, and a job from start to end."""

import re
from pathlib import Path

import pytest
import yaml

from tests.kit.image import have
from tests.kit.operator import a_job
from tests.kit.platform import ROOT, a_platform

pytestmark = pytest.mark.node

INSTALL = "helm install muster deploy/helm/muster --namespace muster --create-namespace --wait --timeout 2m"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "install.md").read_text(), re.DOTALL | re.MULTILINE)
(FROM_OUTSIDE,) = [block for block in BLOCKS if "port-forward" in block]
THE_PAGE = (
    "helm upgrade muster deploy/helm/muster --namespace muster --reuse-values --set history.enabled=true "
    "--set page.enabled=true --wait --timeout 2m"
)
A_VIEWER = (
    "kubectl create serviceaccount viewer && "
    "kubectl create rolebinding viewer --clusterrole view --serviceaccount default:viewer"
)
LOOKED = """
set -e
trap 'kill $(jobs -p) || true' EXIT
kubectl -n muster port-forward service/muster-page 8443:443 > /dev/null 2>&1 &
token=$(kubectl create token viewer)
seen() {
    curl -ks --retry 20 --retry-delay 1 --retry-connrefused -u anyone:$token https://127.0.0.1:8443/$1/ | grep -o "$2"
}
# The page begins to read the jobs when it is first asked for them.
for _ in $(seq 60); do seen default '<td>Succeeded<td>' && break; sleep 0.5; done
for _ in $(seq 60); do seen muster 'cannot list resource' && break; sleep 0.5; done
curl -ks -o /dev/null -w '%{http_code}' https://127.0.0.1:8443/default/
"""
PATIENCE = 130.0
"""Seconds for a command that waits up to two minutes itself."""


async def test_what_the_chart_installs_by_default_runs_a_job(tmp_path: Path, built: tuple[Path, Path]):
    async with a_platform(tmp_path, disks=1, kubelet=True) as platform:
        for archive in built:
            have(archive)
        await platform.do(INSTALL, patience=PATIENCE)
        await platform.do("kubectl apply -f -", given=yaml.safe_dump(a_job("job", "sleep 1")))
        await platform.do("kubectl wait --for=condition=Succeeded trainingjob/job --timeout=60s", patience=70)

        # No container was restarted by an impatient probe, and the set-up needed one attempt.
        pods = (await platform.get("pods --namespace muster"))["items"]
        restarts = {
            pod["metadata"]["labels"]["app.kubernetes.io/component"]: container["restartCount"]
            for pod in pods
            for container in pod["status"]["containerStatuses"]
        }
        assert restarts == dict.fromkeys(("nats", "setup", "watcher", "scheduler", "scaler", "status", "archiver"), 0)
        # The log is on the volume, written by the user of the `restricted` profile.
        assert (tmp_path / "disk-0" / "jetstream").stat().st_uid == 65532

        # As it stands on the page; what it leaves behind when it fails goes, too.
        told = await platform.do(f"set -e; trap 'kill $(jobs -p) || true' EXIT; {FROM_OUTSIDE}")
        assert "tls://127.0.0.1:4222 answers" in told
        assert "5 services in 5 pods are ready" in told
        assert "FAIL" not in told
        assert "warn" not in told

        # The page shows the job to a person whose token may view its namespace; no kubeconfig is needed.
        await platform.do(THE_PAGE, patience=PATIENCE)
        await platform.do(
            "kubectl wait --for=condition=Available apiservice/v1.history.muster.dev --timeout=60s", patience=70
        )
        assert "trainingjob" in await platform.do("kubectl get jobhistories")
        await platform.do(A_VIEWER)
        looked = (await platform.do(LOOKED, patience=PATIENCE)).split("\n")
        assert looked == ["<td>Succeeded<td>", "cannot list resource", "401"]
