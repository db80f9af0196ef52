"""Each alert fires for its trouble, and none for what users do, as Prometheus' own engine says of an hour of series."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.cluster.refusals.test_recorded import OUTCOMES
from tests.deploy.charts import require
from tests.deploy.rendering import documents, render

MINUTES = 75
Line = tuple[float, float] | list[float]
"""A value at the beginning, and what it grows by in a minute; or all values."""
ONCE = [0.0] * (MINUTES - 3) + [1.0] * 3
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
    'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="600"}': (0, 10),
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
    "MusterJobsStartSlowly": {
        'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="60"}': (0, 1),
        'muster_job_start_duration_seconds_bucket{kind="TrainingJob",le="600"}': (0, 8),
    },
    "MusterLogNearlyFull": {'muster_log_bytes{store="events"}': (85, 0)},
    "MusterArchiveFailing": {'muster_archive_failing{pod="a"}': (3, 0)},
    "MusterBudgetNearlyUsed": {f'muster_namespace_budget_used_ratio{{{TENANT},budget="bytes"}}': (0.9, 0)},
    "MusterOverBudget": {f'muster_jobs_over_budget{{{TENANT},budget="jobs"}}': (2, 0)},
    "MusterJobsOutside": {f"muster_jobs_outside{{{TENANT}}}": (1, 0)},
    "MusterDecisionsSlow": of_services("muster_decision_latency_seconds_bucket", (0, 1), ',le="0.5"'),
}
"""By alert, what is other than in a healthy installation; None for what is not there."""
OPERATORS = {"a right is missing", *(situation for situation, (ends, *_) in OUTCOMES.items() if ends == "tries")}
"""What a real API server answers for a fault of who runs Muster or the cluster's webhooks."""
BUGS: Mapping[str, Mapping[str, Line]] = {
    "nothing": {},
    **{
        f"refused pods: {situation}": {f'muster_effects_refused_total{{effect="CreatePod",reason="{reason}"}}': (0, 10)}
        for situation, (_, reason, _) in OUTCOMES.items()
        if reason and situation not in OPERATORS
    },
    "programs that crash at once, again and again": {
        f'muster_jobs_failed_total{{{TENANT},kind="TrainingJob"}}': (0, 20),
        f'muster_pods_failed_total{{{TENANT},kind="TrainingJob"}}': (0, 400),
        f'muster_jobs_restarted_total{{{TENANT},kind="TrainingJob"}}': (0, 200),
    },
    "calls that the API server refuses, or a name that a finalizer holds": of_services(
        "muster_effects_total", (0, 50), ',outcome="Refused"'
    ),
    "an image that does not exist": {
        f'muster_places{{{TENANT},kind="TrainingJob",bucket="start"}}': (64, 0),
    },
    "an image of which each pull takes a quarter of an hour, with little else": {
        f'muster_job_start_duration_seconds_bucket{{kind="TrainingJob",le="{le}"}}': (0, a_minute)
        for le, a_minute in {"60": 0.05, "600": 0.05, "1800": 0.15, "+Inf": 0.15}.items()
    },
    "one job that is decided on for seconds, with little else": {
        f'muster_decision_latency_seconds_bucket{{service="scheduler",pod="a",le="{le}"}}': line
        for le, line in {"0.5": (0, 0), "2.5": ONCE, "+Inf": ONCE}.items()
    },
    "jobs without end, and in a namespace without its labels": {
        f'muster_namespace_budget_used_ratio{{{TENANT},budget="memory"}}': (1, 0),
        f'muster_jobs_over_budget{{{TENANT},budget="memory"}}': (100, 0),
        f"muster_jobs_outside{{{TENANT}}}": (100, 0),
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
            values = line if isinstance(line, list) else [line[0] + line[1] * minute for minute in range(minutes)]
            found.append({"labels": labels, "values": values[:minutes]})
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


def test_an_archiver_that_is_gone_altogether_is_seen_where_there_is_to_be_one(rules: Path) -> None:
    gone = {name: None for name in WELL if name.startswith("muster_archive")}
    assert fired(rules, series(gone)) == [["MusterArchiveFailing"]]
    without = render("--set", "metrics.prometheusRule.enabled=true", "--set", "archive.enabled=false")
    assert "MusterLogNearlyFull" in without
    assert "MusterArchive" not in without


def test_no_alert_that_wakes_a_person_fires_for_what_one_user_does_wrong(rules: Path) -> None:
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    told = {rule["alert"] for rule in group["rules"] if rule["labels"]["severity"] == "info"}
    found = dict(zip(BUGS, fired(rules, *map(series, BUGS.values())), strict=True))
    assert {bug: [alert for alert in alerts if alert not in told] for bug, alerts in found.items()} == {
        bug: [] for bug in BUGS
    }


@pytest.mark.parametrize("situation", sorted(OPERATORS))
def test_an_alert_fires_for_what_who_runs_the_cluster_has_to_mend(rules: Path, situation: str) -> None:
    refused = {f'muster_effects_refused_total{{effect="CreatePod",reason="{OUTCOMES[situation][1]}"}}': (0.0, 1.0)}
    assert fired(rules, series(refused)) == [["MusterEffectRefused"]]


def test_what_is_over_at_once_wakes_no_one(rules: Path) -> None:
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    patient = [rule["alert"] for rule in group["rules"] if rule.get("for", "10s") != "10s"]
    found = dict(zip(patient, fired(rules, *(series(TROUBLE[alert], minutes=1) for alert in patient)), strict=True))
    assert found == {alert: [] for alert in patient}
