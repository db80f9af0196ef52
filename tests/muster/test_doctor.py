"""What `muster doctor` says of a cluster: what is missing, and what mends it."""

from pathlib import Path
from typing import Any

import pytest

from muster.doctor import Finding, of_cluster
from shared.service.settings import Settings
from tests.kit.apiserver import ScriptedApiServer, ok

KINDS = {"kind": "APIResourceList", "resources": [{"name": name} for name in ("trainingjobs", "scaleins", "scaleouts")]}
NO_KINDS: dict[str, Any] = {"kind": "APIResourceList", "resources": []}


async def found(folder: Path, kinds: dict[str, Any], *, allowed: bool) -> list[Finding]:
    async with ScriptedApiServer() as server:
        review = {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}
        server.answers += [ok(kinds)] * 3 + [ok(review)] * 6
        settings = Settings(_env_file=None, kubeconfig=server.kubeconfig(folder), namespace="team-a")
        return [finding async for finding in of_cluster(settings)]


async def test_nothing_is_missing(tmp_path: Path):
    assert [good for good, _ in await found(tmp_path, KINDS, allowed=True)] == [True]


@pytest.mark.parametrize(
    ("kinds", "missing", "remedy", "other"),
    [
        pytest.param(NO_KINDS, "does not serve trainingjobs", "muster crds", "muster rbac", id="the definitions"),
        pytest.param(KINDS, "list/watch trainingjobs", "muster rbac -n team-a", "muster crds", id="the permissions"),
    ],
)
async def test_what_is_missing_is_told_with_its_own_remedy(
    tmp_path: Path, kinds: dict[str, Any], missing: str, remedy: str, other: str
):
    ((good, line),) = await found(tmp_path, kinds, allowed=False)
    assert not good
    assert missing in line
    assert remedy in line
    assert other not in line


async def test_no_cluster_at_all_is_a_finding_too(tmp_path: Path):
    settings = Settings(_env_file=None, kubeconfig=tmp_path / "none")
    ((good, line),) = [finding async for finding in of_cluster(settings)]
    assert not good
    assert "there is no kubeconfig" in line
