"""Each alert fires for its trouble, and none for what users do, as Prometheus' own engine says of an hour of series."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import require
from tests.deploy.rendering import documents, render

MINUTES = 75
Line = tuple[float, float]
"""A value at the beginning, and what it grows by in a minute."""
SERVICES = ("watcher", "scheduler", "scaler", "status")
TENANT = 'job_namespace="team-a"'


def of_services(name: str, line: Line, more: str = "") -> dict[str, Line]:
    return {f'{name}{{service="{service}",pod="a"{more}}}': line for service in SERVICES}


WELL: Mapping[str, Line] = {
    **of_services("muster_owner", (1, 0)),
    'muster_owner{service="watcher",pod="b"}': (0, 0),
    **of_services("muster_ready", (1, 0)),
    **of_services("muster_log_connected", (1, 0)),
    **of_services("muster_log_lag_seconds", (0.1, 0)),
    **of_services("muster_log_position", (1000, 600)),
    **of_services("muster_histories_held", (0, 0)),
    **of_services("muster_effects_total", (0, 100), ',outcome="Succeeded"'),
    **of_services("muster_effects_total", (0, 1), ',outcome="Retried"'),
    **of_services("muster_decision_latency_seconds_bucket", (0, 100), ',le="0.5"'),
    **of_services("muster_decision_latency_seconds_bucket", (0, 100), ',le="2.5"'),
    **of_services("muster_decision_latency_seconds_bucket", (0, 100), ',le="+Inf"'),
    'muster_anchor_differs{pod="a"}': (0, 0),
    'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="60"}': (0, 10),
    'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="1800"}': (0, 10),
    'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="+Inf"}': (0, 10),
    'muster_log_bytes{store="events"}': (10, 0),
    'muster_log_max_bytes{store="events"}': (100, 0),
    'muster_archive_failing{pod="a"}': (0, 0),
    f'muster_namespace_budget_used_ratio{{{TENANT},budget="bytes"}}': (0.2, 0),
    f'muster_jobs_over_budget{{{TENANT},budget="jobs"}}': (0, 0),
    f"muster_jobs_outside{{{TENANT}}}": (0, 0),
}
"""A healthy installation."""
NO_WATCHER = {name: None for name in WELL if name.startswith('muster_owner{service="watcher"')}
TROUBLE: Mapping[str, Mapping[str, Line | None]] = {
    "MusterHistoryHeld": {'muster_histories_held{service="status",pod="a"}': (1, 0)},
    "MusterAnchorDiffers": {'muster_anchor_differs{pod="a"}': (1, 0)},
    "MusterServiceWithoutOwner": NO_WATCHER,
    "MusterTwoAct": {'muster_owner{service="watcher",pod="b"}': (1, 0)},
    "MusterNotReady": {'muster_ready{service="scaler",pod="a"}': (0, 0)},
    "MusterLogDisconnected": {'muster_log_connected{service="scaler",pod="a"}': (0, 0)},
    "MusterServiceLags": {'muster_log_lag_seconds{service="scaler",pod="a"}': (30, 0)},
    "MusterReplicaStandsStill": {'muster_log_position{service="scaler",pod="a"}': (1000, 0)},
    "MusterEffectRefused": {'muster_effects_refused_total{effect="CreatePod",reason="Forbidden"}': (0, 1)},
    "MusterEffectsFail": of_services("muster_effects_total", (0, 50), ',outcome="Retried"'),
    "MusterJobsStartSlowly": {'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="60"}': (0, 1)},
    "MusterLogNearlyFull": {'muster_log_bytes{store="events"}': (85, 0)},
    "MusterArchiveFailing": {'muster_archive_failing{pod="a"}': (3, 0)},
    "MusterBudgetNearlyUsed": {f'muster_namespace_budget_used_ratio{{{TENANT},budget="bytes"}}': (0.9, 0)},
    "MusterOverBudget": {f'muster_jobs_over_budget{{{TENANT},budget="jobs"}}': (2, 0)},
    "MusterJobsOutside": {f"muster_jobs_outside{{{TENANT}}}": (1, 0)},
    "MusterDecisionsSlow": of_services("muster_decision_latency_seconds_bucket", (0, 1), ',le="0.5"'),
}
"""By alert, what is other than in a healthy installation; None for what is not there."""
BUGS: Mapping[str, Mapping[str, Line]] = {
    "nothing": {},
    "programs that crash at once, again and again": {
        f'muster_jobs_failed_total{{{TENANT},kind="TrainingJob"}}': (0, 20),
        f'muster_pods_failed_total{{{TENANT},kind="TrainingJob"}}': (0, 400),
        f'muster_jobs_restarted_total{{{TENANT},kind="TrainingJob"}}': (0, 200),
    },
    "pods that the API server finds invalid": {
        'muster_effects_refused_total{effect="CreatePod",reason="Invalid"}': (0, 10),
        **of_services("muster_effects_total", (0, 50), ',outcome="Refused"'),
    },
    "pods beyond a quota of the namespace": {
        'muster_effects_refused_total{effect="CreatePod",reason="QuotaExceeded"}': (0, 10)
    },
    "an image that does not exist": {
        f'muster_places{{{TENANT},kind="TrainingJob",bucket="start"}}': (64, 0),
    },
}
"""What one user's mistakes change."""


def series(changed: Mapping[str, Line | None], minutes: int = MINUTES) -> list[object]:
    found = []
    for name, line in {**WELL, **changed}.items():
        if line is not None:
            metric, _, words = name.rstrip("}").partition("{")
            labels = dict(word.replace('"', "").split("=") for word in words.split(","))
            labels |= {"__name__": metric, "namespace": "muster"}
            found.append({"labels": labels, "values": [line[0] + line[1] * minute for minute in range(minutes)]})
    return found


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = render("--set", "metrics.prometheusRule.enabled=true")
    (found,) = (each["spec"] for each in documents(text) if each["kind"] == "PrometheusRule")
    path = tmp_path_factory.mktemp("alerts") / "rules.yaml"
    path.write_text(yaml.safe_dump(found))
    return path


def fired(rules: Path, *cases: list[object]) -> list[list[str]]:
    given = json.dumps(cases)
    ended = subprocess.run(
        [require("rules"), "-fires", rules], input=given, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_each_alert_fires_for_its_trouble_and_for_no_other(rules: Path) -> None:
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [*TROUBLE]
    found = dict(zip(TROUBLE, fired(rules, *map(series, TROUBLE.values())), strict=True))
    assert found == {alert: [alert] for alert in TROUBLE}


def test_no_alert_fires_for_what_one_user_does_wrong(rules: Path) -> None:
    found = dict(zip(BUGS, fired(rules, *map(series, BUGS.values())), strict=True))
    assert found == {bug: [] for bug in BUGS}


def test_what_is_over_at_once_wakes_no_one(rules: Path) -> None:
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    patient = [rule["alert"] for rule in group["rules"] if rule.get("for", "10s") != "10s"]
    found = dict(zip(patient, fired(rules, *(series(TROUBLE[alert], minutes=1) for alert in patient)), strict=True))
    assert found == {alert: [] for alert in patient}
