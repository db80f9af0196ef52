"""MPIJobs of both versions: what they ask for, their pods and their hosts files, by the rules of their operators."""

import subprocess
from functools import partial
from pathlib import Path

import pytest
import yaml

from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.kubeflow import REPLICA_INDEX
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from shared.job.naming import MIN_WORKERS, JobKey, Slot, Uid, WorkerName
from shared.job.spec import LAUNCHER, UNLIMITED, WORKER, Problem
from shared.job.state import Job, JobResource
from tests.frameworks.documents import ABSENT, Document, changed, custom, mpi_job, reasons_of, spec_of
from tests.kit.pods import pod_for, service_for

LAUNCHERS = "spec.mpiReplicaSpecs.Launcher"
WORKERS = "spec.mpiReplicaSpecs.Worker"
CONTAINER = f"{LAUNCHERS}.template.spec.containers.0"
AGENT, AGENT_OF_5 = "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"
GPUS = ["nvidia.com/gpu", "amd.com/gpu", "alpha.kubernetes.io/nvidia-gpu", "tencent.com/qgpu-core"]
THE_LAUNCHER = Slot(0, LAUNCHER, 0)
A_WORKER = Slot(0, WORKER, 1)
KEY = JobKey("team-a", "pi", Uid("uid-1"))
MEMBERS = (WorkerName("pi-worker-0"), WorkerName("pi-worker-1"))
GOLDEN = Path(__file__).parents[1] / "golden" / "mpi"


parsed = partial(spec_of, MPIJOB)
reasons = partial(reasons_of, MPIJOB)


def files(document: Document, members: tuple[WorkerName, ...] = MEMBERS) -> dict[str, str]:
    return MPIJOB.hosts_files(KEY, parsed(document), members)


def first(pod: Document) -> Document:
    found: Document = pod["spec"]["containers"][0]
    return found


def environment(document: Document, slot: Slot = THE_LAUNCHER) -> dict[str, str]:
    return {each["name"]: each["value"] for each in first(pod_for(custom(document), slot, MPIJOB))["env"]}


def both(**replicas: int) -> list[Document]:
    return [mpi_job(v2beta1=newer, **replicas) for newer in (False, True)]


class TestVersions:
    """They are told apart by what v1 does not have."""

    def test_a_launcher_of_v2beta1_is_tried_again_six_times_and_one_of_v1_not(self):
        old, new = map(parsed, both())
        assert (old.policy(LAUNCHER), old.backoff_limit) == ("Never", UNLIMITED)
        assert (new.policy(LAUNCHER), new.backoff_limit) == ("OnFailure", 6)
        assert old.policy(WORKER) == new.policy(WORKER) == "Never"

    def test_a_launcher_of_v2beta1_that_is_never_restarted_is_tried_again_as_the_pod_of_a_batch_job_is(self):
        old, new = (parsed(changed(document, f"{LAUNCHERS}.restartPolicy", "Never")) for document in both())
        assert (old.policy(LAUNCHER), new.policy(LAUNCHER), new.backoff_limit) == ("Never", "OnFailure", 6)

    def test_what_is_written_holds_in_both(self):
        for document in both():
            job = changed(document, f"{LAUNCHERS}.restartPolicy", "ExitCode")
            job = changed(job, "spec.runPolicy", {"backoffLimit": 2})
            assert (parsed(job).policy(LAUNCHER), parsed(job).backoff_limit) == ("ExitCode", 2)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("mpiImplementation", "Intel"), ("launcherCreationPolicy", "AtStartup"), ("runLauncherAsWorker", False)],
    )
    def test_any_field_of_v2beta1_says_that_it_is_one(self, field: str, value: object):
        assert parsed(changed(mpi_job(), f"spec.{field}", value)).policy(LAUNCHER) == "OnFailure"

    def test_the_empty_path_that_the_definition_of_v1_fills_in_says_that_it_is_one_of_v1(self):
        assert parsed(changed(mpi_job(), "spec.sshAuthMountPath", "")) == parsed(mpi_job())

    def test_the_other_version_of_the_framework_reads_and_renders_the_same(self):
        for document in both():
            job = custom(document)
            assert MPIJOB_V2BETA1.parse(job) == MPIJOB.parse(job)
            pods = [pod_for(job, THE_LAUNCHER, framework) for framework in (MPIJOB, MPIJOB_V2BETA1)]
            owners = [pod["metadata"].pop("ownerReferences")[0]["apiVersion"] for pod in pods]
            assert owners == ["kubeflow.org/v1", "kubeflow.org/v2beta1"]
            assert pods[0] == pods[1]

    def test_the_process_takes_the_version_that_is_served(self):
        def taken(*served: Framework) -> Framework:
            kinds = BUILT_IN.served({framework.resource for framework in served})
            assert len([*kinds]) == len([*BUILT_IN])
            found = kinds.find("kubeflow.org/v1", "MPIJob")
            assert found is not None
            return found

        assert taken(MPIJOB, MPIJOB_V2BETA1) is MPIJOB
        assert taken(MPIJOB) is MPIJOB
        assert taken(MPIJOB_V2BETA1) is MPIJOB_V2BETA1
        assert taken() is MPIJOB

    def test_a_job_of_the_other_version_in_the_log_is_of_the_same_kind(self):
        kinds = BUILT_IN.served({MPIJOB_V2BETA1.resource})
        assert kinds.resource("kubeflow.org/v1", "MPIJob") == MPIJOB_V2BETA1.resource
        job = Job(key=KEY, resource=JobResource(kind="MPIJob", api_version="kubeflow.org/v2beta1"))
        assert BUILT_IN.of(job) is MPIJOB
        assert BUILT_IN.seen(job) is MPIJOB_V2BETA1


class TestSpec:
    def test_the_launcher_is_the_judge_and_workers_come_and_go(self):
        spec = parsed(mpi_job())
        assert [role.name for role in spec.roles] == [LAUNCHER, WORKER]
        assert spec.handling.leader == LAUNCHER
        assert spec.handling.elastic
        assert spec.handling.in_place
        assert spec.attach_mode == "ssh"
        assert (spec.worker.replicas, spec.slots_per_worker, spec.clean_pod_policy) == (2, 1, "None")

    @pytest.mark.parametrize("at", ["spec", "spec.runPolicy"])
    def test_clean_pod_policy_stands_at_the_top_or_in_the_run_policy(self, at: str):
        assert parsed(changed(mpi_job(), f"{at}.cleanPodPolicy", "Running")).clean_pod_policy == "Running"

    @pytest.mark.parametrize(
        ("path", "value", "reason"),
        [
            (LAUNCHERS, ABSENT, "NoReplicas"),
            (f"{LAUNCHERS}.replicas", 0, "InvalidValue"),
            (f"{WORKERS}.replicas", 0, "NoReplicas"),
            (f"{WORKERS}.replicas", ABSENT, "NoReplicas"),
            (f"{WORKERS}.replicas", 5001, "InvalidValue"),
            (f"{WORKERS}.template.spec.containers", [], "NoContainers"),
            ("spec.mpiReplicaSpecs.Master", {}, "UnknownReplicaType"),
            ("spec.mpiImplementation", "LAM", "UnknownImplementation"),
            ("spec.launcherCreationPolicy", "Never", "UnknownCreationPolicy"),
            ("spec.sshAuthMountPath", "keys", "InvalidPath"),
            ("spec.sshAuthMountPath", "/", "InvalidPath"),
            ("spec.sshAuthMountPath", "/a:b", "InvalidPath"),
            ("spec.sshAuthMountPath", 5, "InvalidValue"),
            ("spec.sshAuthMountPath", "/etc/mpi", "InvalidPath"),
            ("spec.sshAuthMountPath", "//etc/./mpi/keys/", "InvalidPath"),
            ("spec.mainContainer", "sidecar", "NoTrainingContainer"),
            ("metadata.name", "p" * 55, "InvalidName"),
            *(
                ("metadata.annotations", {MIN_WORKERS: said}, "BelowMinimum")
                for said in ("0", "3", "-1", "two", "9" * 99)
            ),
            (f"{CONTAINER}.env", [{"name": AGENT, "value": "/etc/mpi/kubexec.sh"}], "KubexecNotSupported"),
            (f"{CONTAINER}.env", [{"name": AGENT_OF_5, "value": "/etc/mpi/kubexec.sh"}], "KubexecNotSupported"),
        ],
    )
    def test_what_it_cannot_mean_is_refused(self, path: str, value: object, reason: str):
        assert reasons(changed(mpi_job(), path, value)) == [reason]

    def test_a_second_launcher_is_refused_with_the_only_number_that_is_allowed(self):
        found = MPIJOB.parse(custom(changed(mpi_job(), f"{LAUNCHERS}.replicas", 2)))
        assert found == (Problem(reason="InvalidValue", field=f"{LAUNCHERS}.replicas", message="write 1"),)

    @pytest.mark.parametrize("operator", ["kubeflow.org/training-operator", "kubeflow.org/mpi-operator"])
    def test_both_operators_in_whose_place_it_runs_may_be_named(self, operator: str):
        assert parsed(changed(mpi_job(), "spec.runPolicy", {"managedBy": operator}))

    def test_a_launcher_alone_is_a_job_whose_name_is_one_of_a_host(self):
        for job in both(Launcher=1):
            assert parsed(changed(job, "metadata.name", "p" * 54)).worker.replicas == 0
            assert reasons(changed(job, "metadata.name", "p" * 55)) == ["InvalidName"]

    @pytest.mark.parametrize("path", ["/etc", "/etc/mpich", "/etc/mpi/../keys"])
    def test_keys_may_stand_beside_the_hosts(self, path: str):
        assert parsed(changed(mpi_job(), "spec.sshAuthMountPath", path))

    def test_no_slots_are_as_upstream_takes_them(self):
        assert parsed(changed(mpi_job(), "spec.slotsPerWorker", 0)).slots_per_worker == 0


class TestEnvironment:
    @pytest.mark.parametrize("implementation", ["OpenMPI", "Intel", "MPICH"])
    def test_a_launcher_is_told_how_to_reach_the_hosts(self, implementation: str):
        job = changed(mpi_job(v2beta1=True), "spec.mpiImplementation", implementation)
        wanted = yaml.safe_load((GOLDEN / f"environment_{implementation.lower()}.yaml").read_text())
        assert environment(changed(job, "spec.slotsPerWorker", 4)) == wanted

    def test_one_that_works_too_is_known_by_its_whole_name_to_open_mpi_5(self):
        job = changed(mpi_job(v2beta1=True), "spec.runLauncherAsWorker", True)
        assert environment(job)["PRTE_MCA_prte_do_not_resolve"] == "0"

    def test_one_of_v1_has_the_hosts_file_and_ssh_in_the_place_of_kubexec(self):
        assert environment(mpi_job()) == yaml.safe_load((GOLDEN / "environment_v1.yaml").read_text())

    def test_a_worker_knows_its_role_alone(self):
        for job in both():
            assert environment(job, A_WORKER) == {"K_MPI_JOB_ROLE": "worker"}

    @pytest.mark.parametrize("gpu", GPUS)
    def test_a_launcher_that_takes_gpus_sees_them(self, gpu: str):
        for document in both():
            job = changed(document, f"{CONTAINER}.resources", {"limits": {gpu: 1}})
            assert "NVIDIA_VISIBLE_DEVICES" not in environment(job)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("OMPI_MCA_plm_rsh_args", "-p 2222"), ("PRTE_MCA_plm_ssh_args", "-p 2222"), (AGENT, "/opt/rsh.sh")],
    )
    def test_what_the_user_sets_stays(self, name: str, value: str):
        mine = {"name": name, "value": value}
        found = first(pod_for(custom(changed(mpi_job(), f"{CONTAINER}.env", [mine])), THE_LAUNCHER, MPIJOB))["env"]
        assert [each for each in found if each["name"] == mine["name"]] == [mine]


class TestHostsFiles:
    def test_hosts_of_v1_are_plain_names_with_slots(self):
        job = changed(mpi_job(), "spec.slotsPerWorker", 2)
        assert files(job)["hostfile"] == "pi-worker-0 slots=2\npi-worker-1 slots=2\n"

    def test_hosts_of_v2beta1_are_whole_names(self):
        hostfile = files(mpi_job(v2beta1=True))["hostfile"]
        assert hostfile == "pi-worker-0.pi.team-a.svc slots=1\npi-worker-1.pi.team-a.svc slots=1\n"

    @pytest.mark.parametrize("implementation", ["Intel", "MPICH"])
    def test_others_than_open_mpi_want_a_colon(self, implementation: str):
        job = changed(mpi_job(v2beta1=True), "spec.mpiImplementation", implementation)
        assert files(job)["hostfile"] == "pi-worker-0.pi.team-a.svc:1\npi-worker-1.pi.team-a.svc:1\n"

    def test_a_launcher_that_works_is_the_first_of_them(self):
        job = changed(mpi_job(v2beta1=True), "spec.runLauncherAsWorker", True)
        assert files(job)["hostfile"].startswith("pi-launcher.pi.team-a.svc slots=1\npi-worker-0.")
        # By these ranks Kueue places pods in a topology.
        pods = [pod_for(custom(job), slot, MPIJOB) for slot in (THE_LAUNCHER, A_WORKER)]
        assert [pod["metadata"]["labels"][REPLICA_INDEX] for pod in pods] == ["0", "2"]
        assert "NVIDIA_VISIBLE_DEVICES" not in environment(job)

    def test_intel_mpi_knows_the_host_that_it_runs_on_by_its_plain_name(self):
        job = changed(mpi_job(v2beta1=True), "spec.runLauncherAsWorker", True)
        hosts = files(changed(job, "spec.mpiImplementation", "Intel"))["hostfile"].splitlines()
        assert hosts[:2] == ["pi-launcher:1", "pi-worker-0.pi.team-a.svc:1"]

    @pytest.mark.parametrize("gpu", GPUS)
    def test_a_launcher_of_v1_with_gpus_works(self, gpu: str):
        job = changed(mpi_job(), f"{CONTAINER}.resources", {"limits": {gpu: 1}})
        assert files(job)["hostfile"] == "pi-launcher slots=1\npi-worker-0 slots=1\npi-worker-1 slots=1\n"
        newer = changed(job, "spec.sshAuthMountPath", "/root/.ssh")
        assert "pi-launcher" not in files(newer)["hostfile"]

    @pytest.mark.parametrize("implementation", ["", "OpenMPI", "MPICH"])
    def test_the_script_tells_hosts_and_slots_as_horovod_reads_them(self, tmp_path: Path, implementation: str):
        job = changed(mpi_job(), "spec.slotsPerWorker", 2)
        if implementation:
            job = changed(job, "spec.mpiImplementation", implementation)
        found = files(job)
        (tmp_path / "hostfile").write_text(found["hostfile"])
        script = found["discover_hosts.sh"].replace("/etc/mpi", str(tmp_path))
        told = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout
        domain = ".pi.team-a.svc" if implementation else ""
        assert told.split() == [f"{member}{domain}:2" for member in MEMBERS]

    def test_the_longest_names_of_the_most_workers_fit_into_a_config_map(self):
        name, namespace = "p" * 51, "n" * 63
        spec = parsed(changed(mpi_job(v2beta1=True), "spec.slotsPerWorker", 9999))
        members = [WorkerName(f"{name}-worker-{index}") for index in range(5000)]
        found = MPIJOB.hosts_files(JobKey(namespace, name, Uid("u")), spec, members)
        assert sum(map(len, found.values())) < 1 << 20


class TestPods:
    def test_names_and_labels(self):
        job = custom(mpi_job(v2beta1=True))
        launcher, worker = (pod_for(job, slot, MPIJOB)["metadata"] for slot in (THE_LAUNCHER, A_WORKER))
        assert (launcher["name"], worker["name"]) == ("pi-launcher", "pi-worker-1")
        assert (
            worker["labels"].items()
            >= {
                "training.kubeflow.org/operator-name": "mpi-operator",
                "training.kubeflow.org/job-name": "pi",
                "training.kubeflow.org/job-role": "worker",
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": "1",
                "group-name": "kubeflow.org",
                "mpi-job-name": "pi",
                "mpi-job-role": "worker",
            }.items()
        )
        assert launcher["labels"]["training.kubeflow.org/job-role"] == "launcher"

    def test_a_worker_without_a_command_runs_sshd(self):
        job = changed(mpi_job(), f"{WORKERS}.template.spec.containers.0.command", ABSENT)
        assert first(pod_for(custom(job), A_WORKER, MPIJOB))["command"] == ["/usr/sbin/sshd", "-De"]
        assert first(pod_for(custom(mpi_job()), A_WORKER, MPIJOB))["command"] == ["python", "train.py"]

    def test_the_launcher_has_the_hosts_and_the_private_key_and_a_worker_its_host_key(self):
        job = custom(mpi_job(v2beta1=True))
        launcher = ("id_rsa", "id_rsa.pub", "authorized_keys", "config", "known_hosts")
        worker = ("authorized_keys", "id_rsa", "id_rsa.pub")
        host_keys = [f"/etc/ssh/ssh_host_ed25519_key{suffix}" for suffix in ("", ".pub")]

        def mounts(slot: Slot) -> list[str]:
            return [mount["mountPath"] for mount in first(pod_for(job, slot, MPIJOB))["volumeMounts"]]

        assert mounts(THE_LAUNCHER) == ["/etc/mpi", *(f"/root/.ssh/{name}" for name in launcher)]
        assert mounts(A_WORKER) == [*(f"/root/.ssh/{name}" for name in worker), *host_keys]
        [volume] = pod_for(job, A_WORKER, MPIJOB)["spec"]["volumes"]
        sources = {item["path"]: item["key"] for item in volume["secret"]["items"]}
        assert sources["id_rsa"] == "ssh_host_ed25519_key", "an image without root takes it for its sshd"

    def test_keys_go_where_the_job_wants_them_and_can_be_read_there(self):
        job = custom(changed(mpi_job(), "spec.sshAuthMountPath", "/home/mpiuser/.ssh/"))
        pod = pod_for(job, A_WORKER, MPIJOB)
        assert first(pod)["volumeMounts"][1]["mountPath"] == "/home/mpiuser/.ssh/id_rsa"
        assert [volume["secret"]["defaultMode"] for volume in pod["spec"]["volumes"]] == [0o644]
        modes = {item["path"]: item.get("mode") for item in pod["spec"]["volumes"][0]["secret"]["items"]}
        assert modes["ssh_host_ed25519_key"] == 0o600, "sshd with root rejects its host key otherwise"
        root = pod_for(custom(mpi_job()), A_WORKER, MPIJOB)
        assert [volume["secret"]["defaultMode"] for volume in root["spec"]["volumes"]] == [0o600]

    def test_the_main_container_of_a_worker_is_the_one_that_listens(self):
        containers = [{"name": "sidecar", "image": "logs"}, {"name": "mpi", "image": "train"}]
        job = changed(mpi_job(), f"{WORKERS}.template.spec.containers", containers)
        job = changed(job, "spec.mainContainer", "mpi")
        sidecar, main = pod_for(custom(job), A_WORKER, MPIJOB)["spec"]["containers"]
        assert sidecar == containers[0]
        assert main["command"] == ["/usr/sbin/sshd", "-De"]
        assert main["volumeMounts"]
        assert parsed(job).role(WORKER).container == "mpi"

    def test_a_pod_in_its_nodes_network_still_finds_the_others(self):
        job = custom(changed(mpi_job(), f"{WORKERS}.template.spec.hostNetwork", True))
        assert pod_for(job, A_WORKER, MPIJOB)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
        assert "dnsPolicy" not in pod_for(job, THE_LAUNCHER, MPIJOB)["spec"]

    def test_one_headless_service_is_behind_all_names(self):
        service = service_for(custom(mpi_job()), None, MPIJOB)
        assert service["metadata"]["name"] == "pi"
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["ports"] == []


def test_the_name_that_a_user_gave_to_the_main_container_is_not_repeated():
    answer = MPIJOB.parse(custom(changed(mpi_job(), "spec.mainContainer", "s3cr3t")))
    assert isinstance(answer, tuple)
    assert [problem.message for problem in answer] == ["call the container that trains as the spec says"]


def test_the_implementation_of_an_earlier_version_is_refused_by_its_path():
    found = MPIJOB.parse(custom(changed(mpi_job(), "spec.mpiDistribution", "IntelMPI")))
    assert isinstance(found, tuple)
    assert [(problem.reason, problem.field) for problem in found] == [("FieldNotSupported", "spec.mpiDistribution")]
