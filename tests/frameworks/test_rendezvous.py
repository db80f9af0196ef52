"""The rendezvous pod of elastic groups of torchrun: which jobs have one, and what it takes of the workers' template."""

import pickle
import signal
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.rendezvous import _PROGRAM, RESOURCES
from shared.frameworks.runtimes import joined
from shared.frameworks.trainjob import TRAINJOB
from shared.job.naming import Slot
from shared.job.spec import RENDEZVOUS, WORKER, JobSpec
from tests.frameworks.documents import Document, changed, custom, pytorch_job, spec_of, variables
from tests.kit.pods import pod_for, service_for
from tests.kit.trainer import as_read, torch_runtime, train_job

POLICY: Document = {"minReplicas": 1, "maxReplicas": 3}
ELASTIC = pytorch_job(policy=POLICY, Worker=2)
TEMPLATE = "spec.pytorchReplicaSpecs.Worker.template"
POD = f"{TEMPLATE}.spec"
CONTAINER = f"{POD}.containers[0]"
SERVED = Slot(0, RENDEZVOUS, 0)
OURS = "${PET_RDZV_ENDPOINT}"


def has_one(document: Document) -> bool:
    return spec_of(PYTORCHJOB, document).has(RENDEZVOUS)


def rendezvous(*changes: tuple[str, Any], of: Document = ELASTIC) -> Document:
    for path, value in changes:
        of = changed(of, path, value)
    return pod_for(custom(of), SERVED, PYTORCHJOB)


def container(*changes: tuple[str, Any], of: Document = ELASTIC) -> Document:
    (only,) = rendezvous(*changes, of=of)["spec"]["containers"]
    found: Document = only
    return found


def of_torch(runtime: Document, slot: Slot, **job: Any) -> Document:
    meta = {"namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"}
    manifest = train_job(**job)
    named = custom(manifest | {"metadata": meta | manifest["metadata"]})
    return pod_for(joined(named, as_read(runtime)), slot, TRAINJOB)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(ELASTIC, True, id="an elastic job"),
        pytest.param(pytorch_job(policy={}, Worker=2), True, id="a group of one size"),
        pytest.param(pytorch_job(policy=POLICY, Master=1, Worker=2), True, id="a group that is led"),
        pytest.param(pytorch_job(policy=POLICY | {"rdzvPort": 29400}, Worker=2), True, id="a port alone"),
        pytest.param(pytorch_job(Master=1, Worker=2), False, id="no elasticPolicy"),
        pytest.param(pytorch_job(policy=POLICY | {"rdzvHost": "store"}, Worker=2), False, id="a host"),
        pytest.param(pytorch_job(policy=POLICY | {"rdzvBackend": "etcd-v2"}, Worker=2), False, id="etcd"),
        pytest.param(pytorch_job(policy=POLICY | {"standalone": True}, Worker=2), False, id="standalone"),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.env", [{"name": "PET_RDZV_ENDPOINT", "value": "store:1"}]),
            False,
            id="an endpoint in a variable",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.command", ["sh", "-c", "torchrun --rdzv-endpoint=store:1 train.py"]),
            False,
            id="an endpoint in the command",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.args", ["--rdzv_backend", "static", "train.py"]), False, id="another backend"
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.command", ["torchrun", "--rdzv-backend=c10d", "train.py"]),
            True,
            id="the backend that it has, without a place",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.command", ["sh", "-c", 'torchrun --rdzv_backend "c10d" --master_addr=a t']),
            True,
            id="an address that torchrun heeds with another backend alone",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.env", [{"name": "PET_RDZV_BACKEND", "value": "c10d"}]),
            True,
            id="the backend that it has, in a variable",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.args", ["--rdzv-backend=$(PET_RDZV_BACKEND)", "--rdzv-endpoint", OURS]),
            True,
            id="our own variables in the command",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.args", ["--rdzv-backend=c10d", "--rdzv-endpoint=$(MASTER_ADDR):29500"]),
            False,
            id="the backend that it has, at a place in a variable",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.env", [{"name": "MASTER_ADDR", "value": "store"}]),
            True,
            id="an address of the training's own",
        ),
        pytest.param(
            changed(ELASTIC, f"{CONTAINER}.args", ["launch", "--rdzv_backend=c10d", "--main_process_ip=store", "t.py"]),
            False,
            id="a place that accelerate hands on",
        ),
        pytest.param(changed(ELASTIC, f"{CONTAINER}.args", ["--standalone", "t.py"]), False, id="alone, by an option"),
    ],
)
def test_a_group_whose_user_names_no_store_has_a_rendezvous(document: Document, *, expected: bool):
    assert has_one(document) is expected


def test_the_pods_of_an_attempt_without_a_rendezvous_keep_theirs_at_the_first_worker():
    made = pod_for(custom(ELASTIC), Slot(0, WORKER, 1), PYTORCHJOB, sizes={RENDEZVOUS: 0})
    assert variables(made)["PET_RDZV_ENDPOINT"] == "mnist-worker-0:23456"


@pytest.mark.parametrize(("policy", "port"), [({}, 23456), ({"rdzvPort": 29401}, 29401)])
def test_it_listens_where_the_workers_look(policy: Document, port: int):
    document = pytorch_job(policy=POLICY | policy, Worker=2)
    found = container(of=document)
    assert found["command"][5] == str(port)
    assert found["ports"] == [{"name": "rendezvous", "containerPort": port}]
    worker = pod_for(custom(document), Slot(0, WORKER, 0), PYTORCHJOB)
    assert variables(worker)["PET_RDZV_ENDPOINT"] == f"mnist-rdzv-0:{port}"
    selector = service_for(custom(document), SERVED, PYTORCHJOB)["spec"]["selector"]
    assert selector.items() <= rendezvous(of=document)["metadata"]["labels"].items()


def test_it_runs_the_workers_image_where_they_may_run():
    kept = {
        "nodeSelector": {"pool": "a100"},
        "tolerations": [{"key": "nvidia.com/gpu"}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "trainer",
        "securityContext": {"runAsUser": 1000},
        "priorityClassName": "high",
    }
    pod = rendezvous(*((f"{POD}.{name}", value) for name, value in kept.items()))
    assert {name: pod["spec"][name] for name in kept} == kept
    assert pod["spec"]["automountServiceAccountToken"] is False
    image = {"image": "team/torch:2", "imagePullPolicy": "Always", "securityContext": {"runAsNonRoot": True}}
    found = container(*((f"{CONTAINER}.{name}", value) for name, value in image.items()))
    assert {name: found[name] for name in image} == image


def test_it_takes_nothing_that_costs_or_could_keep_it_waiting():
    gpus = {"limits": {"nvidia.com/gpu": 8, "memory": "1Ti"}, "claims": [{"name": "gpu"}]}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    workers = changed(ELASTIC, f"{CONTAINER}.resources", gpus)
    workers = changed(workers, f"{CONTAINER}.args", ["train.py"])
    workers = changed(workers, f"{CONTAINER}.env", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        workers = changed(workers, f"{CONTAINER}.{field}", {"exec": {"command": ["true"]}})
    workers = changed(workers, f"{CONTAINER}.lifecycle", {"preStop": {"exec": {"command": ["true"]}}})
    for field, value in {
        "initContainers": [{"name": "data", "image": "fetch"}],
        "resourceClaims": [{"name": "gpu"}],
        "schedulingGroup": {"podGroupName": "mnist"},
        "hostNetwork": True,
        "volumes": [scratch, data],
        "terminationGracePeriodSeconds": 3600,
        "affinity": {"podAffinity": {}, "nodeAffinity": {"a": "b"}},
    }.items():
        workers = changed(workers, f"{POD}.{field}", value)
    pod = rendezvous(of=workers)
    (found,) = pod["spec"].pop("containers")
    assert found["resources"] == RESOURCES
    assert not found.keys() & {"args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}
    assert variables({"spec": {"containers": [found]}})["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not pod["spec"].keys() & {"initContainers", "resourceClaims", "schedulingGroup", "hostNetwork"}
    assert pod["spec"]["volumes"] == [{"name": "scratch", "emptyDir": {}}, data]
    assert pod["spec"]["affinity"] == {"nodeAffinity": {"a": "b"}}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 5


def test_a_side_container_does_not_come_along():
    helper = {"name": "helper", "image": "helper"}
    trains = custom(ELASTIC).spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    pod = rendezvous((f"{POD}.containers", [helper, trains]))
    assert [each["name"] for each in pod["spec"]["containers"]] == ["pytorch"]


def test_it_has_the_variables_that_it_can_resolve():
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    of_helper = {"containerName": "helper", "resource": "limits.cpu"}
    memory = {"name": "MEMORY", "valueFrom": {"resourceFieldRef": of_helper}}
    env = container((f"{CONTAINER}.env", [secret, memory]))["env"]
    assert secret in env
    assert memory not in env


def test_it_is_selected_by_no_label_of_the_replicas_and_counted_in_no_gang():
    meta = {
        "labels": {"app": "mnist", "pod-group.scheduling.sigs.k8s.io": "mnist", "kueue.x-k8s.io/queue-name": "q"},
        "annotations": {"sidecar.istio.io/inject": "false", "scheduling.k8s.io/group-name": "mnist"},
    }
    found = rendezvous((f"{TEMPLATE}.metadata", meta))["metadata"]
    assert found["labels"] == {
        "app": "mnist",
        "muster.dev/job-uid": "uid-1",
        "muster.dev/attempt": "0",
        "muster.dev/role": "rendezvous",
        "muster.dev/index": "0",
    }
    assert found["annotations"] == {"sidecar.istio.io/inject": "false"}


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(("affinity", {"podAntiAffinity": {"a": "b"}}), id="workers that keep apart"),
        pytest.param(("topologySpreadConstraints", [{"maxSkew": 1}]), id="workers that spread"),
    ],
)
def test_a_rule_of_the_workers_about_other_pods_does_not_count_it(rule: tuple[str, Any]):
    labels = {"labels": {"app": "mnist"}}
    found = rendezvous((f"{TEMPLATE}.metadata", labels), (f"{POD}.{rule[0]}", rule[1]))
    assert "app" not in found["metadata"]["labels"]
    assert rule[0] not in found["spec"]


@pytest.mark.parametrize(
    ("command", "first"),
    [
        pytest.param(["torchrun", "train.py"], [], id="what is on the path"),
        pytest.param(["/opt/env/bin/torchrun", "train.py"], ["/opt/env/bin/python3"], id="torchrun of an environment"),
        pytest.param(
            ["bash", "-c", "source /srv/env/bin/activate && torchrun train.py"],
            ["/srv/env/bin/python3"],
            id="an environment that a shell activates",
        ),
        pytest.param(["/usr/bin/python3.11", "-m", "torch.distributed.run"], ["/usr/bin/python3"], id="its Python"),
    ],
)
def test_it_tries_the_python_of_the_workers_command_first(command: list[str], first: list[str]):
    assert container((f"{CONTAINER}.command", command))["command"][7:] == first


@pytest.mark.parametrize(
    ("policy", "change", "group"),
    [
        pytest.param({}, (), "none", id="torchrun's own name for it"),
        pytest.param({"rdzvId": "mine"}, (), "mine", id="that of the policy"),
        pytest.param({}, (f"{CONTAINER}.env", [{"name": "PET_RDZV_ID", "value": "theirs"}]), "theirs", id="a variable"),
        pytest.param(
            {"rdzvId": "mine"},
            (f"{CONTAINER}.command", ["sh", "-c", "torchrun --rdzv-id=that t.py"]),
            "that",
            id="an option",
        ),
        pytest.param(
            {"rdzvId": "mine"}, (f"{CONTAINER}.args", ["--rdzv_id", "$(PET_RDZV_ID)", "t.py"]), "mine", id="ours"
        ),
        pytest.param(
            {}, (f"{CONTAINER}.command", ["sh", "-c", "torchrun --rdzv_id=$JOB_ID t"]), "$(JOB_ID)", id="a shell's"
        ),
        pytest.param(
            {"rdzvId": "mine"},
            (f"{CONTAINER}.command", ["sh", "-c", 'torchrun --rdzv-id "${TEAM}-$PET_RDZV_ID" t.py']),
            "$(TEAM)-mine",
            id="one that a shell puts together",
        ),
        pytest.param({}, (f"{CONTAINER}.args", ["--rdzv-id=$(JOB_ID)", "t.py"]), "$(JOB_ID)", id="the kubelet's"),
        pytest.param(
            {"rdzvId": "mine"},
            (f"{CONTAINER}.env", [{"name": "PET_RDZV_ID", "valueFrom": {"configMapKeyRef": {}}}]),
            "$(PET_RDZV_ID)",
            id="one that the cluster knows",
        ),
    ],
)
def test_it_knows_the_group_of_the_workers(policy: Document, change: tuple[str, Any], group: str):
    document = pytorch_job(policy=POLICY | policy, Worker=2)
    assert container(*([change] if change else []), of=document)["command"][6] == group


OPEN, CLOSED = SimpleNamespace(closed=False, round=3), SimpleNamespace(closed=True, round=3)


def opened_after(seen: list[Any], monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The second in which the pod opens the group; `seen` are its states as agents write them, None for no change."""
    seconds, found = [0], list[int]()
    now = [b""]

    class Group:
        def __init__(self, store: object, group: str) -> None:
            assert group == "none"

        def get_state(self) -> tuple[bytes, bytes]:
            return now[0], now[0]

        def set_state(self, state: bytes, token: bytes) -> None:
            assert (state, token) == (pickle.dumps(OPEN), now[0])
            now[0] = state
            found.append(seconds[0])

    class Time(ModuleType):
        def monotonic(self) -> float:
            return float(seconds[0])

        def sleep(self, length: float) -> None:
            if seconds[0] == len(seen):
                raise KeyboardInterrupt
            said = seen[seconds[0]]
            now[0] = pickle.dumps(said) if said is not None else now[0]
            seconds[0] += int(length)

    parts = ["torch", "distributed", "elastic", "rendezvous", "c10d_rendezvous_backend"]
    modules = {".".join(parts[: end + 1]): ModuleType(part) for end, part in enumerate(parts)}
    vars(modules["torch.distributed"])["TCPStore"] = lambda *_, **options: options
    vars(modules[".".join(parts)])["C10dRendezvousBackend"] = Group
    for name, module in {**modules, "time": Time("time")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", ["-c", "23456", "none"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "pause", lambda: pytest.fail("it gave up"))
    with pytest.raises(KeyboardInterrupt):
        exec(_PROGRAM, {})  # noqa: S102  it is the program of the pod
    (only,) = found or [None]
    return only


@pytest.mark.parametrize(
    ("seen", "opened"),
    [
        pytest.param([CLOSED, *[None] * 30], 17, id="once all agents of a group that failed are gone"),
        pytest.param([SimpleNamespace(closed=True, beat=beat // 5) for beat in range(60)], None, id="not before"),
        pytest.param([OPEN, *[None] * 5, CLOSED, *[None] * 14], None, id="counted from when it was closed"),
    ],
)
def test_a_group_that_failed_is_opened_again(
    seen: list[Any], opened: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert opened_after(seen, monkeypatch) == opened
    assert ("may meet again" in capsys.readouterr().out) is (opened is not None)


def test_jobs_that_share_a_store_without_an_id_are_told():
    def told(**policy: str) -> list[str]:
        return [known.field for known in spec_of(PYTORCHJOB, pytorch_job(policy=POLICY | policy, Worker=2)).ignored]

    assert told(rdzvBackend="etcd-v2", rdzvHost="etcd") == ["spec.elasticPolicy.rdzvId"]
    assert told(rdzvHost="store") == ["spec.elasticPolicy.rdzvId"]
    assert told(rdzvHost="mnist-worker-0") == told(rdzvHost="store", rdzvId="mnist") == told() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("command", ["sh", "-c", "torchrun --rdzv_id=$JOB_ID t.py"], id="by an option"),
        pytest.param("args", ["--rdzv-id", "$(JOB_ID)", "t.py"], id="that Kubernetes expands"),
        pytest.param("env", [{"name": "PET_RDZV_ID", "valueFrom": {"fieldRef": {}}}], id="by a variable"),
    ],
)
def test_an_id_that_the_pods_alone_know_is_one(field: str, value: object):
    document = pytorch_job(policy=POLICY | {"rdzvHost": "store"}, Worker=2)
    assert spec_of(PYTORCHJOB, changed(document, f"{CONTAINER}.{field}", value)).ignored == ()


def test_a_trainjob_with_an_elastic_runtime_has_one_too():
    runtime = torch_runtime(elasticPolicy={"minNodes": 1, "maxNodes": 3})
    pod = of_torch(runtime, SERVED, trainer={"image": "team/torch:2"})
    assert (pod["metadata"]["name"], pod["spec"]["hostname"]) == ("mnist-rdzv-0", "mnist-rdzv-0")
    (found,) = pod["spec"]["containers"]
    assert (found["name"], found["image"], found["command"][5]) == ("node", "team/torch:2", "29500")
    node = of_torch(runtime, Slot(0, WORKER, 1))
    assert variables(node)["PET_RDZV_ENDPOINT"] == "mnist-rdzv-0.mnist:29500"
    assert variables(node)["PET_RDZV_ID"] == found["command"][6] == "mnist"


def test_a_trainjob_that_names_a_store_has_none():
    runtime = torch_runtime(elasticPolicy={"minNodes": 1, "maxNodes": 3})
    job = train_job(trainer={"args": ["torchrun", "--rdzv-endpoint=store:1", "train.py"]})
    meta = {"namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"}
    parsed = TRAINJOB.parse(joined(custom(job | {"metadata": meta | job["metadata"]}), as_read(runtime)))
    assert isinstance(parsed, JobSpec)
    assert not parsed.has(RENDEZVOUS)


def test_without_torch_in_the_image_the_pod_waits_and_ends_no_job():
    assert "exit 1\n" not in container()["command"][2], "an image without torch has no torchrun either"
