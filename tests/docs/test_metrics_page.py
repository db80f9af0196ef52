"""`docs/metrics.md` has every name that is told and no other; training-operator's dashboards and our alerts work."""

import json
import re
from pathlib import Path

import pytest
import yaml

from services.archive.archiving import ArchiveFigures
from services.audit.server import AuditFigures
from services.history.probes import HistoryFigures
from shared.eventlog.account import AUTHORS
from shared.eventlog.inspection import FULL
from shared.job.metrics import JobMetrics
from shared.job.reasons import REFUSALS
from shared.process.health import Health
from shared.process.serving import BUILD
from shared.telemetry.metrics import Metric

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
OF_JOBS = {series.metric.name: series.metric for series in JobMetrics().series}
OF_HISTORY = {series.metric.name: series.metric for series in HistoryFigures().series()}
OF_AUDIT = {series.metric.name: series.metric for series in AuditFigures().series()}
OF_ARCHIVE = {series.metric.name: series.metric for series in ArchiveFigures().series()}
OF_PROCESSES = {
    **{series.metric.name: series.metric for series in Health("status").current_metrics()},
    **OF_HISTORY,
    **OF_AUDIT,
    **OF_ARCHIVE,
    BUILD.name: BUILD,
}
ALL = OF_JOBS | OF_PROCESSES

FILES = ROOT / "deploy/helm/muster/files"
RULES = yaml.safe_load((FILES / "alerts.yaml").read_text())
ALERTS = [rule["expr"] for rule in RULES]

DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
PANELS = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
OF_A_SCRAPER = {"namespace", "pod"}

TRAINING_OPERATOR = {
    f"training_operator_jobs_{what}_total" for what in ("created", "deleted", "successful", "failed", "restarted")
}


def row(metric: Metric) -> str:
    """The page says once which metrics have a `service`, and that the name tells a counter and a histogram."""
    labels = "".join(f" `{label}`" for label in metric.labels if label != "service")
    return f"- `{metric.name}`{labels}: {metric.meaning}"


def test_the_name_tells_the_type():
    for metric in ALL.values():
        told = {"_total": "counter", "duration_seconds": "histogram", "latency_seconds": "histogram"}
        assert metric.type == next((kind for end, kind in told.items() if metric.name.endswith(end)), "gauge")


def test_the_name_tells_whether_a_metric_of_a_process_has_the_service():
    others = [name for name, metric in OF_PROCESSES.items() if "service" not in metric.labels]
    assert others == [name for name in OF_PROCESSES if re.match("muster_(history|audit|archive|progress|build)_", name)]


@pytest.mark.parametrize("metric", ALL.values(), ids=lambda metric: metric.name)
def test_names_are_as_prometheus_wants_them(metric: Metric):
    assert re.fullmatch(r"muster(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    if metric.type == "histogram":
        assert metric.name.endswith("_seconds")
        assert list(metric.buckets) == sorted({*metric.buckets})
    assert not re.search(r"_(count|sum|bucket|ms|millis|minutes)$", metric.name)
    assert not {"le", "namespace", "job", "pod", "instance", "name", "uid"} & {*metric.labels}, (
        "a scraper's own, or one for each job"
    )
    assert metric.meaning
    assert not metric.meaning.endswith(".")


@pytest.mark.parametrize("name", sorted({*re.findall(r"muster_[a-z_]+", PAGE)}))
def test_every_name_on_the_page_is_told(name: str):
    assert name in ALL or name.removesuffix("_bucket") in ALL or name in ("muster_", "muster_jobs_")


@pytest.mark.parametrize("expression", ALERTS)
def test_an_alert_tells_installations_apart(expression: str):
    assert "scalar(" not in expression
    assert all("namespace" in labels.split(", ") for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression))


@pytest.mark.parametrize(("panel", "expression"), PANELS)
def test_a_panel_asks_for_metrics_and_labels_that_are_told(panel: str, expression: str):
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bmuster_\w+", expression)}
    known = {label for name in named for label in ALL[name].labels} | OF_A_SCRAPER
    asked = {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(", ")}
    asked |= {*re.findall(r"(\w+)!?=", expression)}
    assert asked - known <= ({"le"} if "_bucket{" in expression else set())
    # Two installations are told apart.
    assert expression.count('namespace="$namespace"') == expression.count("muster_")


def test_what_moves_with_a_lease_is_not_counted_twice():
    moving = [text for _, text in PANELS if re.search(r"muster_(jobs|pods|scale)_\w+total", text)]
    assert moving
    assert all("(max by (" in text for text in moving)


def test_each_alert_has_its_section_in_the_runbook_in_the_same_order():
    section = (ROOT / "docs" / "runbook.md").read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", section, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_no_alert_is_about_programs_that_fail():
    assert not any("muster_jobs_failed" in expression or "muster_pods_failed" in expression for expression in ALERTS)


def test_the_refusals_of_an_alert_are_reasons_that_effects_are_refused_for():
    (refused,) = (expression for expression in ALERTS if "muster_effects_refused_total" in expression)
    (words,) = re.findall(r'reason=~"([^"]+)"', refused)
    assert {*words.split("|")} <= REFUSALS.keys()


def test_a_service_that_is_gone_altogether_is_seen():
    (unowned,) = (expression for expression in ALERTS if "(muster_owner) < 1" in expression)
    assert all(f'absent(muster_owner{{namespace="muster", service="{author}"}})' in unowned for author in AUTHORS)


def test_the_alert_of_a_full_log_comes_with_the_warning_of_the_services():
    (full,) = (expression for expression in ALERTS if "muster_log_max_bytes" in expression)
    assert full.endswith(f">= {FULL:g}")


def test_with_the_rules_of_the_chart_training_operators_dashboards_go_on():
    rules = yaml.safe_load((FILES / "training-operator.yaml").read_text())["metric_relabel_configs"]
    words = {"TFJob": "tensorflow", "PyTorchJob": "pytorch", "MXJob": "mxnet", "MPIJob": "mpi"}
    words |= {"JAXJob": "jax", "PaddleJob": "paddle", "XGBoostJob": "xgboost"}
    for kind, word in words.items():
        seen = set()
        for metric in ALL.values():
            labels = relabelled({"__name__": metric.name, "kind": f"{kind}.kubeflow.org"}, rules)
            if labels["__name__"].startswith("training_operator"):
                assert "job_namespace" in metric.labels
                assert labels["framework"] == word
                seen.add(labels["__name__"])
            else:
                assert "framework" not in labels
        assert seen == TRAINING_OPERATOR


def relabelled(labels: dict[str, str], rules: list[dict[str, str]]) -> dict[str, str]:
    """As Prometheus does it: the whole value has to match, `$1` is what stood in the first parentheses."""
    for rule in rules:
        value = ";".join(labels[name] for name in rule["source_labels"])
        if match := re.fullmatch(rule["regex"], value):
            labels = {**labels, rule["target_label"]: match.expand(rule["replacement"].replace("$", "\\"))}
    return labels
