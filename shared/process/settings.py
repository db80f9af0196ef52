"""The settings of every process, from the environment: the log, the cluster, the jobs, the process itself.

`make pages` writes `docs/settings.md` from the docstrings of the fields.
"""

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict
from pydantic_settings import PydanticBaseSettingsSource as Source

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


def _also(name: str) -> AliasChoices:
    """The usual name of a variable, before Muster's own."""
    return AliasChoices(name, f"MUSTER_{name}")


Seconds = Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0))]
SecondsOrNone = Annotated[Annotated[timedelta, Field(ge=timedelta(0))] | None, BeforeValidator(_seconds_or_none)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]

DECIDING: dict[str, object] = {"MUSTER_DRAIN": 10, "MUSTER_EXEC": "true"}
"""The settings that reach a `decide`, with their defaults: with any others a history leads to the same decisions."""


class HttpsPort(BaseModel, frozen=True):
    """A port that a service opens, and its certificate."""

    port: int = 0
    """0 for any free port."""

    host: str = "127.0.0.1"
    """Its address."""

    cert: Path | None = None
    """Its certificate."""

    key: Path | None = None
    """The private key."""


Port = Annotated[HttpsPort, NoDecode]


class _Variables(EnvSettingsSource):
    """The environment, in which `MUSTER_PAGE_PORT` is the field `port` of `page`."""

    def explode_env_vars(self, field_name: str, field: FieldInfo, env_vars: Mapping[str, str | None]) -> dict[str, Any]:
        # No list has parts: Kubernetes sets variables that begin with `NATS_MONITOR` where a Service has that name.
        return super().explode_env_vars(field_name, field, env_vars) if field.annotation is HttpsPort else {}


class Settings(BaseSettings):
    """One process reads them once, at its start."""

    model_config = SettingsConfigDict(
        env_prefix="MUSTER_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
    )

    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias=_also("NATS_URL"))
    """The log's servers, separated by commas; `tls://` demands TLS."""

    nats_creds: Path | None = Field(default=None, validation_alias=_also("NATS_CREDS"))
    """A NATS credentials file, in place of user and password."""

    nats_user: str | None = Field(default=None, validation_alias=_also("NATS_USER"))
    """The user at the log; each service has its own."""

    nats_password: str | None = Field(default=None, repr=False, validation_alias=_also("NATS_PASSWORD"))
    """Its password."""

    nats_password_file: Path | None = Field(default=None, validation_alias=_also("NATS_PASSWORD_FILE"))
    """A file with the password, read at every connection, so that a mounted Secret can be rotated."""

    nats_passwords: Path | None = Field(default=None, validation_alias=_also("NATS_PASSWORDS"))
    """For `muster run`: a folder with a password file `watcher`, `scheduler`, `scaler`, `status`."""

    nats_monitor: Words = Field(default=(), validation_alias=_also("NATS_MONITOR"))
    """The monitoring addresses of the log's servers, such as `http://muster-nats:8222`, which tell whether these sync
    their disk, and how full it is."""

    nats_ca: Path | None = Field(default=None, validation_alias=_also("NATS_CA"))
    """The certificate authority of the log's servers; demands TLS."""

    nats_cert: Path | None = Field(default=None, validation_alias=_also("NATS_CERT"))
    """The client certificate, where the log's server asks for one."""

    nats_key: Path | None = Field(default=None, validation_alias=_also("NATS_KEY"))
    """Its private key."""

    kubeconfig: Path | None = Field(default=None, validation_alias=_also("KUBECONFIG"))
    """As kubectl reads it; else the pod's service account, else `~/.kube/config`."""

    context: str = ""
    """The context of the kubeconfig; else its current one."""

    namespace: str = ""
    """The one namespace whose jobs count, by Roles; else the whole cluster, by ClusterRoles."""

    namespace_selector: Words = ()
    """The labels that a namespace needs before its jobs begin, such as
    `muster.dev/jobs=enabled,pod-security.kubernetes.io/enforce` (without a value: any value); else every namespace but
    `kube-*`. No effect with `MUSTER_NAMESPACE`."""

    believe_vanished: bool = False
    """True confirms that jobs are gone when more than ten and a fifth of all are missing from one LIST; unset it
    afterwards."""

    kinds: Words = ()
    """The kinds of jobs to act on, such as `trainingjob.kai.alibabacloud.com,tfjob.kubeflow.org`; else all known
    ones."""

    take_over: bool = False
    """True confirms that the earlier operators are gone: Muster takes over their running jobs. Unset it afterwards."""

    cluster_domain: str = "cluster.local"
    """The cluster's DNS domain, by which plain worker names resolve."""

    drain: Seconds = timedelta(seconds=10)
    """How long a leaving worker runs on after the hosts files changed; rounded up to whole seconds."""

    released_grace: Annotated[Seconds, Field(ge=timedelta(seconds=1))] = timedelta(seconds=5)
    """How long a released worker has to end, unless its `terminationGracePeriodSeconds` is shorter; rounded up."""

    exec: bool = True
    """False: the scaler runs no command in a launcher and needs no right to. A scale request with a script is rejected
    (`ExecOff`), a leaving worker gets the whole drain time, and the launcher of a job that was taken over keeps its own
    hosts files."""

    ssh: bool = True
    """False: the scheduler makes no Secrets with ssh keys and needs no right to. A job that needs ssh does not start
    (`SshOff`) without a Secret of its own."""

    kueue: bool = False
    """True: a TrainingJob with the label `kueue.x-k8s.io/queue-name` waits in that [queue](kueue.md). Needs the whole
    cluster."""

    gangs: bool = False
    """True: pods find places [together or not at all](gangs.md), unless the annotation `muster.dev/gang` differs."""

    disruption_taints: Words = ()
    """More keys of taints that announce the end of a node."""

    disruption_notice: Seconds = timedelta(seconds=30)
    """How long a node stays after such a taint, unless the taint says it: AWS gives 120 s, Google and Azure 30 s.
    Workers leave 15 s before the end at the latest."""

    force_delete_after: SecondsOrNone = None
    """A pod that is being deleted on a lost node holds its name. Set, it is deleted by force so many seconds after its
    grace period; its containers may still run. Unset: never. The annotation `muster.dev/force-delete-after` of a job
    (seconds, or `never`) has precedence."""

    seal_after: SecondsOrNone = timedelta(minutes=1)
    """So many seconds after a job is gone with all that it had, its history is sealed. Empty: never."""

    termination_messages: bool = True
    """Up to 2 KiB of what a failed container prints last become part of history and status, and of MXNet kinds with a
    `result` the termination message of each role's first pod. False: none is recorded, and pods are made without
    `terminationMessagePolicy: FallbackToLogsOnError`."""

    log_mib_per_minute: int = Field(default=16, ge=0)
    """MiB of one namespace that are recorded a minute ([budgets](tenants.md#budgets)). 0: no bound."""

    namespace_mib: int = Field(default=256, ge=0)
    """MiB that each service keeps in memory of one namespace's jobs. 0: no bound."""

    memory_mib: int = Field(default=512, ge=0)
    """The same of all namespaces, about half of a service's memory. 0: no bound."""

    namespace_share: float = Field(default=0.5, ge=0, le=1)
    """The share of the log's room that one namespace may fill. 0: no bound."""

    log_reserve: float = Field(default=0.1, ge=0, lt=1)
    """The share of the log's room that is kept for decisions and for ends of jobs and pods."""

    tell_names: bool = False
    """True: `/readyz` names jobs, and metrics have the label `job_namespace`. Any pod may read them."""

    devices: Words = (
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "habana.ai/gaudi",
        "aws.amazon.com/neuron",
        "google.com/tpu",
    )
    """Devices that metrics name; any other is `Other`."""

    health_port: int = 0
    """The port of `/healthz`, `/readyz` and `/metrics`; 0 opens none."""

    health_host: str = "127.0.0.1"
    """Its address. Empty: every address, as a pod needs it; so for the other hosts below."""

    history: Port = HttpsPort()
    """Where kube-apiserver asks the history service; the APIService trusts its certificate."""

    audit: Port = HttpsPort()
    """Where API servers send audit events; the webhook's kubeconfig trusts its certificate."""

    audit_groups: bool = False
    """Record a user's groups, too."""

    audit_days: int = Field(default=90, ge=0, le=36_500)
    """Days after which the archiver removes who made a change. 0: never."""

    audit_token_file: Path | None = None
    """A file with the token of the webhook's kubeconfig; a request without it gets 401."""

    page: Port = HttpsPort()
    """Where `muster-page` shows jobs to people."""

    progress_url: str = ""
    """Where training programs report, such as `https://muster-progress.muster.svc:8443`; pods get it as
    `KUBEFLOW_TRAINER_SERVER_URL`. Empty: programs report nothing, and no port is opened."""

    progress_ca: Path | None = None
    """The certificate authority by which pods check that URL."""

    progress: Port = HttpsPort()
    """Where the watcher takes reports."""

    progress_interval: Annotated[Seconds, Field(ge=timedelta(seconds=1))] = timedelta(seconds=10)
    """The shortest time between two events about one job's progress, but for the first step after a change, and the
    last one."""

    anchor: str = ""
    """`NAMESPACE/NAME` of a Lease for [the anchor](log.md#the-anchor). Empty: it is only logged."""

    archive_seals: Seconds = timedelta(days=1)
    """How long the log keeps the seal of a purged history: longer than any service is away."""

    archive_days: Words = ()
    """For how many days [the archive](log.md#how-much-how-long) keeps a history, such as `365,team-a=30`; a number
    alone is for all other namespaces. 0, or empty: for ever."""

    archive_histories: Words = ()
    """How many of a namespace, the newest, such as `100000,team-a=1000`; a history of over 512 KiB counts as several.
    0, or empty: all."""

    log_format: Literal["json", "console"] = "json"
    """`json`: one object a line. `console`: text for people."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`info` writes one line for each decision; `debug` adds every fact."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: Source,
        env_settings: Source,
        dotenv_settings: Source,
        file_secret_settings: Source,
    ) -> tuple[Source, ...]:
        return init_settings, _Variables(settings_cls)

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
    return "; ".join(f"{_variable(*map(str, found['loc']))}: {found['msg']}" for found in error.errors())


def _variable(place: str, *inner: str) -> str:
    # pydantic names a field with an alias by its variable, any other field by its own name.
    if (field := Settings.model_fields.get(place)) is None:
        return place
    return "_".join(["MUSTER", place, *(inner if field.annotation is HttpsPort else ())]).upper()
