"""The history service behind kube-apiserver: four users, stock kubectl, the page, and what its absence costs others."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.controlplane import ControlPlane
from muster.page.viewers import serving
from shared.errors import Refused
from shared.history_api import GROUP, PARTS
from shared.process.settings import HttpsPort, Settings
from tests.history.conftest import API_SERVICE, HOME, PATIENCE_SECONDS, RESNET, USERS, Site, a_site
from tests.kit.controlplane import require_control_plane

V2 = "/openapi/v2"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    require_control_plane()
    folder = tmp_path_factory.mktemp("site")
    async with ControlPlane(folder / "plane", USERS, nodes=0) as cluster, a_site(cluster, folder) as site:
        await site.apply(viewer("a"), viewer("b"))
        yield site


def viewer(of: str) -> dict[str, Any]:
    """Who may view the namespace of a team, as Kubernetes' own role `view` says."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "viewer", "namespace": f"team-{of}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": f"viewer-{of}", "namespace": HOME}],
    }


async def test_who_may_view_a_namespace_may_read_its_histories_and_no_others(site: Site):
    listed = await site.until("viewer-a", "get", "jobhistories", "-n", "team-a")
    assert [line.split()[:3] for line in listed.out.splitlines()] == [
        ["NAME", "PHASE", "READY"],
        ["trainingjob.bygone", "Running", "-"],
        ["trainingjob.resnet", "Running", "3/3"],
    ]
    for user in ("viewer-b", "nobody"):
        refused = await site.kubectl(user, "get", "jobhistories", "-n", "team-a")
        assert "forbidden" in refused.complaint.lower()
        for part in ("", "/events", "/why", "/at/4", "/report"):
            assert (await site.kubectl(user, "get", "--raw", f"{RESNET}{part}")).code == 1
    assert (await site.kubectl("viewer-a", "get", "jobhistories", "-A")).code == 1
    assert "team-b" in (await site.kubectl("admin", "get", "jobhistories", "-A")).out
    assert (await site.kubectl("viewer-b", "get", "jh", "-n", "team-b")).code == 0


async def test_the_command_line_needs_a_kubeconfig_alone_and_shows_what_its_user_may_see(site: Site):
    said = await site.muster("viewer-a", "why", "resnet", "-n", "team-a")
    assert said.out.startswith("trainingjob/resnet (uid-1): Running"), said
    assert "resnet" in (await site.muster("viewer-a", "get", "-n", "team-a")).out
    for words in ("get -n team-a", "why resnet -n team-a", "get -A"):
        refused = await site.muster("viewer-b", *words.split())
        assert (refused.code, refused.complaint.count("\n")) == (1, 1)
        assert 'cannot list resource "jobhistories"' in refused.complaint or "cannot get resource" in refused.complaint
    assert "team-b" in (await site.muster("admin", "get", "-A")).out


async def test_kube_apiserver_tells_of_histories_in_its_aggregated_discovery(site: Site):
    version: dict[str, Any] = {}
    async with site.cluster.session("admin") as session, asyncio.timeout(PATIENCE_SECONDS):
        # It looks every minute, and at first perhaps before the service answers.
        while version.get("freshness") != "Current":
            await asyncio.sleep(1)
            async with session.get("/apis", headers={"Accept": AGGREGATED}) as answer:
                groups = {each["metadata"]["name"]: each for each in (await answer.json(content_type=None))["items"]}
            [version] = groups[GROUP]["versions"]
    [history] = version["resources"]
    assert (history["resource"], history["shortNames"]) == ("jobhistories", ["jh"])
    assert history["verbs"] == ["get", "list", "watch"]
    assert {each["subresource"] for each in history["subresources"]} == {*PARTS}


async def test_kubectl_explains_histories(site: Site):
    explained = await site.until("viewer-a", "explain", "jobhistories.job.requestsOver")
    assert "How many of them are over" in explained.out
    # The older document, of which kube-apiserver makes one with its own.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "/apis/history.muster.dev/v1/namespaces" not in (await site.kubectl("admin", "get", "--raw", V2)).out:
            await asyncio.sleep(1)


async def test_a_watch_passes_kube_apiserver_by_the_rights_of_its_reader(site: Site):
    watch = "/apis/history.muster.dev/v1/namespaces/team-a/jobhistories?watch=1&timeoutSeconds=2"
    frames = (await site.until("viewer-a", "get", "--raw", watch)).out.splitlines()
    assert [json.loads(frame)["type"] for frame in frames] == ["ADDED", "ADDED"]
    events = await site.kubectl("viewer-a", "get", "--raw", f"{RESNET}/events?watch=1&timeoutSeconds=2")
    assert json.loads(events.out.splitlines()[0])["subject"].startswith("facts.team-a.resnet.uid-1.watcher")
    for path in (watch, f"{RESNET}/events?watch=1"):
        assert "forbidden" in (await site.kubectl("viewer-b", "get", "--raw", path)).complaint.lower()


async def test_the_page_in_a_cluster_shows_each_viewer_what_their_rights_give_and_has_none(site: Site):
    config = yaml.safe_load(site.cluster.kubeconfig("admin").read_text())
    with pytest.raises(Refused, match="without a user"):
        async with serving(page_settings(site, config)):
            pass
    for context in config["contexts"]:
        del context["context"]["user"]
    async with serving(page_settings(site, {**config, "users": []})) as port, aiohttp.ClientSession() as browser:

        async def seen(user: str, path: str) -> tuple[int, str]:
            """What the page answers to a user's token; of a stream the first piece."""
            config = yaml.safe_load(site.cluster.kubeconfig(user).read_text())
            headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
            address = f"https://127.0.0.1:{port}/{path}"
            async with asyncio.timeout(PATIENCE_SECONDS), browser.get(address, headers=headers, ssl=False) as answer:
                while answer.content_type == "text/event-stream":
                    told = (await answer.content.readuntil(b"\n\n")).decode()
                    if any(msgspec.json.decode(told.partition("data: ")[2]).values()):
                        return answer.status, told
                return answer.status, await answer.text()

        resnet = "api/jobs/team-a/trainingjob/resnet"
        assert '"name":"resnet"' in (await seen("viewer-a", "team-a/api/jobs"))[1]
        assert (await seen("viewer-a", f"team-a/{resnet}"))[0] == 200
        assert "resnet" in (await seen("admin", "-/api/jobs"))[1]
        for user, root in (("viewer-b", "team-a"), ("nobody", "team-a"), ("viewer-a", "-"), ("viewer-b", "-")):
            told = (await seen(user, f"{root}/api/jobs"))[1]
            assert "cannot list resource" in told
            assert "resnet" not in told
        for user in ("viewer-b", "nobody"):
            status, told = await seen(user, f"team-b/{resnet}")
            assert status == 403
            assert "cannot get resource" in told
        # Who loses the right finds nothing, neither anew nor of what was read before.
        await site.until("admin", "delete", "rolebinding", "viewer", "-n", "team-a")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await seen("viewer-a", f"team-a/{resnet}"))[0] != 403:
                await asyncio.sleep(1)
        await site.apply(viewer("a"))


def page_settings(site: Site, config: dict[str, Any]) -> Settings:
    given, file = site.environment(), site.folder / "kubeconfig-page"
    file.write_text(yaml.safe_dump(config))
    certificate, key = Path(given["MUSTER_HISTORY_CERT"]), Path(given["MUSTER_HISTORY_KEY"])
    return Settings(KUBECONFIG=file, page=HttpsPort(cert=certificate, key=key))


async def test_a_log_that_is_away_is_said_with_what_to_do_and_mends_by_itself(site: Site):
    await site.until("viewer-a", "get", "--raw", f"{RESNET}/why")
    site.nats.stop()
    away = await site.kubectl("viewer-a", "get", "jobhistories", "-n", "team-a")
    assert "the history cannot be read now, jobs run on" in away.complaint
    assert (await site.kubectl("admin", "get", "pods", "-n", "team-a")).code == 0
    await site.nats.start()
    await site.until("viewer-a", "get", "jobhistories", "-n", "team-a")


async def test_the_service_away_costs_others_no_command_and_holds_up_the_end_of_namespaces(site: Site):
    await site.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "team-b"}})
    await site.stop()
    await site.until("viewer-a", "get", "jobhistories", "-n", "team-a", code=1)
    await site.until("admin", "wait", "--for=condition=Available=False", f"apiservice/{API_SERVICE}")
    assert (await site.kubectl("viewer-a", "get", "pods", "-n", "team-a")).code == 0
    away = await site.kubectl("viewer-a", "get", "jobhistories", "-n", "team-a")
    assert "the server is currently unable to handle the request" in away.complaint
    said = await site.muster("viewer-a", "why", "resnet", "-n", "team-a")
    assert "an administrator asks the log itself, with --nats" in said.complaint
    # Its content goes at once; the namespace itself waits for the discovery of every API, as with any other one.
    assert (await site.kubectl("admin", "delete", "namespace", "team-b", "--timeout=5s")).code == 1
    await site.until("admin", "get", "configmap", "one", "-n", "team-b", code=1)
    for condition in ("NamespaceDeletionDiscoveryFailure=True", "NamespaceContentRemaining=False"):
        await site.until("admin", "wait", f"--for=condition={condition}", "namespace/team-b", "--timeout=20s")
    await site.start()
    await site.until("admin", "get", "namespace", "team-b", code=1)
