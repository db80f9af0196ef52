import pytest

from shared.frameworks.training_job import SSH_KEYS, SUSPENDED, parse_job
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem, RoleSpec
from tests.frameworks.documents import ABSENT, changed, custom, training_job

ROLES = "spec.etReplicaSpecs"
WORKER_CONTAINER = f"{ROLES}.worker.template.spec.containers[0]"


def parsed(document: dict[str, object]) -> JobSpec:
    answer = parse_job(custom(document))
    assert isinstance(answer, JobSpec), answer
    return answer


def refused(document: dict[str, object]) -> tuple[Problem, ...]:
    answer = parse_job(custom(document))
    assert isinstance(answer, tuple), answer
    return answer


def test_5_fields_that_are_absent_have_their_documented_defaults() -> None:
    document = changed(training_job(), "spec.cleanPodPolicy", ABSENT)
    document = changed(document, f"{ROLES}.worker.minReplicas", ABSENT)
    document = changed(document, f"{ROLES}.worker.maxReplicas", ABSENT)
    assert parsed(document) == JobSpec(
        framework="training",
        roles=(
            RoleSpec(name=LAUNCHER, replicas=1, container="main"),
            RoleSpec(
                name=WORKER,
                replicas=2,
                min_replicas=2,
                max_replicas=None,
                follows=True,
                written=True,
                container="main",
            ),
        ),
        slots_per_worker=1,
        attach_mode="ssh",
        clean_pod_policy="Running",
        restart_policy="Never",
        backoff_limit=6,
    )


def test_a_worker_that_says_nothing_of_its_number_is_one() -> None:
    document = changed(training_job(), f"{ROLES}.worker.replicas", ABSENT)
    worker = parsed(changed(document, f"{ROLES}.worker.minReplicas", ABSENT)).worker
    assert (worker.replicas, worker.min_replicas) == (1, 1)
    assert not worker.written, "the scale subresource has no place to write to"
    (problem,) = refused(changed(document, f"{ROLES}.worker.minReplicas", 2))
    assert problem.reason == "BelowMinimum"


def test_every_field_arrives_in_the_canonical_spec() -> None:
    document = training_job()
    for path, value in {
        "spec.cleanPodPolicy": "All",
        "spec.slotsPerWorker": 4,
        "spec.restartPolicy": "OnFailure",
        "spec.backoffLimit": 0,
        "spec.launcherAttachMode": "ssh",
        "spec.suspend": True,
        "spec.activeDeadlineSeconds": 3600,
        "spec.ttlSecondsAfterFinished": 0,
        "spec.schedulingTimeoutSeconds": 300,
        f"{ROLES}.launcher.restartPolicy": "Always",
        f"{ROLES}.worker.restartPolicy": "ExitCode",
    }.items():
        document = changed(document, path, value)
    assert parsed(document) == JobSpec(
        framework="training",
        roles=(
            RoleSpec(name=LAUNCHER, replicas=1, restart_policy="Always", container="main"),
            RoleSpec(
                name=WORKER, replicas=2, max_replicas=9, written=True, restart_policy="ExitCode", container="main"
            ),
        ),
        slots_per_worker=4,
        clean_pod_policy="All",
        restart_policy="OnFailure",
        backoff_limit=0,
        active_deadline_seconds=3600,
        ttl_seconds_after_finished=0,
        scheduling_timeout_seconds=300,
        suspend=True,
    )


@pytest.mark.parametrize(
    ("limit", "slots_per_worker", "slots"),
    [
        pytest.param(ABSENT, ABSENT, 1, id="a worker without GPUs has one slot"),
        pytest.param("4", ABSENT, 4, id="a slot for each GPU"),
        pytest.param(8, ABSENT, 8, id="a limit may be written as a number"),
        pytest.param("0", ABSENT, 1, id="no GPU is still one slot"),
        pytest.param("4", 2, 2, id="slotsPerWorker has the last word"),
        pytest.param("4k", 2, 2, id="an odd limit does not matter beside slotsPerWorker"),
    ],
)
def test_slots_per_worker(limit: object, slots_per_worker: object, slots: int) -> None:
    document = training_job()
    if limit is not ABSENT:
        document = changed(document, f"{WORKER_CONTAINER}.resources.limits", {"nvidia.com/gpu": limit})
    if slots_per_worker is not ABSENT:
        document = changed(document, "spec.slotsPerWorker", slots_per_worker)
    assert parsed(document).slots_per_worker == slots


def test_only_the_first_container_counts() -> None:
    sidecar = {"name": "sidecar", "image": "logs", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    document = changed(
        training_job(), f"{ROLES}.worker.template.spec.containers", [{"name": "main", "image": "horovod"}, sidecar]
    )
    assert parsed(document).slots_per_worker == 1
    assert parsed(document).role(WORKER).container == "main"


@pytest.mark.parametrize(
    ("value", "suspend"),
    [
        pytest.param("true", True, id="the annotation suspends"),
        pytest.param("false", False, id="any other value does not"),
    ],
)
def test_annotation_of_suspension(value: str, suspend: bool) -> None:
    assert parsed(changed(training_job(), "metadata.annotations", {SUSPENDED: value})).suspend is suspend


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        pytest.param({SSH_KEYS: "my.keys-1"}, "my.keys-1", id="the user's own keys"),
        pytest.param({SSH_KEYS: ""}, "", id="an empty name is none"),
        pytest.param({}, "", id="a pair is made"),
    ],
)
def test_annotation_of_the_keys(annotations: dict[str, str], name: str) -> None:
    assert parsed(changed(training_job(), "metadata.annotations", annotations)).ssh_secret == name


@pytest.mark.parametrize("name", ["My-Keys", "my keys", "-keys", "keys.", "a..b", "keys\n", "k" * 254])
def test_keys_that_no_secret_could_be_named_after_are_refused(name: str) -> None:
    (problem,) = refused(changed(training_job(), "metadata.annotations", {SSH_KEYS: name}))
    assert (problem.reason, problem.field) == ("InvalidName", f"metadata.annotations[{SSH_KEYS}]")
    assert name not in problem.message


def test_18_attaching_through_the_api_server_is_refused_with_the_way_out() -> None:
    """Line 18: it never worked there, and here it says so before anything is made."""
    (problem,) = refused(changed(training_job(), "spec.launcherAttachMode", "kubexec"))
    assert (problem.reason, problem.field) == ("KubexecNotSupported", "spec.launcherAttachMode")
    assert "set ssh" in problem.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("spec.backoffLimit", None, id="a null is an absent field"),
        pytest.param(f"{ROLES}.worker.replicas", 2.0, id="two point zero is two"),
        pytest.param(f"{ROLES}.worker.replicas", 9, id="as many as the maximum"),
        pytest.param(f"{ROLES}.worker.minReplicas", 2, id="as few as the minimum"),
        pytest.param(f"{ROLES}.worker.maxReplicas", 2**31 - 1, id="a maximum that means none"),
        pytest.param(f"{ROLES}.launcher.replicas", ABSENT, id="a launcher without replicas"),
        pytest.param(f"{ROLES}.worker.template.spec.whatever", {"new": [1]}, id="an unknown pod field"),
        pytest.param("spec.whatever", {"new": [1]}, id="an unknown field"),
        pytest.param("metadata.name", "a" * 50, id="the longest name"),
    ],
)
def test_accepted(path: str, value: object) -> None:
    parsed(changed(training_job(), path, value))


@pytest.mark.parametrize(
    ("path", "value", "reason", "field"),
    [
        pytest.param("metadata.name", "a" * 51, "InvalidName", "", id="a name that makes pods' names too long"),
        pytest.param("metadata.name", "7b", "InvalidName", "", id="a name that begins with a digit"),
        pytest.param("metadata.name", "a.b", "InvalidName", "", id="a name with a dot"),
        pytest.param("metadata.name", "ab-", "InvalidName", "", id="a name that ends with a hyphen"),
        pytest.param("metadata.name", "ab\n", "InvalidName", "", id="a name with a line break"),
        pytest.param("spec", None, "NoLauncher", f"{ROLES}.launcher", id="no spec"),
        pytest.param("spec", [1], "InvalidValue", "", id="a spec that is a list"),
        pytest.param("spec.etReplicaSpecs", {}, "NoLauncher", f"{ROLES}.launcher", id="no roles"),
        pytest.param(f"{ROLES}.worker", ABSENT, "NoWorker", "", id="no workers"),
        pytest.param(f"{ROLES}.launcher.replicas", 2, "NotOneLauncher", "", id="two launchers"),
        pytest.param(f"{ROLES}.launcher.replicas", 0, "NotOneLauncher", "", id="zero launchers"),
        pytest.param(f"{ROLES}.worker.replicas", True, "InvalidValue", "", id="true is not one"),
        pytest.param(f"{ROLES}.worker.replicas", "2", "InvalidValue", "", id="a number in quotes"),
        pytest.param(f"{ROLES}.worker.replicas", 2.5, "InvalidValue", "", id="half a worker"),
        pytest.param(f"{ROLES}.worker.replicas", 10, "AboveMaximum", "", id="more than the maximum"),
        pytest.param(f"{ROLES}.worker.minReplicas", 3, "BelowMinimum", f"{ROLES}.worker.replicas", id="too few"),
        pytest.param(f"{ROLES}.worker.restartPolicy", "Sometimes", "UnknownRestartPolicy", "", id="no such policy"),
        pytest.param(f"{ROLES}.worker.restartPolicy", ["Never"], "UnknownRestartPolicy", "", id="a list of policies"),
        pytest.param("spec.restartPolicy", "Always", "UnknownRestartPolicy", "", id="a job is not restarted always"),
        pytest.param("spec.cleanPodPolicy", "Some", "UnknownCleanPodPolicy", "", id="no such clean-up"),
        pytest.param("spec.launcherAttachMode", "telnet", "UnknownAttachMode", "", id="no such way to attach"),
        pytest.param(
            f"{ROLES}.launcher.template.spec.containers[0].env", ["A=1"], "InvalidValue",
            f"{ROLES}.launcher.template.spec.containers[0].env[0]", id="a launcher's variable that is no object",
        ),
        pytest.param(
            f"{ROLES}.launcher.template.spec.containers[0].env", [{"name": ["A"]}], "InvalidValue",
            f"{ROLES}.launcher.template.spec.containers[0].env[0].name", id="a launcher's variable with a list as name",
        ),
        pytest.param(f"{ROLES}.worker.template", ABSENT, "NoTemplate", "", id="no template"),
        pytest.param(
            f"{ROLES}.worker.template", {}, "NoContainers", f"{ROLES}.worker.template.spec.containers",
            id="an empty template",
        ),
        pytest.param(f"{ROLES}.worker.template.spec.containers", [], "NoContainers", "", id="no containers"),
        pytest.param(
            f"{ROLES}.worker.template.spec.containers", [None], "InvalidValue", WORKER_CONTAINER,
            id="a container that is nothing",
        ),
        pytest.param(f"{WORKER_CONTAINER}.name", "", "NoContainerName", "", id="a container without a name"),
        pytest.param(f"{WORKER_CONTAINER}.name", "Main", "InvalidContainerName", "", id="a capital letter"),
        pytest.param(f"{WORKER_CONTAINER}.name", "m" * 64, "InvalidContainerName", "", id="a long container name"),
        pytest.param(f"{WORKER_CONTAINER}.image", ABSENT, "NoImage", "", id="a container without an image"),
        pytest.param(
            f"{ROLES}.worker.template.spec.containers", [{"name": "main", "image": "a"}] * 2,
            "InvalidContainerName", f"{ROLES}.worker.template.spec.containers[1].name",
            id="two containers of one name",
        ),
        pytest.param(f"{WORKER_CONTAINER}.volumeMounts", {"a": 1}, "InvalidValue", "", id="mounts that are no list"),
        pytest.param(
            f"{ROLES}.worker.template.spec.containers",
            [{"name": "main", "image": "a"}, {"name": "side", "image": "b", "volumeMounts": 7}],
            "InvalidValue", f"{ROLES}.worker.template.spec.containers[1].volumeMounts",
            id="mounts of a sidecar that are no list",
        ),
        pytest.param(
            f"{ROLES}.worker.template.spec.securityContext", "root", "InvalidValue", "", id="no security context"
        ),
        pytest.param(
            f"{WORKER_CONTAINER}.resources.limits", {"nvidia.com/gpu": "1.5"}, "InvalidValue",
            f"{WORKER_CONTAINER}.resources.limits.nvidia.com/gpu", id="half a GPU",
        ),
        pytest.param(
            f"{ROLES}.worker.template.metadata.labels", {"team": 7}, "InvalidValue", "", id="a label that is a number"
        ),
    ],
)  # fmt: skip
def test_refused(path: str, value: object, reason: str, field: str) -> None:
    problems = refused(changed(training_job(), path, value))
    assert (problems[0].reason, problems[0].field) == (reason, field or path)
    assert problems[0].message


def test_all_problems_are_named_at_once() -> None:
    document = changed(training_job(name="7b"), "spec.launcherAttachMode", "kubexec")
    document = changed(document, f"{ROLES}.worker.replicas", 0)
    assert [problem.reason for problem in refused(document)] == ["InvalidName", "InvalidValue", "KubexecNotSupported"]
