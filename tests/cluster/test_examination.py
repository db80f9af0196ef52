"""Examining an API server: what is missing is one sentence with what to do, and what cannot be asked is no fault."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from shared.cluster import Resource
from shared.cluster.examination import Right, Unfinished, examine, granting, served
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from shared.frameworks.scale_requests import SCALEINS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.apiserver import Answer, ScriptedApiServer, html, ok, status
from tests.kit.swarm import SWARMJOBS

LIST_PODS = Right("list", "", "pods")
PATCH_STATUS = Right("patch", TRAININGJOBS.group, "trainingjobs/status")
JOBS_ALONE: dict[Resource[Any], list[Resource[Any]]] = {TRAININGJOBS: []}
MANY: dict[Resource[Any], list[Resource[Any]]] = {TRAININGJOBS: [SCALEINS], SWARMJOBS: []}


def nothing(served: Sequence[Resource[Any]]) -> list[Right]:
    return []


def group(*plurals: str) -> dict[str, Any]:
    return {"kind": "APIResourceList", "resources": [{"name": plural} for plural in plurals]}


def review(*, allowed: bool) -> dict[str, Any]:
    return {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}


async def test_all_is_well(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers += [ok(group("trainingjobs", "trainingjobs/status")), ok(review(allowed=True))]
    await examine(cluster, JOBS_ALONE, lambda _: [PATCH_STATUS], "team-a")
    asked = server.asked[1].body["spec"]["resourceAttributes"]
    assert asked == {
        "verb": "patch",
        "group": TRAININGJOBS.group,
        "resource": "trainingjobs",
        "subresource": "status",
        "namespace": "team-a",
    }


@pytest.mark.parametrize(
    "answer",
    [pytest.param(html(404), id="an unknown group"), pytest.param(ok(group("mxjobs")), id="other kinds alone")],
)
async def test_a_kind_is_not_served(cluster: KubeCluster, server: ScriptedApiServer, answer: Answer):
    server.answers += [answer]
    with pytest.raises(Refused, match=r"does not serve trainingjobs.kai.alibabacloud.com; .*muster crds") as refusal:
        await examine(cluster, JOBS_ALONE, nothing)
    assert refusal.value.reason == "NotInstalled"


async def test_no_kind_at_all_is_served(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers += [ok(group("scaleins")), html(404)]
    with pytest.raises(Refused, match=r"does not serve any of trainingjobs.*, swarmjobs.*muster crds") as refusal:
        await examine(cluster, MANY, nothing)
    assert refusal.value.reason == "NotInstalled"


async def test_one_kind_is_enough_and_rights_are_asked_for_that_alone(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers += [html(404), ok(group("swarmjobs")), ok(review(allowed=True))]
    asked: list[object] = []

    def rights(served: Sequence[Resource[Any]]) -> list[Right]:
        asked.extend(served)
        return [LIST_PODS]

    assert await examine(cluster, MANY, rights) == asked == [SWARMJOBS]


async def test_what_belongs_to_a_kind_has_to_be_served_where_the_kind_is(
    cluster: KubeCluster, server: ScriptedApiServer
):
    server.answers += [ok(group("trainingjobs")), html(404), ok(group("trainingjobs"))]
    with pytest.raises(Refused, match=r"does not serve scaleins.kai.alibabacloud.com; .*muster crds") as refusal:
        await examine(cluster, MANY, nothing)
    assert refusal.value.reason == "NotInstalled"


@pytest.mark.parametrize(
    ("namespace", "selector", "where", "remedy"),
    [
        pytest.param("", (), "in the whole cluster", "`muster rbac | kubectl", id="everywhere"),
        pytest.param("team-a", (), "in the namespace team-a", "`muster rbac -n team-a | kubectl", id="in a namespace"),
        pytest.param(
            "",
            ("a=b", "c"),
            "in the whole cluster",
            "`muster rbac --namespace-selector a=b,c | kubectl",
            id="in namespaces with labels",
        ),
    ],
)
async def test_rights_are_missing(
    cluster: KubeCluster, server: ScriptedApiServer, namespace: str, selector: Sequence[str], where: str, remedy: str
):
    server.every_list = ok(group("trainingjobs"))
    server.answers += [ok(review(allowed=False))] * 3
    grants = granting(namespace, taking_over=False, selector=selector)
    wanted = [LIST_PODS, Right("watch", "", "pods"), PATCH_STATUS]
    with pytest.raises(Refused) as refusal:
        await examine(cluster, {}, lambda _: wanted, namespace, remedy=grants)
    assert refusal.value.reason == "Forbidden"
    missing = f"does not let us list/watch pods, patch trainingjobs/status {where}; "
    assert f"{missing}upgrade the chart's release, or without the chart {remedy}" in str(refusal.value)


async def test_a_user_who_may_not_ask_finds_out_by_trying(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers += [status(403, "Forbidden")] * 2
    await examine(cluster, JOBS_ALONE, lambda _: [LIST_PODS])


async def test_kinds_of_kubernetes_itself_are_looked_for_too(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers += [ok(group("pods"))]
    assert await cluster.serves(PODS)
    assert server.asked[0].path == "/api/v1"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(status(503, "ServiceUnavailable"), id="it is starting"),
        pytest.param(ok([1, 2]), id="it talks nonsense"),
    ],
)
async def test_trouble_on_the_way_passes(cluster: KubeCluster, server: ScriptedApiServer, answer: Answer):
    server.answers.append(answer)
    with pytest.raises(Transient):
        await examine(cluster, JOBS_ALONE, nothing)


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("an event that is never set was set")


@pytest.mark.parametrize("succeeds", [True, False])
async def test_an_api_server_that_does_meanwhile_what_it_is_asked_to_is_there(
    cluster: KubeCluster, server: ScriptedApiServer, succeeds: bool
):
    server.answers += [never, ok({"metadata": {"name": "p"}}) if succeeds else status(500, "InternalError")]
    examining = asyncio.create_task(examine(cluster, JOBS_ALONE, nothing, patience=0.2))
    while not server.asked:
        await asyncio.sleep(0.01)
    with suppress(Transient):
        await cluster.get(PODS, "team-a", "p")
    with pytest.raises(Transient, match="answers, but not every question" if succeeds else "does not answer") as found:
        await examining
    assert isinstance(found.value, Unfinished) is succeeds


async def test_an_api_server_that_does_not_answer_is_given_up_soon(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers.append(never)
    with pytest.raises(Transient, match="is the API server up"):
        await examine(cluster, JOBS_ALONE, nothing, patience=0.05)


async def test_which_versions_are_served_is_asked_one_by_one(cluster: KubeCluster, server: ScriptedApiServer):
    server.answers += [html(404), ok(group("mpijobs"))]
    assert await served(cluster, [MPIJOB.resource, MPIJOB_V2BETA1.resource]) == [MPIJOB_V2BETA1.resource]
    assert [asked.path for asked in server.asked] == ["/apis/kubeflow.org/v1", "/apis/kubeflow.org/v2beta1"]


async def test_an_api_server_that_does_not_say_which_versions_it_serves_is_waited_for(
    cluster: KubeCluster, server: ScriptedApiServer
):
    server.answers += [never]
    with pytest.raises(Transient, match="does not answer within"):
        await served(cluster, [MPIJOB.resource], patience=0.05)
