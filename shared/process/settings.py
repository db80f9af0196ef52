"""The settings of every process, from the environment: the log, the cluster, the jobs, the process itself.

`make pages` writes `docs/settings.md` from the docstrings of the fields.
"""

import math
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.eventlog.tls import Login, Tls

_NUMBER = re.compile(r"\d+(\.\d+)?")


def _seconds(value: object) -> object:
    """A plain number is seconds; pydantic reads any other text as ISO 8601 (`PT1M`)."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _seconds_or_none(value: object) -> object:
    """As `_seconds`; an empty text is no value."""
    return None if value == "" else _seconds(value)


def _words(value: object) -> object:
    """Words separated by commas; empty words are dropped."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


DECIDING: dict[str, object] = {"MUSTER_DRAIN": 10, "MUSTER_EXEC": "true"}
"""The settings that reach a `decide`, with their defaults: with any others a history leads to the same decisions."""


class Settings(BaseSettings):
    """One process reads them once, at its start."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", frozen=True, use_attribute_docstrings=True)

    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias=AliasChoices("NATS_URL", "MUSTER_NATS_URL"))
    """The servers of the log, separated by commas; `tls://` in place of `nats://` demands TLS."""

    nats_creds: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_CREDS", "MUSTER_NATS_CREDS"))
    """A NATS credentials file; without one the process uses user and password."""

    nats_user: str | None = Field(default=None, validation_alias=AliasChoices("NATS_USER", "MUSTER_NATS_USER"))
    """The user at the log. Each service has its own, which may publish as that service only."""

    nats_password: str | None = Field(
        default=None, repr=False, validation_alias=AliasChoices("NATS_PASSWORD", "MUSTER_NATS_PASSWORD")
    )
    """The password of that user."""

    nats_password_file: Path | None = Field(
        default=None, validation_alias=AliasChoices("NATS_PASSWORD_FILE", "MUSTER_NATS_PASSWORD_FILE")
    )
    """A file with the password. The process reads it at every connection, so that a mounted Secret can be rotated."""

    nats_passwords: Path | None = Field(
        default=None, validation_alias=AliasChoices("NATS_PASSWORDS", "MUSTER_NATS_PASSWORDS")
    )
    """For `muster run`: a folder with one password file for each service, named `watcher`, `scheduler`, `scaler` and
    `status`."""

    nats_monitor: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = Field(
        default=(), validation_alias=AliasChoices("NATS_MONITOR", "MUSTER_NATS_MONITOR")
    )
    """The monitoring addresses of the log's servers, such as `http://muster-nats:8222`. At its start a service asks
    there whether the servers sync their disk, and how full it is."""

    nats_ca: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_CA", "MUSTER_NATS_CA"))
    """The certificate authority of the log's servers. With it, or with `tls://` in the URL, a connection needs TLS."""

    nats_cert: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_CERT", "MUSTER_NATS_CERT"))
    """The client certificate, where the log's server asks for one."""

    nats_key: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_KEY", "MUSTER_NATS_KEY"))
    """The private key of the client certificate."""

    kubeconfig: Path | None = Field(default=None, validation_alias=AliasChoices("KUBECONFIG", "MUSTER_KUBECONFIG"))
    """The kubeconfig, as kubectl reads it. Without it: the service account of the pod, else `~/.kube/config`."""

    context: str = ""
    """The context of the kubeconfig, such as `staging`. Empty: its current one."""

    namespace: str = ""
    """The one namespace whose jobs count, with Roles alone. Empty: the whole cluster, with ClusterRoles."""

    namespace_selector: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """The labels that a namespace needs before its jobs begin, such as
    `muster.dev/jobs=enabled,pod-security.kubernetes.io/enforce`; one without a value may have any. All four services
    need the same value. Empty: every namespace but those of the system (`kube-*`). Without effect with a namespace."""

    believe_vanished: bool = False
    """For the watcher. More than ten jobs, and more than a fifth of all, missing from one LIST count as a fault of the
    LIST, and the watcher waits. True confirms that these jobs are gone; unset it afterwards."""

    kinds: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """The kinds of jobs to act on, such as `trainingjob.kai.alibabacloud.com,tfjob.kubeflow.org`. Empty: all known
    kinds. All four services need the same value; another operator may have the other kinds."""

    take_over: bool = False
    """True confirms that the earlier operators (et-operator, training-operator) are gone: Muster takes over their jobs,
    running. Unset it once none of their jobs is left."""

    cluster_domain: str = "cluster.local"
    """The DNS domain of the cluster. The pods' search domains are made of it, so that plain worker names resolve."""

    drain: Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0))] = timedelta(seconds=10)
    """How long a leaving worker keeps running after the hosts files changed, rounded up to whole seconds. A framework
    that releases its workers slowly needs more."""

    released_grace: Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(seconds=1))] = timedelta(
        seconds=5
    )
    """How long a worker that a scale-in released, and that its launcher no longer uses, has to end; rounded up to whole
    seconds. Its template's `terminationGracePeriodSeconds` holds if that is shorter, and for every other deletion."""

    exec: bool = True
    """False: the scaler runs no command in a launcher, and needs no right to. A scale request with a script is rejected
    (`ExecOff`), a leaving worker gets the whole drain time, and the launcher of a job that was taken over keeps its own
    hosts files."""

    ssh: bool = True
    """False: the scheduler makes no Secrets with ssh keys, and needs no right to. A job whose launcher reaches its
    workers by ssh does not start (`SshOff`), unless it brings a Secret of its own."""

    kueue: bool = False
    """True: a TrainingJob with the label `kueue.x-k8s.io/queue-name` waits in that queue of Kueue, and runs with its
    quota. All four services need the same value, and an installation for the whole cluster."""

    gangs: bool = False
    """True: the pods with which a job begins, and those of a ScaleOut, find places together or not at all, by PodGroups
    of `scheduling.k8s.io`. Where the cluster serves none, jobs run without. The annotation `muster.dev/gang` of a job
    has precedence: a number of pods, `true` or `false`."""

    disruption_taints: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """More keys of taints that announce the end of a node, besides the well-known ones."""

    disruption_notice: Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0))] = timedelta(seconds=30)
    """For the watcher. How long a node stays after a taint that announces its end, where the taint does not say it: AWS
    gives a spot machine 120 s, Google and Azure give 30 s. Workers are replaced first, and leave 15 s before the end at
    the latest."""

    force_delete_after: Annotated[
        Annotated[timedelta, Field(ge=timedelta(0))] | None, BeforeValidator(_seconds_or_none)
    ] = None
    """For the watcher. A pod that is being deleted on a lost node may stay for ever and hold its name. Set, such a
    pod is deleted by force so long after its grace period; its containers may still run there. Unset: never. The
    annotation `muster.dev/force-delete-after` of a job has precedence: seconds, or `never`."""

    seal_after: Annotated[Annotated[timedelta, Field(ge=timedelta(0))] | None, BeforeValidator(_seconds_or_none)] = (
        timedelta(minutes=1)
    )
    """For the watcher. So long after a job is gone, with its pods, children and requests, its history is sealed: the
    services let go of it, and the archiver may move it out of the log. Empty: never."""

    termination_messages: bool = True
    """What a failed container prints last, at most 2 KiB, becomes part of the history and of the job's status, and so
    does, of the MXNet kinds whose status has a `result`, the termination message of each role's first pod. False: pods
    are made without `terminationMessagePolicy: FallbackToLogsOnError`, and no termination message is recorded."""

    log_mib_per_minute: int = Field(default=16, ge=0)
    """For the watcher. How many MiB of one namespace it records in the log a minute; after a pause as many at once. The
    rest waits for its turn and is merged, a new job or request with `OverBudget` in its status; the end of a job or a
    pod does not wait. 0: no bound."""

    namespace_mib: int = Field(default=256, ge=0)
    """For the watcher. How many MiB each service keeps in memory of the jobs of one namespace, about 8 KB a job, 1 KB a
    pod and 2 KB a scale request. From there on its new jobs and requests wait (`OverBudget`). 0: no bound."""

    memory_mib: int = Field(default=512, ge=0)
    """For the watcher. The same of all namespaces together, about half of the memory that a service may take. From
    there on new jobs and requests wait of each namespace with no less than an equal part of it. 0: no bound."""

    namespace_share: float = Field(default=0.5, ge=0, le=1)
    """For the watcher of the whole cluster. The share of the log's room that one namespace may fill. From there on only
    ends and decisions are recorded of it. 0: no bound."""

    log_reserve: float = Field(default=0.1, ge=0, lt=1)
    """The share of the log's room (`max_bytes` of its stream, the disk of a NATS server) that is left to decisions and
    to the ends of jobs and pods. From there on the watcher records nothing that begins."""

    tell_names: bool = False
    """True: `/readyz` names the jobs that the service does not act on, and metrics of jobs have the label
    `job_namespace`. False: neither names a job or a namespace, as any pod of the cluster may read them."""

    health_port: int = 0
    """The port of `/healthz`, `/readyz` and `/metrics`; 0 opens no port."""

    health_host: str = "127.0.0.1"
    """The address of that port. Empty: every address, of IPv4 and of IPv6, as a pod needs it."""

    history_port: int = 0
    """For the history service. The port where kube-apiserver asks it; 0 for any free one."""

    history_host: str = "127.0.0.1"
    """The address of that port. Empty: every address, as a pod needs it."""

    history_cert: Path | None = None
    """For the history service. Its certificate, which the APIService trusts."""

    history_key: Path | None = None
    """The private key of that certificate."""

    audit_port: int = 0
    """For the audit service. The port to which API servers send audit events; 0 for any free one."""

    audit_host: str = "127.0.0.1"
    """The address of that port. Empty: every address, as a pod needs it."""

    audit_cert: Path | None = None
    """For the audit service. Its certificate, which the webhook's kubeconfig trusts."""

    audit_key: Path | None = None
    """The private key of that certificate."""

    audit_groups: bool = False
    """For the audit service. Write down a user's groups beside the name."""

    audit_token_file: Path | None = None
    """For the audit service. A file with the token of the webhook's kubeconfig; a request without it gets 401."""

    progress_url: str = ""
    """The beginning of the URL to which training programs report, such as `https://muster-progress.muster.svc:8443`.
    Pods get it as Kubeflow Trainer's do (`KUBEFLOW_TRAINER_SERVER_URL`). The watcher and the scheduler need the same
    value. Empty: programs report nothing, and no port is opened."""

    progress_ca: Path | None = None
    """For the scheduler. The certificate authority that pods check that URL with."""

    progress_port: int = 0
    """For the watcher. The port to which training programs report; 0 for any free one."""

    progress_host: str = "127.0.0.1"
    """The address of that port. Empty: every address, as a pod needs it."""

    progress_cert: Path | None = None
    """For the watcher. The certificate of that port."""

    progress_key: Path | None = None
    """The private key of that certificate."""

    progress_interval: Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(seconds=1))] = timedelta(
        seconds=10
    )
    """For the watcher. The shortest time between two events about the progress of one job; the first step after a
    change, and the last one, do not wait for it."""

    anchor: str = ""
    """For the status service. `NAMESPACE/NAME` of a Lease that is there: every ten seconds in which something is
    new it gets a hash over the heads of all jobs, compared with the log at the next start and by `muster doctor`.
    Empty: the hash is a line of the service's output alone."""

    archive_seals: Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0))] = timedelta(days=1)
    """For the archiver. How long the log keeps the seal of a history whose events were purged: longer than any service
    is away, so that it learns that the job is over."""

    archive_days: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """For the archiver. For how many days the archive keeps a history, such as `365,team-a=30`: a number alone is for
    all other namespaces, 0 for ever. Empty: for ever."""

    archive_histories: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """For the archiver. How many histories of one namespace the archive keeps, the newest, such as
    `100000,team-a=1000`; a history of more than 512 KiB counts as several. 0, or empty: all."""

    log_format: Literal["json", "console"] = "json"
    """`json`: one object a line, for machines. `console`: aligned text, for people."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """At `info` a service writes one line for each decision; `debug` adds every fact."""

    @field_validator("kueue")
    @classmethod
    def _needs_the_cluster(cls, kueue: bool, info: ValidationInfo) -> bool:
        if kueue and info.data.get("namespace"):
            raise ValueError("queues of Kueue need the whole cluster: unset MUSTER_NAMESPACE")
        return kueue

    @property
    def names_log(self) -> bool:
        """True if a setting says where the log is, or who asks there."""
        return any(name.startswith("nats_") for name in self.model_fields_set)

    @property
    def nats_tls(self) -> Tls | None:
        """The TLS files for the log; None without any, and then the URL alone decides."""
        files = Tls(ca=self.nats_ca, certificate=self.nats_cert, key=self.nats_key)
        return files if files != Tls() else None

    @property
    def nats_login(self) -> Login:
        """How this process signs in to the log."""
        return Login(
            user=self.nats_user or "",
            password=self.nats_password or "",
            password_file=self.nats_password_file,
            credentials=self.nats_creds,
            tls=self.nats_tls,
        )

    @property
    def deciding(self) -> str:
        """The settings that decide and are not at their default, as decisions name them: `MUSTER_DRAIN=5`."""
        given = {"MUSTER_DRAIN": math.ceil(self.drain.total_seconds()), "MUSTER_EXEC": str(self.exec).lower()}
        return " ".join(f"{name}={value}" for name, value in given.items() if value != DECIDING[name])


def complaint(error: ValidationError) -> str:
    """One line that names each wrong variable and its fault."""
    return "; ".join(f"{_variable(str(found['loc'][0]))}: {found['msg']}" for found in error.errors())


def _variable(place: str) -> str:
    # pydantic names a field with an alias by its variable, any other field by its own name.
    return f"MUSTER_{place.upper()}" if place in Settings.model_fields else place
