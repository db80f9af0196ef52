import copy
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from shared.frameworks.attaching import WORKER_COMMAND, ssh_secret
from shared.frameworks.training_job import SSH_KEYS, TRAININGJOB
from shared.job.naming import HOSTS_VERSION, JobKey, Slot, Uid, secret_name
from shared.job.spec import LAUNCHER, WORKER
from tests.frameworks.documents import Document, changed, custom, training_job
from tests.golden.compare import assert_golden
from tests.kit.pods import pod_for, service_for

KEY = JobKey("team-a", "resnet", Uid("uid-1"))
TEMPLATE = "spec.etReplicaSpecs.{role}.template"


def pod(document: Document, slot: Slot, *, scaleout: str = "", hosts: int = 0) -> Document:
    return pod_for(custom(document), slot, scaleout=scaleout, hosts=hosts)


def a_worker(document: Document | None = None, *, scaleout: str = "") -> Document:
    return pod(document or training_job(), Slot(0, WORKER, 3), scaleout=scaleout)


def a_launcher(document: Document | None = None, *, hosts: int = 0) -> Document:
    return pod(document or training_job(), Slot(0, LAUNCHER, 0), hosts=hosts)


def with_template(role: str, path: str, value: object) -> Document:
    return changed(training_job(), f"{TEMPLATE.format(role=role)}.{path}", value)


RICH_TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {"team": "vision", "muster.dev/job-uid": "another"},
        "annotations": {"example.com/note": "kept"},
    },
    "spec": {
        "restartPolicy": "Always",
        "serviceAccountName": "trainer",
        "priorityClassName": "batch",
        "hostname": "mine",
        "dnsConfig": {"searches": ["example.com"], "options": [{"name": "ndots", "value": "2"}]},
        "initContainers": [{"name": "fetch", "image": "curl", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "main",
                "image": "horovod",
                "command": ["train"],
                "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "aFieldOfTomorrow": {"deep": [1, None, {"x": 1.5}]},
            },
            {"name": "sidecar", "image": "logs"},
        ],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "anotherFieldOfTomorrow": True,
    },
}


def test_a_worker_pod_as_a_whole() -> None:
    document = changed(training_job(), TEMPLATE.format(role=WORKER), RICH_TEMPLATE)
    assert_golden("worker_pod", a_worker(document, scaleout="more"))


def test_a_launcher_pod_as_a_whole() -> None:
    document = changed(training_job(), TEMPLATE.format(role=LAUNCHER), RICH_TEMPLATE)
    assert_golden("launcher_pod", a_launcher(document))


def test_the_service_as_a_whole() -> None:
    assert_golden("headless_service", service_for(custom(training_job())))


def test_the_secret_as_a_whole() -> None:
    halves = {
        "private": b"private\n",
        "public": b"public\n",
        "host": b"private of hosts\n",
        "public_host": b"of hosts\n",
    }
    assert_golden("ssh_secret", ssh_secret(TRAININGJOB, KEY, secret_name(KEY, 0), **halves))


@pytest.mark.parametrize("role", [LAUNCHER, WORKER])
def test_rendering_leaves_the_resource_as_it_is(role: str) -> None:
    job = custom(changed(training_job(), TEMPLATE.format(role=role), RICH_TEMPLATE))
    before = copy.deepcopy(job.spec)
    for _ in range(2):
        pod_for(job, Slot(0, WORKER, 0), scaleout="more")
        pod_for(job, Slot(0, LAUNCHER, 0))
    assert job.spec == before


def test_labels_of_ours_win_over_the_templates() -> None:
    labels = {"training-job-role": "boss", "replica-index": "77", "muster.dev/attempt": "9", "team": "vision"}
    for role in (LAUNCHER, WORKER):
        made = pod(with_template(role, "metadata", {"labels": labels}), Slot(2, role, 0))["metadata"]["labels"]
        assert made == {
            "team": "vision",
            "group-name": "kai.alibabacloud.com",
            "training-job-name": "resnet",
            "training-job-role": role,
            "replica-index": "0",
            "muster.dev/job-uid": "uid-1",
            "muster.dev/attempt": "2",
        }


def test_a_launcher_carries_the_version_of_the_hosts_files_before_it_and_never_that_of_its_template() -> None:
    document = with_template(LAUNCHER, "metadata", {"annotations": {HOSTS_VERSION: "999", "note": "kept"}})
    assert a_launcher(document)["metadata"]["annotations"] == {"note": "kept"}
    assert a_launcher(document, hosts=3)["metadata"]["annotations"] == {HOSTS_VERSION: "3", "note": "kept"}


@pytest.mark.parametrize(
    ("container", "command"),
    [
        pytest.param({}, [*WORKER_COMMAND], id="neither command nor args"),
        pytest.param({"command": []}, [*WORKER_COMMAND], id="an empty command"),
        pytest.param({"command": ["train"]}, ["train"], id="a command"),
        pytest.param({"args": ["--fast"]}, None, id="args for the image's own entry point"),
    ],
)
def test_a_workers_command(container: Document, command: list[str] | None) -> None:
    document = with_template(WORKER, "spec.containers", [{"name": "main", "image": "horovod"} | container])
    assert a_worker(document)["spec"]["containers"][0].get("command") == command


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox"])
def test_the_default_command_of_a_worker_ends_at_once_when_it_is_told_to(shell: str, tmp_path: Path) -> None:
    if (program := which(shell)) is None:
        pytest.skip(f"there is no {shell} on this machine")
    first, *rest, line = WORKER_COMMAND
    up = tmp_path / "up"
    command = [program, *([first] if shell == "busybox" else []), *rest, line.replace("/usr/sbin/sshd", f"touch {up}")]
    with subprocess.Popen(command, start_new_session=True) as waiting:
        try:
            while not up.exists():
                time.sleep(0.01)
            waiting.terminate()
            assert waiting.wait(5) == 143
        finally:
            with suppress(ProcessLookupError):
                # It may have ended before it began to sleep.
                os.killpg(waiting.pid, signal.SIGKILL)
    failed = [program, *command[1:-1], line.replace("/usr/sbin/sshd", "false")]
    assert subprocess.run(failed, check=False).returncode == 1, "an image without sshd fails as before"


def test_a_launcher_without_command_runs_its_image() -> None:
    document = with_template(LAUNCHER, "spec.containers", [{"name": "main", "image": "horovod"}])
    assert "command" not in a_launcher(document)["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("mounted", "folders"),
    [
        pytest.param("/data", ["/etc/edl", "/job", "/etc/mpi"], id="a mount elsewhere changes nothing"),
        pytest.param("/job/", ["/etc/edl", "/etc/mpi"], id="the user's mount at a folder with copies stays"),
        pytest.param("/job/data", ["/etc/edl", "/etc/mpi"], id="nothing can be mounted into a read-only folder"),
        pytest.param("/jobs", ["/etc/edl", "/job", "/etc/mpi"], id="paths are compared whole"),
    ],
)
def test_mounts_of_the_user_stay(mounted: str, folders: list[str]) -> None:
    mount = {"name": "data", "mountPath": mounted}
    document = with_template(
        LAUNCHER, "spec.containers", [{"name": "main", "image": "horovod", "volumeMounts": [mount]}]
    )
    document = changed(document, f"{TEMPLATE.format(role=LAUNCHER)}.spec.volumes", [{"name": "data", "emptyDir": {}}])
    spec = a_launcher(document)["spec"]
    first, *ours = spec["containers"][0]["volumeMounts"]
    assert first == mount
    assert [mount["mountPath"] for mount in ours if mount["name"] != "muster-ssh"] == folders
    assert [volume["name"] for volume in spec["volumes"]] == ["data", *dict.fromkeys(mount["name"] for mount in ours)]
    assert all(mount["readOnly"] for mount in ours)


SSH_FILES = ["id_rsa", "id_rsa.pub", "authorized_keys", "config"]
OF_LAUNCHER = [*SSH_FILES, "known_hosts"]
OF_WORKER = ["authorized_keys", "id_rsa", "id_rsa.pub"]
HOST_KEYS = ["/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_ed25519_key.pub"]


def keys(made: Document) -> tuple[list[str], list[Document]]:
    """The files below /root/.ssh and elsewhere in the first container, and the volume they come from."""
    mounts = made["spec"]["containers"][0].get("volumeMounts") or ()
    files = [mount["mountPath"].removeprefix("/root/.ssh/") for mount in mounts if mount["name"] == "muster-ssh"]
    return files, [volume["secret"] for volume in made["spec"].get("volumes") or () if volume["name"] == "muster-ssh"]


def sources(volume: Document) -> dict[str, str]:
    """File → key of the Secret."""
    return {item["path"]: item["key"] for item in volume["items"]}


def launcher_for(workers: Document) -> Document:
    """The launcher of a job whose workers have this template."""
    return a_launcher(changed(training_job(), TEMPLATE.format(role=WORKER), workers))


def worker_of(workers: Document) -> Document:
    return a_worker(changed(training_job(), TEMPLATE.format(role=WORKER), workers))


def test_the_launcher_starts_every_process_of_open_mpi_itself_unless_the_template_says_otherwise() -> None:
    # Version 5 ignores the first name, the older ones the second.
    names = ("OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn")
    assert a_launcher()["spec"]["containers"][0]["env"] == [{"name": name, "value": "1"} for name in names]
    for name in names:
        tree = [{"name": name, "value": "0"}]
        document = with_template(LAUNCHER, "spec.containers", [{"name": "main", "image": "horovod", "env": tree}])
        assert a_launcher(document)["spec"]["containers"][0]["env"] == tree
    assert "env" not in a_worker()["spec"]["containers"][0]


CONTAINER = {"name": "main", "image": "horovod"}


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(
            {"spec": {"containers": [CONTAINER | {"volumeMounts": [{"name": "keys", "mountPath": "/etc/ssh/"}]}]}},
            id="the workers mount their settings",
        ),
        pytest.param(
            {"spec": {"containers": [CONTAINER], "securityContext": {"fsGroup": 1000}}},
            id="a group may read each file, and sshd rejects such a host key",
        ),
        pytest.param(
            {"metadata": {"annotations": {"muster.dev/ssh-host-keys": "own"}}, "spec": {"containers": [CONTAINER]}},
            id="the template says so",
        ),
    ],
)
def test_host_keys_are_not_checked_if(workers: Document) -> None:
    files, (volume,) = keys(launcher_for(workers))
    assert files == SSH_FILES
    assert sources(volume)["config"] == "config"
    assert keys(worker_of(workers))[0] == OF_WORKER


@pytest.mark.parametrize(("role", "files"), [(LAUNCHER, SSH_FILES), (WORKER, ["authorized_keys"])])
def test_keys_of_the_users_own_are_mounted_instead(role: str, files: list[str]) -> None:
    document = changed(training_job(), "metadata.annotations", {SSH_KEYS: "my-keys"})
    found, (volume,) = keys(pod(document, Slot(0, role, 0)))
    assert found == files
    assert volume["secretName"] == "my-keys"


@pytest.mark.parametrize("role", [LAUNCHER, WORKER])
def test_pods_of_an_attempt_that_was_taken_over_go_on_as_they_began(role: str) -> None:
    found, (volume,) = keys(pod_for(custom(training_job()), Slot(0, role, 0), ssh_secret="resnet"))
    assert found == SSH_FILES
    assert volume["secretName"] == "resnet"


@pytest.mark.parametrize(
    ("role", "mounted", "files"),
    [
        pytest.param(LAUNCHER, "/root/.ssh", [], id="the user's folder stays as it is"),
        pytest.param(LAUNCHER, "/root/.ssh/", [], id="a slash at the end is the same folder"),
        pytest.param(LAUNCHER, "/root/.ssh/config", [*SSH_FILES[:3], "known_hosts"], id="and so does the user's file"),
        pytest.param(LAUNCHER, "/root/.ssh/known_hosts", SSH_FILES, id="hosts that the user knows are not ours"),
        pytest.param(LAUNCHER, "/root", OF_LAUNCHER, id="a home of the user's gets the files"),
        pytest.param(LAUNCHER, "/root/.sshd", OF_LAUNCHER, id="names are compared whole"),
        pytest.param(WORKER, "/root/.ssh", HOST_KEYS, id="a worker's folder stays as it is"),
        pytest.param(WORKER, "/root/.ssh/id_rsa", [OF_WORKER[0], OF_WORKER[2], *HOST_KEYS], id="and a worker's file"),
    ],
)
def test_what_the_user_mounts_among_the_keys_stays(role: str, mounted: str, files: list[str]) -> None:
    mount = {"name": "data", "mountPath": mounted}
    container = {"name": "main", "image": "horovod", "volumeMounts": [mount]}
    document = with_template(role, "spec", {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]})
    made = pod(document, Slot(0, role, 0))
    assert made["spec"]["containers"][0]["volumeMounts"][0] == mount
    assert keys(made)[0] == files
    assert [item["path"] for volume in keys(made)[1] for item in volume["items"]] == [
        file.rpartition("/")[2] for file in files
    ]
