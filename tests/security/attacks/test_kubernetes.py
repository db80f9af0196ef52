"""Attacks with a service's own token on a real API server, where its role alone would let each of them succeed."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio
import yaml

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from muster import crds, permissions, policies
from muster.permissions import HOME, SERVICE_ACCOUNTS
from muster.stack import APPLIED
from shared.cluster.kinds import NAMESPACES
from shared.cluster.kube import KubeCluster
from shared.cluster.scope import ACCOUNTS, OPTED_IN
from shared.frameworks.framework import metadata, owner_reference, slot_labels
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import SCALEINS
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.installation.permissions import Powers
from shared.job.naming import HOSTS_VERSION, JOB_UID, JobKey, Slot, Uid
from tests.kit.clusters import define
from tests.kit.nats import until
from tests.kit.operator import a_job, a_request
from tests.kit.published import PUBLISHED

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

Document = dict[str, Any]

SYSTEM = "kube-system"
ARGOCD = "argocd"
"""Another operator's namespace, which did not opt in."""
HOST = {"hostPID": True, "volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
CONTAINER = {"name": "main", "image": "training"}
EVENTS = "/api/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}


ASKS = [
    {
        "apiGroups": sorted({kind.resource.group for kind in BUILT_IN}),
        "resources": ["*"],
        "verbs": ["create"],
    }
]
MAKES_PODS = [
    *ASKS,
    {"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"], "resourceNames": ["trainer"]},
]
PERSONS = {"ana": ASKS, "ben": MAKES_PODS}
"""With what they may do in the tenant's namespace."""


class Answer(NamedTuple):
    code: int
    message: str


class World:
    """A tenant's namespace with a job and its objects, and objects of others, on a server with roles and policies."""

    def __init__(self, plane: ControlPlane, admin: KubeCluster, namespace: str, job: JobKey) -> None:
        self.plane = plane
        self.admin = admin
        self.namespace = namespace
        self.job = job

    async def ask(self, who: str, method: str, path: str, body: Document | None = None) -> Answer:
        headers = MERGE if method == "PATCH" else {}
        if who in PERSONS:
            headers, who = {**headers, "Impersonate-User": who}, ADMIN
        async with (
            self.plane.session(who) as session,
            session.request(method, path, json=body, headers=headers) as answer,
        ):
            found = await read(answer)
            return Answer(answer.status, found.get("message", ""))

    async def refused(self, who: str, method: str, path: str, body: Document | None = None, *, why: str) -> None:
        """The policy refuses the call, and says why."""
        answer = await self.ask(who, method, path, body)
        assert answer.code == 403, answer
        assert "ValidatingAdmissionPolicy" in answer.message, answer
        assert why in answer.message, answer

    async def allowed(self, who: str, method: str, path: str, body: Document | None = None) -> None:
        answer = await self.ask(who, method, path, body)
        assert answer.code < 300, answer

    def at(self, plural: str, name: str = "", namespace: str = "", api: str = "/api/v1") -> str:
        return f"{api}/namespaces/{namespace or self.namespace}/{plural}" + (f"/{name}" if name else "")

    def ours(self, name: str, *, slot: Slot | None = None, **body: Any) -> Document:
        """What a service makes for the job."""
        meta = metadata(TRAININGJOB, self.job, name)
        del meta["namespace"]
        if slot is not None:
            meta["labels"] = slot_labels(TRAININGJOB, self.job, slot)
        return {"metadata": meta, **body}

    async def made(self, plural: str, document: Document, namespace: str = "") -> str:
        """The administrator makes an object; its path."""
        await self.allowed(ADMIN, "POST", self.at(plural, namespace=namespace), document)
        return self.at(plural, document["metadata"]["name"], namespace)


async def read(answer: aiohttp.ClientResponse) -> Document:
    found: Document = await answer.json() if "json" in answer.headers.get("Content-Type", "") else {}
    return found


def plain(prefix: str, **body: Any) -> Document:
    """An object that no job controls."""
    return {"metadata": {"name": f"{prefix}-{uuid4().hex[:8]}"}, **body}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(control_plane: ControlPlane) -> AsyncIterator[World]:
    """The roles and policies as they are shipped; the watcher's role was widened to everything by mistake."""
    widened = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "widened"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "watcher", "namespace": HOME}],
    }
    tenant = f"tenant-{uuid4().hex[:8]}"
    opted_in = {
        "name": tenant,
        "labels": {"muster.dev/jobs": "enabled", "pod-security.kubernetes.io/enforce": "baseline"},
        "annotations": {ACCOUNTS: "trainer,loader"},
    }
    namespaces = (opted_in, *({"name": name} for name in (HOME, ARGOCD)))
    applied: list[Document] = [{"kind": "Namespace", "metadata": each} for each in namespaces]
    applied += [found for service in SERVICE_ACCOUNTS for found in permissions.manifests(service)]
    applied += [widened, *policies.manifests(policies.accounts(), HOME, powers=Powers(namespaces=OPTED_IN))]
    applied += policies.of_requesters(HOME)
    applied += [found for person in PERSONS for found in rights_of(person, tenant)]
    async with AsyncExitStack() as stack:
        admin = await KubeCluster.connect(control_plane.kubeconfig(ADMIN))
        stack.push_async_callback(admin.close)
        await define(control_plane, *crds.manifests())
        for manifest in applied:
            resource, meta = APPLIED[manifest["kind"]], manifest["metadata"]
            namespace, name = meta.get("namespace", ""), meta["name"]
            made = await admin.create(resource, namespace, manifest)
            stack.push_async_callback(admin.delete, resource, namespace, name, uid=made.metadata.uid)
        await until(lambda: admin.serves(TRAININGJOBS))
        job = await admin.create(TRAININGJOBS, tenant, of_tenant(a_job("resnet", "true"), tenant))
        world = World(control_plane, admin, tenant, JobKey(tenant, "resnet", Uid(job.metadata.uid)))
        await until(lambda: in_force(world))
        yield world


def of_tenant(document: Document, namespace: str) -> Document:
    document["metadata"]["namespace"] = namespace
    return document


def rights_of(person: str, namespace: str) -> list[Document]:
    group = "rbac.authorization.k8s.io"
    metadata = {"name": person, "namespace": namespace}
    reference = {"apiGroup": group, "kind": "Role", "name": person}
    subject = {"apiGroup": group, "kind": "User", "name": person}
    return [
        {"kind": "Role", "metadata": metadata, "rules": PERSONS[person]},
        {"kind": "RoleBinding", "metadata": metadata, "roleRef": reference, "subjects": [subject]},
    ]


def an_event(world: World, regarding: Document) -> Document:
    """A Kubernetes Event that the API server takes."""
    return plain(
        "event",
        eventTime="2026-01-01T00:00:00.000000Z",
        reportingComponent="muster.dev/status",
        reportingInstance="status-0",
        action="Announce",
        reason="Running",
        type="Normal",
        involvedObject={**regarding, "namespace": world.namespace},
    )


async def in_force(world: World) -> bool:
    """An API server learns of roles and policies a moment later."""
    thing = plain("probe")
    probes = {
        "watcher": ("configmaps", "/api/v1", thing),
        "scheduler": ("pods", "/api/v1", thing | {"spec": {"containers": [CONTAINER]}}),
        "scaler": ("configmaps", "/api/v1", thing),
        "status": ("events", EVENTS, an_event(world, {"kind": "Pod"})),
    }
    answers = [
        await world.ask(who, "POST", world.at(plural, api=api) + "?dryRun=All", body)
        for who, (plural, api, body) in probes.items()
    ]
    job = of_tenant(a_job("probe", "true"), world.namespace)
    path = world.at("trainingjobs", api=f"/apis/{TRAININGJOBS.api_version}")
    asked = await world.ask("ana", "POST", f"{path}?dryRun=All", job)
    return all("Muster may not" in answer.message for answer in answers) and "a job is pods" in asked.message


WORKER = Slot(attempt=0, role="worker", index=0)


def of_replica_set(document: Document) -> None:
    own = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "blockOwnerDeletion": False}
    document["metadata"]["ownerReferences"][0] |= own


def of_another_job(document: Document) -> None:
    document["metadata"]["labels"]["muster.dev/job-uid"] = "another"


def without_owner(document: Document) -> None:
    del document["metadata"]["ownerReferences"]


def without_a_slot(document: Document) -> None:
    del document["metadata"]["labels"]["muster.dev/attempt"]


@pytest.mark.attack("the scheduler's token", "nodes, and Muster's own namespace")
@pytest.mark.parametrize("namespace", [SYSTEM, HOME])
async def test_a_scheduler_makes_no_pod_with_the_hosts_disk_where_the_system_lives(world: World, namespace: str):
    pod = world.ours("resnet-worker-9", slot=WORKER, spec={"containers": [CONTAINER], **HOST})
    await world.refused("scheduler", "POST", world.at("pods", namespace=namespace), pod, why="closed")


@pytest.mark.attack("the scheduler's token", "namespaces that did not opt in")
@pytest.mark.parametrize("namespace", [ARGOCD, "default"])
async def test_a_scheduler_makes_no_pod_where_nobody_asked_for_muster(world: World, namespace: str):
    spec = {"containers": [CONTAINER], "serviceAccountName": "argocd-application-controller", **HOST}
    pod = world.ours("resnet-worker-9", slot=WORKER, spec=spec)
    await world.refused("scheduler", "POST", world.at("pods", namespace=namespace), pod, why=OPTED_IN[0])


@pytest.mark.attack("the scheduler's token", "nodes, through a namespace that opted in")
async def test_a_scheduler_makes_no_pod_with_the_hosts_disk_where_pod_security_refuses_that(world: World):
    pod = world.ours("resnet-worker-9", slot=WORKER, spec={"containers": [CONTAINER], **HOST})
    answer = await world.ask("scheduler", "POST", world.at("pods"), pod)
    assert answer.code == 403
    assert 'violates PodSecurity "baseline' in answer.message


@pytest.mark.attack("the scheduler's token", "service accounts of a tenant")
async def test_a_scheduler_makes_pods_only_under_accounts_that_the_namespace_names(world: World):
    for account in ("builder", "train"):
        pod = world.ours(
            "resnet-worker-9", slot=WORKER, spec={"containers": [CONTAINER], "serviceAccountName": account}
        )
        await world.refused("scheduler", "POST", f"{world.at('pods')}?dryRun=All", pod, why=ACCOUNTS)
    for account in ("default", "trainer", "loader"):
        pod = world.ours(
            "resnet-worker-9", slot=WORKER, spec={"containers": [CONTAINER], "serviceAccountName": account}
        )
        answer = await world.ask("scheduler", "POST", f"{world.at('pods')}?dryRun=All", pod)
        assert "Muster may not" not in answer.message


async def test_where_the_label_goes_nothing_begins_and_what_is_there_ends(world: World):
    pod = world.ours("resnet-worker-7", slot=WORKER, spec={"containers": [CONTAINER]})
    await world.allowed("scheduler", "POST", world.at("pods"), pod)

    async def label(value: str | None) -> None:
        await world.admin.patch(NAMESPACES, "", world.namespace, {"metadata": {"labels": {"muster.dev/jobs": value}}})

    await label(None)
    another = world.ours("resnet-worker-6", slot=WORKER, spec={"containers": [CONTAINER]})

    async def closed() -> bool:
        answer = await world.ask("scheduler", "POST", f"{world.at('pods')}?dryRun=All", another)
        return "lacks the label muster.dev/jobs=enabled" in answer.message

    await until(closed)
    told = an_event(world, {"kind": "TrainingJob", "apiVersion": TRAININGJOBS.api_version, "name": "resnet"})
    await world.allowed("status", "POST", world.at("events", api=EVENTS), told)
    await world.allowed("scheduler", "DELETE", world.at("pods", "resnet-worker-7"))
    await label("enabled")

    async def open_again() -> bool:
        return not await closed()

    await until(open_again)


@pytest.mark.attack("the scheduler's token", "pods that are no job's")
@pytest.mark.parametrize("change", [of_replica_set, of_another_job, without_owner, without_a_slot])
async def test_a_scheduler_makes_no_pod_that_is_not_a_jobs(world: World, change):
    pod = world.ours("resnet-worker-8", slot=WORKER, spec={"containers": [CONTAINER]})
    change(pod)
    await world.refused("scheduler", "POST", world.at("pods"), pod, why="controller")


async def test_a_scheduler_makes_and_deletes_what_is_a_jobs(world: World):
    things = {
        "pods": world.ours("resnet-worker-0", slot=WORKER, spec={"containers": [CONTAINER]}),
        "services": world.ours("resnet", spec={"clusterIP": "None"}),
        "secrets": world.ours("resnet", type="Opaque", data={}),
    }
    for plural, thing in things.items():
        await world.allowed("scheduler", "POST", world.at(plural), thing)
        await world.allowed("scheduler", "DELETE", world.at(plural, thing["metadata"]["name"]))


@pytest.mark.attack("the scheduler's token", "tokens of other accounts")
async def test_a_scheduler_makes_no_secret_that_becomes_the_token_of_an_account(world: World):
    token = world.ours("token", type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    await world.refused("scheduler", "POST", world.at("secrets"), token, why="Opaque")


@pytest.mark.attack("the scheduler's token", "addresses of others")
async def test_a_scheduler_makes_no_service_that_takes_addresses_of_others(world: World):
    service = world.ours("taken", spec={"externalIPs": ["192.0.2.1"], "ports": [{"port": 443}]})
    await world.refused("scheduler", "POST", world.at("services"), service, why="headless")


@pytest.mark.attack("the scheduler's token", "objects of others")
@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("pods", {"spec": {"containers": [CONTAINER]}}),
        ("services", {"spec": {"clusterIP": "None"}}),
        ("secrets", {"data": {}}),
    ],
)
async def test_a_scheduler_deletes_nothing_of_others(world: World, plural: str, body: Document):
    path = await world.made(plural, plain("theirs", **body))
    await world.refused("scheduler", "DELETE", path, why="controller")
    await world.allowed(ADMIN, "GET", path)


@pytest.mark.attack("the scheduler's token", "objects of others")
async def test_a_scheduler_does_not_even_try_to_delete_a_secret_of_others(world: World):
    """The answer to a deletion in dry run is the whole Secret while a finalizer keeps that."""
    kept = plain("theirs", data={"key": "c2VjcmV0"})
    kept["metadata"]["finalizers"] = ["muster.dev/kept"]
    path = await world.made("secrets", kept)
    tried = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    await world.refused("scheduler", "DELETE", f"{path}?dryRun=All", why="controller")
    await world.refused("scheduler", "DELETE", path, tried, why="controller")
    async with world.plane.session(ADMIN) as session, session.request("DELETE", path, json=tried) as answer:
        assert (await read(answer))["data"] == kept["data"], "what it would have read"
    await world.allowed(ADMIN, "PATCH", path, {"metadata": {"finalizers": []}})


async def test_a_scheduler_deletes_a_job_that_expires_outside_closed_namespaces(world: World):
    for namespace in (world.namespace, SYSTEM):
        job = of_tenant(a_job("expired", "true", ttlSecondsAfterFinished=1), namespace)
        await world.admin.create(TRAININGJOBS, namespace, job)
    group = f"/apis/{TRAININGJOBS.api_version}"
    await world.allowed("scheduler", "DELETE", world.at("trainingjobs", "expired", api=group))
    await world.refused("scheduler", "DELETE", world.at("trainingjobs", "expired", SYSTEM, group), why="closed")
    await world.refused("scheduler", "DELETE", world.at("trainingjobs", "resnet", api=group), why="time to live")


@pytest.mark.attack("the scaler's token", "objects of others")
@pytest.mark.parametrize("namespace", [SYSTEM, ""])
async def test_a_scaler_patches_no_config_map_of_others(world: World, namespace: str):
    path = await world.made("configmaps", plain("coredns", data={"Corefile": "."}), namespace)
    why = "closed" if namespace else "controller"
    await world.refused("scaler", "PATCH", path, {"data": {"Corefile": "forward . 192.0.2.1"}}, why=why)
    claimed = {"metadata": world.ours("x")["metadata"], "data": {"Corefile": "forward . 192.0.2.1"}}
    del claimed["metadata"]["name"]
    await world.refused("scaler", "PATCH", path, claimed, why=why)


async def test_a_scaler_writes_the_hosts_files_of_a_job(world: World):
    hosts, path = world.ours("resnet-config", data={}), world.at("configmaps", "resnet-config")
    await world.allowed("scaler", "POST", world.at("configmaps"), hosts)
    await world.allowed("scaler", "PATCH", path, {"data": {"hostfile": "resnet-worker-0:1"}})
    await world.allowed("scaler", "DELETE", path)


@pytest.mark.attack("the scaler's token", "the containers of a job's pods")
async def test_a_scaler_patches_only_its_annotations_of_a_jobs_pods(world: World):
    pod = world.ours(
        "resnet-launcher", slot=Slot(attempt=0, role="launcher", index=0), spec={"containers": [CONTAINER]}
    )
    pod["metadata"]["annotations"] = {"note": "theirs"}
    path = await world.made("pods", pod)
    for patch in (
        {"spec": {"containers": [CONTAINER | {"image": "mine"}]}},
        {"metadata": {"annotations": {"another": "1"}}},
        {"metadata": {"annotations": {"note": "ours"}}},
        {"metadata": {"annotations": {"note": None}}},
        {"metadata": {"labels": {"app": "web"}}},
        {"metadata": {"finalizers": ["muster.dev/forever"]}},
    ):
        await world.refused("scaler", "PATCH", path, patch, why="only the annotations")
    await world.allowed("scaler", "PATCH", path, {"metadata": {"annotations": {HOSTS_VERSION: "7"}}})
    theirs = await world.made("pods", plain("web", spec={"containers": [CONTAINER]}))
    patch = {"metadata": {"annotations": {HOSTS_VERSION: "7"}}}
    await world.refused("scaler", "PATCH", theirs, patch, why="only the annotations")


@pytest.mark.attack("the scaler's token", "a shell in a pod of others")
async def test_a_scaler_runs_commands_in_launchers_only(world: World):
    pods = {
        world.at("pods", "web"): "launchers only",
        world.at("pods", "resnet-worker-0"): "launchers only",
        world.at("pods", "resnet-launcher", SYSTEM): "closed",
        world.at("pods", "resnet-launcher", HOME): "closed",
    }
    for path, why in pods.items():
        for method in ("POST", "GET"):
            await world.refused("scaler", method, f"{path}/exec?command=id&stdout=true", why=why)
    answer = await world.ask("scaler", "POST", world.at("pods", "x-launcher") + "/exec?command=id&stdout=true")
    assert answer.code == 404, answer


@pytest.mark.attack("the scaler's token", "scale requests of others")
async def test_a_scaler_changes_of_a_request_its_owner_alone(world: World):
    request = of_tenant(a_request("ScaleIn", "in", "resnet", toDelete={"count": 1}), world.namespace)
    await world.admin.create(SCALEINS, world.namespace, request)
    path = world.at("scaleins", "in", api=f"/apis/{SCALEINS.api_version}")
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "u"}
    for patch in ({"metadata": {"ownerReferences": [foreign]}}, {"metadata": {"labels": {"a": "b"}}}):
        await world.refused("scaler", "PATCH", path, patch, why="owners")
    owner = owner_reference(TRAININGJOB.resource, world.job)
    await world.allowed("scaler", "PATCH", path, {"metadata": {"ownerReferences": [owner]}})
    await world.refused("scaler", "PATCH", path, {"metadata": {"ownerReferences": []}}, why="owners")
    await world.refused("scaler", "DELETE", path, why="no such call")


@pytest.mark.attack("the status service's token", "objects of others")
async def test_a_status_service_writes_statuses_and_events_about_jobs(world: World):
    path = world.at("trainingjobs", "resnet", api=f"/apis/{TRAININGJOBS.api_version}")
    await world.allowed("status", "PATCH", f"{path}/status", {"status": {"phase": "Created"}})
    path = world.at("events", api=EVENTS)
    job = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob"}
    await world.allowed("status", "POST", path, an_event(world, job))
    await world.refused("status", "POST", path, an_event(world, {"kind": "Pod"}), why="not about a job")


@pytest.mark.attack("the watcher's token", "objects of others")
async def test_a_watcher_writes_nothing_whatever_its_role_is(world: World):
    pod = world.ours("resnet-worker-7", slot=WORKER, spec={"containers": [CONTAINER]})
    job = world.at("trainingjobs", "resnet", api=f"/apis/{TRAININGJOBS.api_version}")
    for method, path, body in (
        ("POST", world.at("pods"), pod),
        ("POST", world.at("configmaps"), plain("any")),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "more"}}),
        ("DELETE", job, None),
        ("PATCH", f"{job}/status", {"status": {"phase": "Failed"}}),
        ("POST", world.at("serviceaccounts", "default") + "/token", {"spec": {}}),
        ("POST", world.at("pods", "x-launcher") + "/exec?command=id", None),
        ("DELETE", world.at("secrets"), None),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "mine"}, "rules": []}),
    ):
        await world.refused("watcher", method, path, body, why="the watcher makes no such call")
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    await world.allowed("watcher", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})


async def test_nobody_else_is_asked_anything(world: World):
    for namespace in (SYSTEM, HOME, world.namespace):
        path = await world.made("configmaps", plain("anything"), namespace)
        await world.allowed(ADMIN, "DELETE", path)


async def test_the_api_server_has_no_doubts_about_a_policy(world: World):
    async def checked() -> bool:
        found = await world.admin.get(APPLIED[policies.POLICY], "", policies.name(policies.accounts(), HOME))
        assert found is not None
        assert not found.status.get("typeChecking", {}).get("expressionWarnings"), found.status
        return "observedGeneration" in found.status

    await until(checked)


def asked_by(person: str, world: World, **template: Any) -> Document:
    job = of_tenant(a_job(f"of-{person}-{uuid4().hex[:8]}", "true"), world.namespace)
    job["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"] |= template
    return job


def scaled_by(person: str, world: World, **more: Any) -> Document:
    name = f"of-{person}-{uuid4().hex[:8]}"
    return of_tenant(a_request("ScaleIn", name, "resnet", toDelete={"count": 1}, **more), world.namespace)


@pytest.mark.attack("who may create jobs and scale requests", "pods and commands, with the policy for requesters")
async def test_who_asks_for_pods_and_commands_has_to_be_allowed_to_make_them(world: World):
    api = f"/apis/{TRAININGJOBS.api_version}"
    jobs, requests = (world.at(plural, api=api) for plural in ("trainingjobs", "scaleins"))
    await world.refused("ana", "POST", jobs, asked_by("ana", world), why="the right to create pods in")
    script = scaled_by("ana", world, script="/opt/shrink.sh")
    await world.refused("ana", "POST", requests, script, why="the right to create pods/exec in")
    await world.allowed("ana", "POST", requests, scaled_by("ana", world))
    await world.allowed("ben", "POST", jobs, asked_by("ben", world, serviceAccountName="default"))
    await world.allowed("ben", "POST", requests, scaled_by("ben", world, script="/opt/shrink.sh"))


@pytest.mark.attack("who may create jobs and scale requests", "service accounts, with the policy for requesters")
@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
async def test_who_names_an_account_in_a_template_has_to_be_allowed_to_impersonate_it(world: World, field: str):
    jobs = world.at("trainingjobs", api=f"/apis/{TRAININGJOBS.api_version}")
    job = asked_by("ben", world, **{field: "builder"})
    await world.refused("ben", "POST", jobs, job, why="the right to impersonate it")
    await world.allowed("ben", "POST", jobs, asked_by("ben", world, **{field: "trainer"}))
    await world.allowed(ADMIN, "POST", jobs, job)


def under(account: str) -> Document:
    """What has a pod template under a service account."""
    return {"template": {"spec": {"containers": [CONTAINER], "serviceAccountName": account}}}


def a_job_set(account: str) -> Document:
    return {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": under(account)}}]}}


def a_patch(account: str, manager: str = "a.com/b") -> Document:
    change = {"template": {"spec": {"serviceAccountName": account}}}
    jobs = [{"name": "node", "template": {"spec": change}}]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


TRAINER, MPBA = "trainer.kubeflow.org/v1alpha1", "mpba.fbk.eu/v1"


@pytest.mark.attack("who may create jobs and scale requests", "service accounts, with the policy for requesters")
@pytest.mark.parametrize(
    ("api", "kind", "spec"),
    [
        pytest.param(
            TRAINER,
            "TrainJob",
            lambda account: {
                "runtimeRef": {"name": "torch"},
                "runtimePatches": [a_patch("default", "a.com/a"), a_patch(account)],
            },
            id="a patch of a runtime",
        ),
        pytest.param(TRAINER, "TrainingRuntime", lambda account: {"template": a_job_set(account)}, id="a runtime"),
        pytest.param(
            MPBA,
            "MXJob",
            lambda account: [
                {"replicaType": "SCHEDULER", "replicas": 1, **under("default")},
                {"replicaType": "WORKER", "replicas": 1, **under(account)},
            ],
            id="a spec that is a list",
        ),
    ],
)
async def test_an_account_is_seen_in_every_kind(world: World, api: str, kind: str, spec: Any):
    path = world.at(f"{kind.lower()}s", api=f"/apis/{api}") + "?dryRun=All"

    def asked(account: str) -> Document:
        return {"apiVersion": api, "kind": kind, **of_tenant(plain("of-ben", spec=spec(account)), world.namespace)}

    await world.refused("ana", "POST", path, asked("default"), why="the right to create pods in")
    await world.refused("ben", "POST", path, asked("builder"), why="the right to impersonate it")
    await world.allowed("ben", "POST", path, asked("trainer"))
    await world.allowed("ben", "POST", path, asked("default"))


def examples() -> list[tuple[Document, str]]:
    """The published jobs and ours, each with the path of its kind behind that of a namespace."""
    files = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))
    ours = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    return [
        (document, kind.resource.plural)
        for document in (*(example.manifest for example in PUBLISHED), *ours)
        if (kind := BUILT_IN.find(document["apiVersion"], document["kind"])) is not None
    ]


async def test_published_examples_pass_for_whoever_may_make_their_pods(world: World):
    tried = set[str]()
    for document, plural in examples():
        tried.add(plural)
        path = world.at(plural, api=f"/apis/{document['apiVersion']}") + "?dryRun=All"
        job = of_tenant(document, world.namespace)
        await world.refused("ana", "POST", path, job, why="the right to create pods in")
        await world.allowed("ben", "POST", path, job)
    # Those refer to runtimes, and stand in the test above.
    assert tried == {kind.resource.plural for kind in BUILT_IN} - {"trainjobs"}


def pod_specs(part: Any) -> Iterator[Document]:
    """Each part of a job that has containers."""
    if isinstance(part, dict) and "containers" in part:
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from pod_specs(inner)


@pytest.mark.attack("who may create jobs and scale requests", "service accounts, with the policy for requesters")
@pytest.mark.parametrize(
    ("example", "plural"), {f"{each['apiVersion']} {plural}": (each, plural) for each, plural in examples()}.values()
)
async def test_an_account_is_seen_in_each_template(world: World, example: Document, plural: str):
    document = of_tenant(example, world.namespace)
    path = world.at(plural, api=f"/apis/{document['apiVersion']}") + "?dryRun=All"
    found = [*pod_specs(document["spec"])]
    assert found
    for number in range(len(found)):
        for field in ("serviceAccountName", "serviceAccount"):
            job = deepcopy(document)
            [*pod_specs(job["spec"])][number][field] = "builder"
            await world.refused("ben", "POST", path, job, why="the right to impersonate it")


async def judged(world: World, path: str, document: Document) -> bool:
    """True once roles let `ben` ask."""
    return "ValidatingAdmissionPolicy" in (await world.ask("ben", "POST", path, document)).message


@pytest.mark.attack("who may create jobs and scale requests", "service accounts, with the policy for requesters")
async def test_who_writes_a_runtime_of_the_cluster_needs_the_rights_everywhere(world: World):
    path = f"/apis/{TRAINER}/clustertrainingruntimes?dryRun=All"

    def asked(account: str) -> Document:
        spec = {"template": a_job_set(account)}
        return {"apiVersion": TRAINER, "kind": "ClusterTrainingRuntime", "metadata": {"name": "of-ben"}, "spec": spec}

    rbac, named = "/apis/rbac.authorization.k8s.io/v1", {"name": "writes-runtimes"}
    rule = {"apiGroups": [TRAINER.partition("/")[0]], "resources": ["clustertrainingruntimes"], "verbs": ["create"]}
    group = "rbac.authorization.k8s.io"
    bound = {
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", **named},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ben"}],
    }
    await world.allowed(ADMIN, "POST", f"{rbac}/clusterroles", {"metadata": named, "rules": [rule]})
    await world.allowed(ADMIN, "POST", f"{rbac}/clusterrolebindings", {"metadata": named, **bound})
    await until(lambda: judged(world, path, asked("default")))
    await world.refused("ben", "POST", path, asked("default"), why="the right to create pods in every namespace")
    await world.allowed(ADMIN, "POST", path, asked("builder"))


@pytest.mark.attack("the scheduler's token", "objects of others, while taking over")
async def test_who_takes_over_changes_labels_of_a_jobs_objects_and_nothing_else(world: World):
    """The last test: the scheduler's role and policy are those for taking over from here on."""
    service = world.ours("of-another-operator", spec={"clusterIP": "None"})
    del service["metadata"]["labels"]
    path = await world.made("services", service)
    claim = {"metadata": {"labels": {JOB_UID: world.job.uid}}}
    assert (await world.ask("scheduler", "PATCH", path, claim)).code == 403
    _, role, _ = permissions.manifests("scheduler", powers=Powers(taking_over=True))
    policy, _ = policies.manifests(policies.accounts(), HOME, powers=Powers(taking_over=True))
    for manifest in (role, policy):
        part = "rules" if manifest is role else "spec"
        await world.admin.patch(APPLIED[manifest["kind"]], "", manifest["metadata"]["name"], {part: manifest[part]})

    async def claimed() -> bool:
        return (await world.ask("scheduler", "PATCH", path, claim)).code == 200

    await until(claimed)
    for patch in (
        {"spec": {"sessionAffinity": "ClientIP"}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"labels": {JOB_UID: "another"}}},
    ):
        await world.refused("scheduler", "PATCH", path, patch, why="only labels change")
    theirs = await world.made("services", plain("theirs", spec={"clusterIP": "None"}))
    await world.refused("scheduler", "PATCH", theirs, claim, why="only labels change")
    await world.refused("scheduler", "DELETE", theirs, why="controller")
    await world.allowed("scheduler", "DELETE", path)
