"""The names that users, scripts and selectors see: pods, children, labels, annotations.  Pure.

They are et-operator's (`kai.alibabacloud.com/v1alpha1`), because manifests and scripts rely on them; names that
only one kind has are in `shared/frameworks`.
"""

import re
from typing import NewType

import msgspec

from shared.eventlog.subject import Family, Subject, archived_of, archived_under, filters
from shared.job.spec import LAUNCHER, WORKER

Uid = NewType("Uid", str)
WorkerName = NewType("WorkerName", str)

NO_UID = Uid("none")
"""The uid of the history in which requests wait whose job does not exist yet."""

LONGEST_JOB_NAME = 50
"""Characters: `<job>-worker-99999` must still be a DNS label of 63."""

JOB_UID = "muster.dev/job-uid"
ATTEMPT = "muster.dev/attempt"
ROLE = "muster.dev/role"
INDEX = "muster.dev/index"
"""The labels with a pod's slot; a kind may have other labels for the role and the index."""
CONTAINER = "muster.dev/container"
"""An annotation of a pod: the name of its training container."""

RESTART = "muster.dev/restart"
"""An annotation of a job: a change of it restarts a running job."""
RESTART_REQUESTED = "RestartRequested"
"""The reason of a restart at a person's request; it counts against no limit."""
FORCE_DELETE_AFTER = "muster.dev/force-delete-after"
"""An annotation of a job: seconds after its grace period when a terminating pod of a lost node is deleted by
force, or `never`; without it the setting counts."""
RESTART_IN_PLACE = "muster.dev/restart-in-place"
"""An annotation of a job: with `true` the kubelet begins a failed training container again in its pod."""
GANG = "muster.dev/gang"
"""An annotation of a job: how many of its pods have to find places together, `true` for as many as it needs to begin,
or `false`."""
MIN_WORKERS = "muster.dev/min-workers"
"""An annotation of an MPIJob: the fewest workers that it trains with while there is no room for all."""
STALL_TIMEOUT = "muster.dev/stall-timeout"
"""An annotation of a job: seconds without a step after which a training that reports its progress is stalled."""
ON_STALL = "muster.dev/on-stall"
"""An annotation of a job: with `restart` another attempt then begins, at the cost of one of backoffLimit."""
ACCEPT_HISTORY = "muster.dev/accept-history"
WRITE_CHANGED, WRITE_UNCHANGED = "muster-changed", "muster-unchanged"
"""The keys by which a policy notes in an audit event that a write changed an object, and that it did not."""
AUDIT_POLICY = "audit"
"""The first word of that policy's name, which ends with `.muster.dev`."""
HOSTS_VERSION = "muster.dev/hosts-version"
"""An annotation: the version in the hosts ConfigMap, or the version that the launcher was nudged to load."""
HOSTS_LINKING = "muster.dev/hosts-linking"
"""An annotation of an adopted launcher: the version to which its hosts files are being linked."""

HOSTFILE = "hostfile"
"""`pod:slots` lines, as Horovod reads them."""
DEEPSPEED_HOSTFILE = "deepspeed-hostfile"
"""`pod slots=n` lines, as DeepSpeed and Open MPI read them."""
DISCOVER_HOSTS = "discover_hosts.sh"
"""The script that Horovod's elastic driver calls; it prints the hostfile."""
EDL_FOLDER = "/etc/edl"
MPI_FOLDER = "/etc/mpi"
"""Where the launcher finds the hosts files."""

PRIVATE_KEY = "id_rsa"
PUBLIC_KEY = "id_rsa.pub"
SSH_CONFIG = "config"
"""The files in any Secret with ssh keys; ssh finds a key called `id_rsa` by itself, of any type."""
HOST_KEY = "ssh_host_ed25519_key"
PUBLIC_HOST_KEY = "ssh_host_ed25519_key.pub"
KNOWN_HOSTS = "known_hosts"
PINNED_SSH_CONFIG = "config-pinned"
"""The files that the Secret of an attempt has besides."""
AUTHORIZED_KEYS = "authorized_keys"
SSH_FOLDER = "/root/.ssh"
"""Where the launcher and the workers find their files."""
HOST_KEY_FOLDER = "/etc/ssh"
"""Where sshd finds its host keys."""
HOST_KEYS = "muster.dev/ssh-host-keys"
"""An annotation of the workers' template: with `own` they keep their image's host keys, which no launcher checks."""


class JobKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """A job's identity.  The uid distinguishes the incarnations of a name."""

    namespace: str
    name: str
    uid: Uid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Slot(msgspec.Struct, frozen=True, gc=False, order=True):
    """The place of one pod.  A restart makes the slots of a new attempt."""

    attempt: int
    role: str
    index: int


def pod_name(job: str, slot: Slot) -> WorkerName:
    """The name of a pod whose role has no stem: `<job>-launcher`, `<job>-worker-<index>`."""
    return WorkerName(f"{job}-{slot.role}" if slot.role == LAUNCHER else f"{job}-{slot.role}-{slot.index}")


def worker_index(job: str, name: str) -> int | None:
    """The index in the name of a pod that may be a worker of this job; None for any other name."""
    index = name.removeprefix(f"{job}-{WORKER}-")
    return int(index) if index != name and re.fullmatch("0|[1-9][0-9]{0,4}", index) else None


def service_name(job: str) -> str:
    """The name of the job's headless Service."""
    return job


def config_name(job: str) -> str:
    """The name of the ConfigMap with the hosts files."""
    return f"{job}-config"


def runtime_copy_name(job: str, digest: str) -> str:
    """The name of the ConfigMap with the job's copy of its runtime, by the digest of that."""
    return f"{job}-runtime-{digest[:10]}"


def secret_name(key: JobKey, attempt: int) -> str:
    """The name of the Secret with the ssh keys of an attempt.  No other job and no other attempt ever has it."""
    return f"{key.name}-ssh-{key.uid}-{attempt}"


def shared_secret_name(job: str) -> str:
    """The name of the Secret that et-operator made, one for all attempts of a job."""
    return job


def workload_name(key: JobKey, number: int) -> str:
    """The name of a Workload of the job: the first one is 1, each later one has the next number."""
    return f"{key.name}-{key.uid}-{number}"


def workload_number(key: JobKey, name: str) -> int:
    """The number in the name of a Workload; 0 if Muster gives no such name.  A name has 253 characters at most."""
    number = name.removeprefix(workload_name(key, 0)[:-1])
    return int(number) if number != name and re.fullmatch("[1-9][0-9]{0,252}", number) else 0


def gang_name(key: JobKey, attempt: int, request: int = 0) -> str:
    """The name of the PodGroup of an attempt's first pods, or of those that a request adds, by its acceptance."""
    return f"{key.name}-{key.uid}-{attempt}" + (f"-{request}" if request else "")


def gang_attempt(key: JobKey, name: str) -> int | None:
    """The attempt in the name of a PodGroup; None if Muster gives no such name."""
    found = re.fullmatch("([0-9]{1,9})(-[1-9][0-9]{0,18})?", name.removeprefix(f"{key.name}-{key.uid}-"))
    return int(found[1]) if found is not None else None


def subject_of(key: JobKey, family: Family, author: str, tag: str) -> str:
    """The subject of an event of this job."""
    return str(Subject(family, key.namespace, key.name, key.uid, author, tag))


def key_of(subject: Subject) -> JobKey:
    return JobKey(subject.namespace, subject.name, Uid(subject.uid))


def history_filters(key: JobKey) -> tuple[str, ...]:
    """The NATS filters of a job's facts and decisions."""
    return filters(key.namespace, key.name, key.uid)


def archived_as(key: JobKey) -> str:
    """The subject of a job in the archive."""
    return archived_under(key.namespace, key.name, key.uid)


def key_archived(subject: str) -> JobKey:
    """The job of a subject of the archive.  Raises `ValueError` for another one."""
    namespace, name, uid = archived_of(subject)
    return JobKey(namespace, name, Uid(uid))


def namespace_filters(namespace: str) -> tuple[str, ...]:
    """The NATS filters of a namespace's facts and decisions; none, which means every event, without a namespace."""
    return filters(namespace) if namespace else ()
