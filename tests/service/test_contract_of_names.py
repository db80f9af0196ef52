"""The names, labels and owners that users, scripts and selectors rely on."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, a_scale_in, a_scale_out, a_training_job
from tests.memory.watching import Held
from tests.service.stage import Stage

GROUP = "kai.alibabacloud.com"


def owner(job: Held) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainingJob",
        "name": job.at[1],
        "uid": job.metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


@in_virtual_time
async def test_every_child_has_the_names_labels_and_owner_of_the_contract():
    async with Stage() as stage:
        job = stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(1, name="more"))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "more")
        ours = {"group-name": GROUP, "training-job-name": "resnet", "muster.dev/job-uid": job.metadata["uid"]}
        pod = ours | {"muster.dev/attempt": "0"}
        worker = pod | {"training-job-role": "worker"}
        found = {
            (resource.kind, held.at[1]): held.metadata.get("labels")
            for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS)
            for held in stage.store.find(resource)
        }
        assert found == {
            ("Pod", "resnet-launcher"): pod | {"training-job-role": "launcher", "replica-index": "0"},
            ("Pod", "resnet-worker-0"): worker | {"replica-index": "0"},
            ("Pod", "resnet-worker-1"): worker | {"replica-index": "1"},
            ("Pod", "resnet-worker-2"): worker | {"replica-index": "2", "scaleout-name": "more"},
            ("Service", "resnet"): ours,
            ("ConfigMap", "resnet-config"): ours,
            ("Secret", "resnet"): ours,
        }
        for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS):
            for held in stage.store.find(resource):
                assert held.metadata["ownerReferences"] == [owner(job)], held.at


@in_virtual_time
async def test_pods_run_with_restart_policy_never_and_resolve_each_other():
    async with Stage() as stage:
        job = a_training_job(workers=1)
        for role in job["spec"]["etReplicaSpecs"].values():
            role["template"]["spec"]["restartPolicy"] = "Always"
        stage.apply(TRAININGJOBS, job)
        await stage.running()
        for name, held in stage.pods().items():
            spec = held.manifest["spec"]
            assert spec["restartPolicy"] == "Never"
            assert (spec["hostname"], spec["subdomain"]) == (name, "resnet")
            assert spec["dnsConfig"]["searches"] == ["resnet.team-a.svc.cluster.local"]
        service = stage.store.get(SERVICES, NAMESPACE, "resnet")
        assert service is not None
        assert service.manifest["spec"]["clusterIP"] == "None"
        assert service.manifest["spec"]["publishNotReadyAddresses"] is True
        assert {port["name"]: port["port"] for port in service.manifest["spec"]["ports"]} == {
            "ssh-port": 22,
            "kubeai-service-port": 9009,
        }


@in_virtual_time
async def test_the_launcher_comes_when_all_workers_are_running_and_ready():
    async with Stage() as stage:
        stage.stuck.add("resnet-worker-1")
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.until(lambda: len(stage.pods()) == 2)
        await stage.quiet()
        assert sorted(stage.pods()) == ["resnet-worker-0", "resnet-worker-1"]
        stage.stuck.clear()
        await stage.running()
        assert "resnet-launcher" in stage.pods()


@in_virtual_time
async def test_an_index_is_not_used_again():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.apply(SCALEINS, a_scale_in(1))
        await stage.phase("ScaleSucceeded", SCALEINS, "in")
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert stage.hosts() == ["resnet-worker-0", "resnet-worker-2"]


@pytest.mark.parametrize(
    ("resource", "name", "kind"), [(SCALEOUTS, "out", "ScaleOut"), (SCALEINS, "in", "ScaleIn")], ids=["out", "in"]
)
@in_virtual_time
async def test_a_request_that_is_acted_upon_has_the_job_as_controller_owner(resource: Any, name: str, kind: str):
    async with Stage() as stage:
        job = stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kept", "uid": "another"}
        stage.store.create(CONFIGMAPS, NAMESPACE, {"metadata": {"name": "kept"}, "data": {}})
        kept = stage.store.get(CONFIGMAPS, NAMESPACE, "kept")
        assert kept is not None
        foreign["uid"] = kept.metadata["uid"]
        request = a_scale_out() if kind == "ScaleOut" else a_scale_in()
        request["metadata"]["ownerReferences"] = [foreign]
        stage.apply(resource, request)
        await stage.phase("ScaleSucceeded", resource, name)
        held = stage.store.get(resource, NAMESPACE, name)
        assert held is not None
        assert held.metadata["ownerReferences"] == [foreign, owner(job)]


@pytest.mark.parametrize(
    ("resource", "manifest", "name"),
    [
        pytest.param(PODS, {"spec": {"containers": []}}, "resnet-worker-1", id="a worker's name"),
        pytest.param(PODS, {"spec": {"containers": []}}, "resnet-launcher", id="the launcher's name"),
        pytest.param(SERVICES, {"spec": {}}, "resnet", id="the Service's name"),
        pytest.param(CONFIGMAPS, {"data": {"hostfile": "mine"}}, "resnet-config", id="the ConfigMap's name"),
        pytest.param(SECRETS, {"data": {"id_rsa": "bWluZQ=="}}, "resnet", id="the Secret's name"),
    ],
)
@in_virtual_time
async def test_19_what_others_hold_is_never_touched_and_the_job_goes_on_when_it_is_gone(
    resource: Any, manifest: dict[str, Any], name: str
):
    async with Stage() as stage:
        # Labels can be copied by anybody: they make nothing ours.
        labels = {"training-job-name": "resnet", "muster.dev/job-uid": "00000002-0000-4000-8000-000000000000"}
        stage.apply(resource, {**manifest, "metadata": {"name": name, "labels": labels}})
        job = stage.apply(TRAININGJOBS, a_training_job(workers=2))
        assert job.metadata["uid"] == labels["muster.dev/job-uid"]
        shown = "WorkersCreated" if "worker" in name or resource is SECRETS else "LauncherCreated"
        await stage.shows(shown, "NameConflict")
        await stage.quiet()
        assert stage.condition(TRAININGJOBS, "resnet", shown) == ("False", "NameConflict")
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Created"
        held = stage.store.get(resource, NAMESPACE, name)
        assert held is not None
        assert "ownerReferences" not in held.metadata
        assert "hosts-version" not in str(held.metadata)
        assert ("NameConflict", "resnet") in stage.kubernetes_events()
        stage.delete(resource, name)
        await stage.running()
        assert stage.condition(TRAININGJOBS, "resnet", shown)[0] == "True"  # type: ignore[index]
