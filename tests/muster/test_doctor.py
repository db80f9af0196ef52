"""What `muster doctor` says of a cluster: what is missing, and what mends it."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from aiohttp import web

from muster.doctor import Finding, of_cluster, of_packages
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.training import TRAININGJOBS
from shared.frameworks.training_job import TRAININGJOB
from shared.service import plugins
from shared.service.settings import Settings
from tests.kit.apiserver import ScriptedApiServer

KINDS = ("trainingjobs", "scaleins", "scaleouts")
OTHERS = ", ".join(f"{kind.resource.plural}.{kind.resource.group}" for kind in BUILT_IN if kind is not TRAININGJOB)


async def found(folder: Path, kinds: tuple[str, ...], *, allowed: bool) -> list[Finding]:
    """In a cluster that serves these kinds of our group and of no other."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return web.json_response({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}})
        served = kinds if request.path == f"/apis/{TRAININGJOBS.api_version}" else ()
        return web.json_response({"kind": "APIResourceList", "resources": [{"name": name} for name in served]})

    async with ScriptedApiServer() as server:
        server.every_list = answer
        settings = Settings(_env_file=None, kubeconfig=server.kubeconfig(folder), namespace="team-a")
        return [finding async for finding in of_cluster(settings)]


async def test_nothing_is_missing(tmp_path: Path):
    (good, line), *others = await found(tmp_path, KINDS, allowed=True)
    assert good
    assert "serves trainingjobs.kai.alibabacloud.com; they may be listed and watched" in line
    # Nobody needs all kinds of job.
    assert others == ([(True, f"cluster: not installed are {OTHERS}")] if OTHERS else [])


@pytest.mark.parametrize(
    ("kinds", "missing", "remedy", "other"),
    [
        pytest.param((), "trainingjobs.kai.alibabacloud.com", "muster crds", "muster rbac", id="the definitions"),
        pytest.param(KINDS[:1], "does not serve scaleins", "muster crds", "muster rbac", id="those of requests"),
        pytest.param(KINDS, "list/watch trainingjobs", "muster rbac -n team-a", "muster crds", id="the permissions"),
    ],
)
async def test_what_is_missing_is_told_with_its_own_remedy(
    tmp_path: Path, kinds: tuple[str, ...], missing: str, remedy: str, other: str
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


async def test_a_package_that_cannot_be_used_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    assert [finding async for finding in of_packages()] == []
    broken = plugins.find([EntryPoint("hives", "no.such.package:X", plugins.GROUP)])
    monkeypatch.setattr("muster.doctor.installed", lambda: broken)
    ((good, line),) = [finding async for finding in of_packages()]
    assert not good
    assert "the framework hives" in line
