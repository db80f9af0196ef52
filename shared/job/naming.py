"""Every name that users, scripts and selectors see: pods, children, labels, annotations.

The names are et-operator's (`kai.alibabacloud.com/v1alpha1`), because manifests and scripts rely on them; what other
kinds call theirs is in `shared.frameworks`.
"""

from typing import NewType

import msgspec

from shared.eventlog.subject import Family, Subject, filters
from shared.job.spec import LAUNCHER

Uid = NewType("Uid", str)
WorkerName = NewType("WorkerName", str)

NO_UID = Uid("none")
"""The uid under which requests wait whose job does not exist yet."""

LONGEST_JOB_NAME = 50
"""Characters: `<job>-worker-99999` must still be a DNS label of 63."""

GROUP_NAME = "group-name"
JOB_NAME = "training-job-name"
JOB_ROLE = "training-job-role"
REPLICA_INDEX = "replica-index"
SCALEOUT_NAME = "scaleout-name"
JOB_UID = "muster.dev/job-uid"
ATTEMPT = "muster.dev/attempt"
ROLE = "muster.dev/role"
INDEX = "muster.dev/index"
"""What every pod of ours says of its slot; a TrainingJob's say role and index in et-operator's labels alone."""

SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"
SSH_KEYS = "arena.kubeflow.org/ssh-secret"
"""On a job: the user's own Secret with ssh keys."""
RESTART = "muster.dev/restart"
"""Changed by a person, it has a job that runs begin again."""
RESTART_REQUESTED = "RestartRequested"
"""The reason of a restart that a person asked for; it counts against no limit."""
ACCEPT_HISTORY = "muster.dev/accept-history"
HOSTS_VERSION = "muster.dev/hosts-version"
"""On the hosts ConfigMap: the version inside; on the launcher pod: the version it was nudged to load."""
HOSTS_LINKING = "muster.dev/hosts-linking"
"""On a launcher that another operator made: the version that its hosts files are about to become links to."""

HOSTFILE = "hostfile"
"""`pod:slots` lines, as Horovod reads them."""
DEEPSPEED_HOSTFILE = "deepspeed-hostfile"
"""`pod slots=n` lines, as DeepSpeed and Open MPI read them."""
DISCOVER_HOSTS = "discover_hosts.sh"
"""Prints the hostfile: what Horovod's elastic driver calls."""
EDL_FOLDER = "/etc/edl"
JOB_FOLDER = "/job"
MPI_FOLDER = "/etc/mpi"
"""Where the launcher finds the hosts files."""

PRIVATE_KEY = "id_rsa"
PUBLIC_KEY = "id_rsa.pub"
SSH_CONFIG = "config"
"""What the Secret holds; a file called `id_rsa` is one that ssh looks for by itself, whatever kind of key is in it."""
AUTHORIZED_KEYS = "authorized_keys"
SSH_FOLDER = "/root/.ssh"
"""Where the launcher and the workers find these files."""


class JobKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """A job's identity.  A job made again under its old name is another job: the uid tells them apart."""

    namespace: str
    name: str
    uid: Uid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Slot(msgspec.Struct, frozen=True, gc=False, order=True):
    """One place for one pod.  A replacement gets a new index, a restart a new attempt."""

    attempt: int
    role: str
    index: int


def pod_name(job: str, slot: Slot) -> WorkerName:
    """`<job>-launcher`, `<job>-worker-<index>`: what a role's pods are called that has no stem of its own."""
    return WorkerName(f"{job}-{slot.role}" if slot.role == LAUNCHER else f"{job}-{slot.role}-{slot.index}")


def service_name(job: str) -> str:
    """The headless Service behind the names of all pods."""
    return job


def config_name(job: str) -> str:
    """The ConfigMap of the hosts files."""
    return f"{job}-config"


def secret_name(job: str) -> str:
    """The Secret of the ssh keys that are made for it."""
    return job


def subject_of(key: JobKey, family: Family, author: str, tag: str) -> str:
    """The subject of an event of this job."""
    return str(Subject(family, key.namespace, key.name, key.uid, author, tag))


def key_of(subject: Subject) -> JobKey:
    """The job of an event."""
    return JobKey(subject.namespace, subject.name, Uid(subject.uid))


def history_filters(key: JobKey) -> tuple[str, ...]:
    """The NATS filters of a job's facts and decisions."""
    return filters(key.namespace, key.name, key.uid)


def namespace_filters(namespace: str) -> tuple[str, ...]:
    """The NATS filters of a namespace's facts and decisions; none, which means every event, without a namespace."""
    return filters(namespace) if namespace else ()
