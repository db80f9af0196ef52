"""Settings: from the environment, once, with defaults that work in the demo."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from shared.eventlog.tls import Tls
from shared.process.main import run_process
from shared.process.settings import HttpsPort, Settings, complaint
from tests.docs.settings_page import docstrings


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch):
    for name in ("NATS_URL", "NATS_CREDS", "NATS_USER", "NATS_PASSWORD", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"MUSTER_{name}", raising=False)


def test_every_setting_has_a_default_and_says_what_it_is_for():
    settings = Settings()
    assert settings.nats_url == "nats://127.0.0.1:4222"
    assert settings.nats_tls is None
    assert (settings.namespace, settings.health_port, settings.log_format) == ("", 0, "json")
    assert docstrings(Settings).keys() == Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("variable", "value", "field", "read"),
    [
        ("NATS_URL", "nats://a:1,nats://b:2", "nats_url", "nats://a:1,nats://b:2"),
        ("MUSTER_NATS_URL", "nats://a:1", "nats_url", "nats://a:1"),
        ("NATS_CREDS", "/etc/muster/creds", "nats_creds", Path("/etc/muster/creds")),
        ("NATS_USER", "scaler", "nats_user", "scaler"),
        ("MUSTER_NATS_PASSWORD", "secret", "nats_password", "secret"),
        ("NATS_PASSWORD_FILE", "/etc/muster/nats", "nats_password_file", Path("/etc/muster/nats")),
        ("NATS_PASSWORDS", "/etc/muster/nats", "nats_passwords", Path("/etc/muster/nats")),
        ("NATS_MONITOR", "http://a:1, http://b:2", "nats_monitor", ("http://a:1", "http://b:2")),
        ("NATS_CA", "/etc/muster/ca.crt", "nats_tls", Tls(ca=Path("/etc/muster/ca.crt"))),
        ("NATS_CERT", "/etc/muster/tls.crt", "nats_tls", Tls(certificate=Path("/etc/muster/tls.crt"))),
        ("KUBECONFIG", "/etc/muster/config", "kubeconfig", Path("/etc/muster/config")),
        ("MUSTER_NAMESPACE", "team-a", "namespace", "team-a"),
        ("MUSTER_CLUSTER_DOMAIN", "cluster.internal", "cluster_domain", "cluster.internal"),
        ("MUSTER_RELEASED_GRACE", "30", "released_grace", timedelta(seconds=30)),
        ("MUSTER_DRAIN", "30", "drain", timedelta(seconds=30)),
        ("MUSTER_DRAIN", "1.5", "drain", timedelta(seconds=1.5)),
        ("MUSTER_DRAIN", "PT1M", "drain", timedelta(minutes=1)),
        ("MUSTER_DISRUPTION_TAINTS", "a.com/x, y,", "disruption_taints", ("a.com/x", "y")),
        ("MUSTER_DISRUPTION_TAINTS", "", "disruption_taints", ()),
        ("MUSTER_DISRUPTION_NOTICE", "60", "disruption_notice", timedelta(seconds=60)),
        ("MUSTER_FORCE_DELETE_AFTER", "60", "force_delete_after", timedelta(seconds=60)),
        ("MUSTER_FORCE_DELETE_AFTER", "", "force_delete_after", None),
        ("MUSTER_KINDS", "tfjob.kubeflow.org, x", "kinds", ("tfjob.kubeflow.org", "x")),
        ("MUSTER_HEALTH_PORT", "8080", "health_port", 8080),
        ("MUSTER_HEALTH_HOST", "::1", "health_host", "::1"),
        ("MUSTER_HEALTH_HOST", "", "health_host", ""),
        ("MUSTER_LOG_FORMAT", "console", "log_format", "console"),
        ("MUSTER_LOG_LEVEL", "debug", "log_level", "debug"),
    ],
)
def test_each_comes_from_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, field: str, read: object
):
    monkeypatch.setenv(variable, value)
    assert getattr(Settings(), field) == read


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MUSTER_HEALTH_PORT", "eighty"),
        ("MUSTER_DRAIN", "soon"),
        ("MUSTER_RELEASED_GRACE", "0"),
        ("MUSTER_DRAIN", "-PT5S"),
        ("MUSTER_LOG_FORMAT", "xml"),
        ("MUSTER_LOG_LEVEL", "loud"),
        ("MUSTER_PAGE", "8443"),
        ("MUSTER_AUDIT", ""),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_setting(monkeypatch: pytest.MonkeyPatch, variable: str, value: str):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValidationError, match=variable.removeprefix("MUSTER_").lower()):
        Settings()


def test_queues_need_the_whole_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUSTER_KUEUE", "true")
    assert Settings().kueue
    monkeypatch.setenv("MUSTER_NAMESPACE", "team-a")
    with pytest.raises(ValidationError, match="unset MUSTER_NAMESPACE"):
        Settings()


def test_each_https_port_has_its_own_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUSTER_PROGRESS_PORT", "8443")
    monkeypatch.setenv("MUSTER_PROGRESS_HOST", "")
    monkeypatch.setenv("MUSTER_PROGRESS_URL", "https://there")
    monkeypatch.setenv("MUSTER_AUDIT_CERT", "/tls.crt")
    monkeypatch.setenv("MUSTER_AUDIT_TOKEN_FILE", "/token")
    # What Kubernetes sets of Services `muster-page` and `nats-monitor`, unless a pod says otherwise.
    monkeypatch.setenv("MUSTER_PAGE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("NATS_MONITOR_PORT", "tcp://10.0.0.1:8222")
    found = Settings()
    assert found.progress == HttpsPort(port=8443, host="")
    assert found.progress_url == "https://there"
    assert found.audit == HttpsPort(cert=Path("/tls.crt"))
    assert found.audit_token_file == Path("/token")
    assert found.page == found.history == HttpsPort()
    assert found.nats_monitor == ()


def test_they_do_not_change_once_read():
    with pytest.raises(ValidationError):
        Settings().namespace = "other"  # type: ignore[misc]


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NATS_PASSWORD", "hunter2")
    assert "hunter2" not in repr(Settings())
    assert "hunter2" not in str(Settings())


def test_a_complaint_names_the_variables_as_they_were_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUSTER_DRAIN", "soon")
    monkeypatch.setenv("NATS_CREDS", "/nowhere")
    monkeypatch.setenv("MUSTER_LOG_LEVEL", "loud")
    monkeypatch.setenv("MUSTER_PAGE_PORT", "many")
    with pytest.raises(ValidationError) as trouble:
        Settings()
    assert [word for word in complaint(trouble.value).split() if word.endswith(":")] == [
        "MUSTER_DRAIN:",
        "MUSTER_PAGE_PORT:",
        "MUSTER_LOG_LEVEL:",
    ]


@pytest.mark.parametrize("word", ["--help", "--version", "now"])
def test_a_service_that_is_given_arguments_does_not_start(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A person who asks for help must not start a second replica, which would take leases."""
    monkeypatch.setattr(sys, "argv", ["muster-archiver", word])
    # So it ends at its settings should it start.
    monkeypatch.setenv("MUSTER_HEALTH_PORT", "many")
    with pytest.raises(SystemExit) as ended:
        run_process("archiver", lambda _: pytest.fail("it started"))
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "muster-archiver: it takes no arguments; its settings are environment variables (docs/settings.md)\n"
    )
