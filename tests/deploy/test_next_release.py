"""`helm upgrade` to the next release and `helm rollback` under a job that trains: it notices neither, nothing shrinks.

What each release writes and reads is the matter of tests/e2e/test_upgrade.py, where services are processes.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.deploy.test_install import FEW_RESOURCES, INSTALL, PATIENCE, WAIT, a_long_job, lives
from tests.kit.next_release import FIELD, next_release
from tests.kit.platform import Platform, a_platform

pytestmark = pytest.mark.real

DEFINITION = "customresourcedefinition/trainingjobs.kai.alibabacloud.com"


@pytest.fixture
def values(tmp_path: Path) -> Iterator[Path]:
    """What makes the chart's pods run the next release."""
    # Not below /tmp, of which every container of our node has its own; and others than root have to read it.
    with TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        environment = next_release(Path(folder) / "next")
        file = tmp_path / "next.yaml"
        file.write_text(yaml.safe_dump({"extraEnv": [{"name": key, "value": environment[key]} for key in environment]}))
        yield file


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    async with a_platform(tmp_path, disks=1) as platform:
        yield platform


async def test_a_job_knows_nothing_of_the_next_release_and_the_way_back(platform: Platform, values: Path) -> None:
    await platform.do(f"{INSTALL} {FEW_RESOURCES} {WAIT}", patience=PATIENCE)
    await platform.do("kubectl apply -f -", given=yaml.safe_dump(a_long_job("steady")))
    await platform.do("kubectl wait --for=condition=Running trainingjob/steady --timeout=60s")
    before, known = await lives(platform), await events(platform)
    assert not has_field(await platform.get(DEFINITION))

    await platform.do(
        f"helm upgrade muster deploy/helm/muster -n muster --reuse-values --values {values} {WAIT}",
        patience=PATIENCE,
    )
    await platform.until(DEFINITION, has_field)
    definition = await platform.get(DEFINITION)
    assert await lives(platform) == before

    await platform.do(f"helm rollback muster 1 --namespace muster {WAIT}", patience=PATIENCE)
    assert (await platform.get(DEFINITION))["spec"] == definition["spec"]
    assert await lives(platform) == before
    assert (await events(platform))[: len(known)] == known
    await platform.do("kubectl exec steady-launcher -- touch /tmp/end")
    await platform.do("kubectl wait --for=condition=Succeeded trainingjob/steady --timeout=60s")


def has_field(definition: dict[str, Any]) -> bool:
    return f'"{FIELD}":' in json.dumps(definition["spec"])


async def events(platform: Platform) -> list[str]:
    """The job's history as the log has it."""
    told = await platform.do(
        "kubectl -n muster exec deploy/muster-status -- muster history trainingjob/steady -n default --json"
    )
    return told.splitlines()
