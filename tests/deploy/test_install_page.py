"""`docs/install.md`: walked as it stands on the real control plane, and its values rendered."""

import re
from pathlib import Path

import pytest

from tests.kit.platform import ROOT, a_platform

pytestmark = pytest.mark.real

PAGE = ROOT / "docs" / "install.md"
PATIENCE = 180.0
VALUES = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


async def test_the_page_is_walked_as_it_stands(tmp_path: Path):
    async with a_platform(tmp_path, disks=1) as platform:
        await platform.walk(PAGE, patience=PATIENCE)


async def test_every_other_installation_of_the_page_is_taken_by_the_api_server(tmp_path: Path):
    assert VALUES
    async with a_platform(tmp_path, disks=0) as platform:
        await platform.do("kubectl create namespace muster; kubectl create namespace team-a")
        for values in VALUES:
            render = "helm template muster deploy/helm/muster --namespace muster --values -"
            manifests = await platform.do(render, given=values)
            await platform.do("kubectl apply --dry-run=server -f -", given=manifests)
