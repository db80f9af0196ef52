"""What every service process is told from outside: where the log is, where Kubernetes is, what it may see."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.eventlog.tls import Tls

_NUMBER = re.compile(r"\d+(\.\d+)?")


def _seconds(value: object) -> object:
    """A plain number is seconds; all else is left to ISO 8601 (`PT1M`)."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _words(value: object) -> object:
    """Words with a comma between them; empty ones do not count."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


class Settings(BaseSettings):
    """Read once, from the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", frozen=True, use_attribute_docstrings=True)

    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias=AliasChoices("NATS_URL", "MUSTER_NATS_URL"))
    """Where the log is; several servers are separated by commas."""

    nats_creds: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_CREDS", "MUSTER_NATS_CREDS"))
    """A credentials file for the log; user and password serve where there is none."""

    nats_user: str | None = Field(default=None, validation_alias=AliasChoices("NATS_USER", "MUSTER_NATS_USER"))
    """The user at the log; it may publish as its own service only."""

    nats_password: str | None = Field(
        default=None, repr=False, validation_alias=AliasChoices("NATS_PASSWORD", "MUSTER_NATS_PASSWORD")
    )
    """That user's password."""

    nats_password_file: Path | None = Field(
        default=None, validation_alias=AliasChoices("NATS_PASSWORD_FILE", "MUSTER_NATS_PASSWORD_FILE")
    )
    """A file that holds it instead, read at every attempt to connect: a mounted secret that is rotated."""

    nats_passwords: Path | None = Field(
        default=None, validation_alias=AliasChoices("NATS_PASSWORDS", "MUSTER_NATS_PASSWORDS")
    )
    """For `muster run`: a folder with a password file for each service, named after it, so that each of the four is a
    user of its own (`watcher`, `scheduler`, `scaler`, `status`)."""

    nats_monitor: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = Field(
        default=(), validation_alias=AliasChoices("NATS_MONITOR", "MUSTER_NATS_MONITOR")
    )
    """Where the log's servers are monitored (`http://muster-nats:8222`), a comma between them: each start asks there
    whether they keep what they acknowledged over a power cut."""

    nats_ca: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_CA", "MUSTER_NATS_CA"))
    """Whom to trust as the log's server; with it, or with `tls://` in the URL, nothing is said without TLS."""

    nats_cert: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_CERT", "MUSTER_NATS_CERT"))
    """Our certificate, for a log whose server asks for one."""

    nats_key: Path | None = Field(default=None, validation_alias=AliasChoices("NATS_KEY", "MUSTER_NATS_KEY"))
    """The key of that certificate."""

    kubeconfig: Path | None = Field(default=None, validation_alias=AliasChoices("KUBECONFIG", "MUSTER_KUBECONFIG"))
    """Which cluster, as kubectl reads it; without it the pod's own service account, then ~/.kube/config."""

    namespace: str = ""
    """The one namespace to work in; empty is the whole cluster, which needs ClusterRoles."""

    believe_vanished: bool = False
    """A person's word to the watcher that jobs which vanished all at once are really gone; take it back afterwards."""

    kinds: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """The kinds of jobs to act on, a comma between them (`trainingjob.kai.alibabacloud.com,tfjob.kubeflow.org`); empty
    is all that are known.  Another operator may have the others; all four services are told the same."""

    take_over: bool = False
    """A person's word that the operators before us (et-operator, training-operator) are gone: what they left is taken
    over, running; take it back once nothing is left of them."""

    cluster_domain: str = "cluster.local"
    """The DNS domain of the cluster: plain worker names resolve through it."""

    drain: Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0))] = timedelta(seconds=10)
    """How long leaving workers get after the hosts files changed, in whole seconds, rounded up; longer suits frameworks
    that let go slowly."""

    disruption_taints: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """Keys of taints, a comma between them, that say besides the well-known ones that a node is about to go."""

    health_port: int = 0
    """Where probes ask (`/healthz`, `/readyz`), and a scraper (`/metrics`); 0 opens no port."""

    health_host: str = "127.0.0.1"
    """The address of that port; empty is every address, of IPv4 and of IPv6, as a pod needs it."""

    log_format: Literal["json", "console"] = "json"
    """One JSON object a line for machines, or aligned text for people."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """At info one line a decision; debug adds every fact."""

    @property
    def nats_tls(self) -> Tls | None:
        """The files of TLS to the log; None where there are none, and the URL alone decides."""
        files = Tls(ca=self.nats_ca, certificate=self.nats_cert, key=self.nats_key)
        return files if files != Tls() else None


def complaint(error: ValidationError) -> str:
    """What is wrong with the environment, by the names that were set there."""
    return "; ".join(f"{_variable(str(found['loc'][0]))}: {found['msg']}" for found in error.errors())


def _variable(place: str) -> str:
    # A field with an alias is named by the variable already, any other by itself.
    return f"MUSTER_{place.upper()}" if place in Settings.model_fields else place
