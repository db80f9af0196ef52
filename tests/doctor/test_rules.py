"""What `muster doctor` makes of what it sees, answer by answer."""

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import muster.policies as made_policies
from devcluster.binaries import kubernetes_version
from muster.doctor import log, policies, rights, servers
from muster.doctor.findings import Finding, document, fail, home, in_order, is_well, ok, text, unknown, warn
from muster.doctor.servers import Pod
from shared.cluster import access
from shared.cluster.examination import Right
from shared.eventlog.inspection import Holding, JetStream, Server
from shared.eventlog.streams import Mirror, Replica, StreamCluster, StreamInfo, StreamState
from shared.eventlog.tls import Life
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.training_job import TRAININGJOB
from shared.installation.permissions import Powers
from shared.job.events.watcher import JobGone
from shared.job.fold import History
from shared.process.health import Health
from shared.process.serving import Report, reports_in
from shared.release import this_release
from tests.kit.builders import a_running_job
from tests.kit.histories import KEY, a_history, stored

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_findings_are_told_by_group_with_their_remedies_below_and_a_summary():
    found = [warn("clock.nats", "late", "wind it"), ok("versions.command", "1"), fail("log.room", "full\nof it", "buy")]
    found.append(unknown("rights.all", "who knows"))
    assert text(in_order(found)).splitlines() == [
        "versions",
        "  ok    1",
        "rights",
        "  ?     who knows",
        "log",
        "  FAIL  full of it",
        "        buy",
        "clock",
        "  warn  late",
        "        wind it",
        "1 ok, 1 warn, 1 FAIL, 1 ?",
    ]


def test_the_document_says_whether_all_is_well():
    well = [ok("log.room", "enough"), warn("clock.nats", "late"), unknown("rights.all", "?")]
    assert document(well)["ok"]
    assert document(well)["summary"] == {"ok": 1, "warn": 1, "fail": 0, "unknown": 1}
    assert not document([*well, fail("log.room", "full")])["ok"]
    assert document(well)["findings"][1] == {"check": "clock.nats", "status": "warn", "message": "late", "remedy": ""}


@pytest.mark.parametrize(
    ("rule", "version", "status"),
    [
        pytest.param(servers.kubernetes, "v1.28.15", "fail", id="Kubernetes before the rules of definitions"),
        pytest.param(servers.kubernetes, "v1.29.0-eks-5e0fdde", "ok", id="the oldest Kubernetes, with a tail"),
        pytest.param(servers.kubernetes, "v1.36.1", "ok", id="the Kubernetes that was tried"),
        pytest.param(servers.kubernetes, "v1.37.2", "ok", id="the newest Kubernetes that was tried"),
        pytest.param(servers.kubernetes, "v1.38.0", "warn", id="a newer Kubernetes"),
        pytest.param(servers.kubernetes, "", "unknown", id="a Kubernetes that does not say"),
        pytest.param(servers.nats, "2.10.29", "fail", id="NATS whose messages do not run out one by one"),
        pytest.param(servers.nats, "2.11.0", "ok", id="the oldest NATS"),
        pytest.param(servers.nats, "main", "unknown", id="a NATS of an unknown version"),
    ],
)
def test_versions(rule: Any, version: str, status: str):
    assert rule(version).status == status


@pytest.mark.parametrize(
    ("server", "remedy"),
    [
        pytest.param("v1.29.4", "upgrade the cluster to Kubernetes 1.30 or newer", id="a server without policies"),
        pytest.param("v1.36.1", "let the API server serve admissionregistration.k8s.io/v1", id="policies turned off"),
        pytest.param("v1.32.0+muster", "nothing: the embedded cluster", id="the embedded cluster"),
        pytest.param("", "upgrade the cluster", id="a version that cannot be read"),
    ],
)
def test_the_advice_about_missing_policies_fits_the_server(server: str, remedy: str):
    assert remedy in policies.not_served(server).remedy


def test_what_was_tried_is_what_the_tests_run_on_and_nothing_else_is_called_so():
    tried = kubernetes_version()
    assert servers.numbers(tried) == servers.TRIED_KUBERNETES[0]
    assert servers.kubernetes(tried).message == f"Kubernetes {tried}"
    for other in ("v1.31.4", "v1.38.0"):
        assert "needs 1.29 or newer and was tried on 1.36 and 1.37" in servers.kubernetes(other).message


@pytest.mark.parametrize(
    ("running", "status"),
    [
        pytest.param([("a", "1.0.0"), ("b", "1.0.0")], "ok", id="all of this release"),
        pytest.param([("a", "1.0.0"), ("b", "1.1.0")], "warn", id="several"),
        pytest.param([("a", "1.1.0")], "warn", id="another than this command"),
        pytest.param([("a", "")], "unknown", id="one that does not say"),
    ],
)
def test_versions_of_services(running: list[tuple[str, str]], status: str):
    assert [found.status for found in servers.releases(running, "1.0.0")] == [status]


@pytest.mark.parametrize(
    ("ahead", "took", "whole", "status"),
    [
        pytest.param(0.0, 0.0, False, "ok", id="together"),
        pytest.param(4.9, 0.0, False, "ok", id="a little apart"),
        pytest.param(6.0, 0.0, False, "warn", id="ahead"),
        pytest.param(-6.0, 0.0, False, "warn", id="behind"),
        pytest.param(6.0, 3.0, False, "ok", id="apart no more than the way may have taken"),
        pytest.param(5.4, 0.0, True, "warn", id="a date without fractions, half a second later on average"),
        pytest.param(-5.4, 0.0, True, "ok", id="behind by what the date leaves out"),
    ],
)
def test_clocks(ahead: float, took: float, whole: bool, status: str):
    half = timedelta(seconds=took / 2)
    reading = servers.Reading(NOW + timedelta(seconds=ahead), NOW - half, NOW + half, whole)
    assert servers.difference("clock.nats", "it", reading).status == status


def a_stream(replicas: int = 3, *others: Replica, leader: str = "n0", cluster: str = "c") -> StreamInfo:
    config = {"name": "JOBS", "num_replicas": replicas}
    return StreamInfo(config, StreamState(), StreamCluster(cluster, leader, others))


def test_a_copy_that_is_gone_fails_and_one_that_lags_is_a_warning():
    """`tests/eventlog/test_durability.py` has the table of what is wrong with copies."""
    current, gone, late = Replica("n1", current=True), Replica("n2", offline=True), Replica("n2", lag=7)
    found = [log.copies([a_stream(3, current, other)]) for other in (gone, late, current)]
    assert [each.status for findings in found for each in findings] == ["fail", "warn", "ok"]


FED = msgspec.structs.replace(a_stream(1), mirror=Mirror(active=900_000_000))


@pytest.mark.parametrize(
    ("copies", "statuses", "words"),
    [
        pytest.param({}, [], "", id="none, or none that this user may see"),
        pytest.param({"subscriber": FED, "subscriber-team-a": FED}, ["ok"], "subscriber-team-a", id="all are fed"),
        pytest.param(
            {"subscriber": FED, "subscriber-team-a": None}, ["fail"], "of subscriber-team-a is gone", id="gone"
        ),
        pytest.param(
            {"subscriber": msgspec.structs.replace(FED, mirror=Mirror(active=9_000_000_000))},
            ["fail"],
            "not fed for 9 s",
            id="starved",
        ),
        pytest.param(
            {"subscriber": msgspec.structs.replace(FED, mirror=Mirror())}, ["fail"], "since it was made", id="never fed"
        ),
        pytest.param(
            {"subscriber": msgspec.structs.replace(FED, mirror=Mirror(active=1, lag=5000))},
            ["warn"],
            "5000 events behind",
            id="behind",
        ),
    ],
)
def test_the_copies_for_subscribers(copies: dict[str, StreamInfo | None], statuses: list[str], words: str):
    found = log.subscribers(copies)
    assert [each.status for each in found] == statuses
    assert words in "".join(each.message for each in found)


@pytest.mark.parametrize(
    ("used", "days_ago", "status"),
    [
        pytest.param(2**20, 10, "ok", id="there is room for years"),
        pytest.param(2**29, 10, "warn", id="half of it went in ten days"),
    ],
)
def test_when_the_log_will_be_full(used: int, days_ago: int, status: str):
    jobs = StreamInfo({"name": "JOBS", "max_bytes": 2**30}, StreamState(messages=10_000, bytes=used))
    [found] = log.outlook(jobs, NOW - timedelta(days=days_ago), 10_000, NOW)
    assert found.status == status
    assert log.outlook(jobs, NOW, 10_000, NOW) == log.outlook(jobs, NOW - timedelta(days=1), 3, NOW) == []


@pytest.mark.parametrize(
    ("waiting", "minutes", "working", "status"),
    [
        pytest.param(0, 0, False, "ok", id="nothing waits"),
        pytest.param(3, 1, True, "ok", id="their turn comes"),
        pytest.param(3, 60, True, "warn", id="they wait for long"),
        pytest.param(3, 1, False, "warn", id="no archiver"),
    ],
)
def test_sealed_histories_that_wait(waiting: int, minutes: int, working: bool, status: str):
    oldest = NOW - timedelta(minutes=minutes) if waiting else None
    assert log.archive(waiting, oldest, NOW, working=working).status == status


@pytest.mark.parametrize(
    ("config", "used", "statuses"),
    [
        pytest.param({"sync_always": True, "max_storage": 100}, 10, ["ok", "ok"], id="as it should be"),
        pytest.param({"sync_interval": 120_000_000_000, "max_storage": 100}, 10, ["warn", "ok"], id="synced late"),
        pytest.param({"sync_always": True, "max_storage": 100}, 79, ["ok", "ok"], id="not yet nearly full"),
        pytest.param({"sync_always": True, "max_storage": 100}, 80, ["ok", "warn"], id="nearly full"),
        pytest.param({"sync_always": True}, 90, ["ok"], id="without a bound"),
    ],
)
def test_a_servers_disk(config: dict[str, Any], used: int, statuses: list[str]):
    said = {"server_id": "N", "config": config, "storage": used}
    found = log.disk(Server("n0", msgspec.convert(said, JetStream)))
    assert [each.status for each in found] == statuses


def held(*keys: str) -> list[Holding]:
    return [Holding(key, "pod/1", NOW) for key in keys]


SERVICES = ("watcher", "scheduler", "scaler", "status")
HERE = tuple(f"{service}.team-a" for service in SERVICES)


@pytest.mark.parametrize(
    ("keys", "scope", "statuses"),
    [
        pytest.param(SERVICES, "", ["ok"], id="one of the cluster"),
        pytest.param(HERE, "", ["ok"], id="one of a namespace, looked at from outside"),
        pytest.param((), "", ["fail"], id="no holder"),
        pytest.param(SERVICES[1:], "", ["fail", "ok"], id="one is missing"),
        pytest.param((*SERVICES, *HERE), "", ["ok", "ok", "fail"], id="one in the other's way"),
        pytest.param(SERVICES, "team-a", ["fail"], id="no holder in that namespace"),
        pytest.param((*HERE, "watcher.team-b"), "team-a", ["ok"], id="another namespace is not looked at"),
    ],
)
def test_owners(keys: tuple[str, ...], scope: str, statuses: list[str]):
    assert [found.status for found in servers.owners(held(*keys), NOW, scope=scope)] == statuses


def lag(*pods: Pod) -> list[Finding]:
    return servers.lag(pods, {"": 5_000, "team-a": 2_000}, "muster")


def test_lag_is_counted_to_the_end_of_what_a_service_reads():
    def at(position: int, scope: str = "") -> Pod:
        return Pod(name="p", scope=scope, reports=(Report(service="watcher", position=position),))

    assert [found.status for found in lag(at(4_990))] == ["ok"]
    assert [found.status for found in lag(at(1_990))] == ["warn"]
    assert [found.status for found in lag(at(1_990, "team-a"))] == ["ok"]
    # The log of a namespace in which nothing happened yet has no end to compare with.
    assert lag(at(1, "team-b")) == []


def test_pods_without_a_report_are_named_with_the_reason():
    (found,) = lag(Pod(name="p", silence="forbidden"))
    assert (found.status, "p gave no report" in found.message, "forbidden" in found.message) == (
        "unknown",
        True,
        True,
    )


def test_a_release_whose_reports_say_less_is_read_all_the_same():
    (found,) = servers.readiness([Pod(name="p", reports=(Report(ready=True),))])
    assert found.status == "ok"


def test_what_a_service_says_of_itself_is_what_the_doctor_reads():
    health = Health("status")
    health.warnings = ("one copy",)
    said = reports_in(msgspec.json.encode(health.report()))
    assert said == (health.report(),)
    labelled = Pod(name="p", version="0.0.1", reports=said)
    assert servers.version(labelled) == this_release(), "its own word goes before the label, which is the chart's"


@pytest.mark.parametrize(
    ("phases", "fails"),
    [
        pytest.param((), False, id="no Job"),
        pytest.param(("Failed", "Running"), False, id="it is tried again"),
        pytest.param(("Failed", "Succeeded"), False, id="it was done again"),
        pytest.param(("Succeeded", "Failed"), True, id="the newest one failed"),
    ],
)
def test_the_newest_set_up_counts(phases: tuple[str, ...], fails: bool):
    pods = [
        {
            "metadata": {
                "name": f"setup-{number}",
                "labels": {rights.COMPONENT: "setup"},
                "creationTimestamp": f"2030-01-01T00:0{number}:00Z",
            },
            "status": {"phase": phase},
        }
        for number, phase in enumerate(phases)
    ]
    found = servers.set_up([*reversed(pods), {"metadata": {"name": "muster-nats-0"}}], "muster")
    assert [finding.status for finding in found] == ["fail"] * fails


def test_what_services_warn_of_is_told_once():
    warns = (Report(service="status", ready=True, warnings=("one copy",)),)
    (found,) = servers.warnings([Pod(name="p", reports=warns), Pod(name="q", reports=warns), Pod(name="r")])
    assert (found.status, found.message) == ("warn", "status in p, status in q: one copy")


def an_account(component: str, name: str = "m", **environment: str) -> list[rights.Account]:
    env = [{"name": key, "value": value} for key, value in environment.items()]
    metadata = {"name": name, "labels": {rights.COMPONENT: component}}
    pod = {"metadata": metadata, "spec": {"serviceAccountName": name, "containers": [{"env": env}]}}
    return rights.accounts([], [pod], home="muster", scope="", taking_over=False)


def test_whose_the_accounts_are():
    (one,) = an_account("all", MUSTER_NAMESPACE="team-a", MUSTER_TAKE_OVER="true")
    assert (one.services, one.scope, one.powers.taking_over) == (SERVICES, "team-a", True)
    (other,) = an_account("scaler", MUSTER_EXEC="false")
    assert not [right for right in rights.of_account(other, BUILT_IN) if right.resource == "pods/exec"]
    (third,) = an_account("scheduler", MUSTER_SSH="false")
    assert not [right for right in rights.of_account(third, BUILT_IN) if right.resource == "secrets"]
    assert an_account("nats") == an_account("setup") == []
    listed = [{"metadata": {"name": "default"}}, {"metadata": {"name": "scaler"}}]
    (other,) = rights.accounts(listed, [], home="muster", scope="team-b", taking_over=False)
    assert (other.user, other.services, other.scope) == ("system:serviceaccount:muster:scaler", ("scaler",), "team-b")


@pytest.mark.parametrize(
    ("namespace", "pods", "words"),
    [
        pytest.param("", [], None, id="the whole cluster, and no job beside them"),
        pytest.param("team-a", [], None, id="another namespace"),
        pytest.param("", ["resnet-launcher"], "has pods of jobs (resnet-launcher)", id="a job beside them"),
        pytest.param("muster", [], "is that of the jobs", id="their own namespace"),
    ],
)
def test_accounts_among_tenants_are_told(namespace: str, pods: list[str], words: str | None):
    found = rights.among_tenants(an_account("all", MUSTER_NAMESPACE=namespace), pods)
    assert [finding.status for finding in found] == (["warn"] if words else [])
    assert [words for finding in found if words and words not in finding.message] == []


def policies_for(account: rights.Account, *, taking_over: bool = False) -> list[Any]:
    accounts = made_policies.together(account.name, account.services)
    return made_policies.manifests(accounts, account.namespace, powers=Powers(taking_over))


def policies_of(account: rights.Account, **changed: Any) -> list[Finding]:
    """The findings about an account whose policy differs in some fields from the one that this release makes."""
    policy, binding = copy.deepcopy(policies_for(account, taking_over=account.powers.taking_over))
    for variable in policy["spec"]["variables"]:
        variable["expression"] = changed.pop(variable["name"], variable["expression"])
    policy["spec"] |= {name: value for name, value in changed.items() if name != "actions"}
    binding["spec"]["validationActions"] = changed.get("actions", ["Deny"])
    return policies.findings([account], BUILT_IN, {policies.name(account): (policy, binding)})


def test_a_policy_of_this_release_is_well():
    (one,) = an_account("all", MUSTER_TAKE_OVER="true")
    assert [finding.status for finding in policies_of(one)] == ["ok"]
    more = '["kube-system","kube-public","kube-node-lease","muster","istio-system"]'
    assert [finding.status for finding in policies_of(one, closed=more)] == ["ok"]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        pytest.param({"take_over": "true"}, "take_over", id="taking over while the service does not"),
        pytest.param({"exec": "false"}, "exec", id="commands are off there and on here"),
        pytest.param({"ssh": "false"}, "ssh", id="keys are off there and on here"),
        pytest.param({"closed": '["kube-system"]'}, "closed", id="a namespace was opened"),
        pytest.param({"closed": "[1"}, "closed", id="an expression that cannot be read"),
        pytest.param({"kinds": "{}"}, "kinds", id="kinds are missing"),
        pytest.param({"failurePolicy": "Ignore"}, "failurePolicy", id="errors let writes through"),
        pytest.param({"validations": []}, "validations", id="nothing is checked"),
        pytest.param({"paramKind": {}}, "paramKind", id="something more"),
        pytest.param({"actions": ["Warn"]}, "binding", id="it only warns"),
    ],
)
def test_a_changed_policy_is_told_of_with_what_changed(changed: dict[str, Any], part: str):
    (one,) = an_account("scaler")
    (line,) = policies_of(one, **changed)
    assert (line.check, line.status) == ("policies.release", "warn")
    assert line.message.endswith(f"is not that of this release: {part}")
    assert "muster rbac" in line.remedy


def test_an_account_without_a_policy_or_its_binding_is_named():
    (one,) = an_account("scaler")
    policy, binding = policies_for(one)
    for pair in ((None, binding), (policy, None), (None, None)):
        (line,) = policies.findings([one], BUILT_IN, {policies.name(one): pair})
        assert line.status == "warn"
        assert one.user in line.message


def test_a_scope_that_is_the_pods_own_namespace_is_no_whole_cluster():
    own = {"name": "MUSTER_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    secret = {"name": "NATS_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    pod = {"metadata": {"namespace": "team-a"}, "spec": {"containers": [{"env": [own, secret]}]}}
    assert servers.pod(pod).scope == "team-a"
    assert rights.environment(pod) == {"MUSTER_NAMESPACE": "team-a"}


@pytest.mark.parametrize(
    ("me", "services"),
    [
        pytest.param("system:serviceaccount:muster:muster-scaler", ("scaler",), id="a service"),
        pytest.param("system:serviceaccount:muster:muster", SERVICES, id="all of them"),
        pytest.param("system:serviceaccount:ci:default", None, id="another"),
        pytest.param("kubernetes-admin", None, id="a person"),
    ],
)
def test_who_examines_itself(me: str, services: tuple[str, ...] | None):
    found = rights.own(me, scope="", taking_over=False)
    assert (found and found.services) == services


def test_a_pod_of_the_chart_knows_where_muster_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert home() == "muster"
    own = tmp_path / "namespace"
    own.write_text("operators")
    monkeypatch.setattr(access, "POD_NAMESPACE", own)
    monkeypatch.setenv(access.IN_CLUSTER, "10.0.0.1")
    # Also where its services work in another namespace.
    assert home() == "operators"


def test_a_right_that_a_service_can_do_without_is_a_warning():
    (account,) = an_account("scaler")
    every = rights.of_account(account, [TRAININGJOB])
    granted = {right: right.resource != "pods/exec" for right in every}
    (found,) = rights.findings(account, [TRAININGJOB], granted)
    assert (found.status, "get/create pods/exec" in found.message) == ("warn", True)
    granted[Right("patch", "", "pods")] = False
    assert [each.status for each in rights.findings(account, [TRAININGJOB], granted)] == ["fail", "warn"]
    assert not is_well(rights.findings(account, [TRAININGJOB], granted))


@pytest.mark.parametrize(
    ("days", "left", "status"),
    [
        pytest.param(365, 15.0, "ok", id="two weeks are left"),
        pytest.param(365, 13.9, "warn", id="of a long life less than two weeks are left"),
        pytest.param(1, 0.3, "ok", id="of a life of a day a third is left"),
        pytest.param(1, 0.2, "warn", id="of a life of a day less than a quarter is left"),
        pytest.param(365, -1.0, "warn", id="it ran out, and connections that are there go on"),
    ],
)
def test_a_certificate_that_runs_out_soon_is_told(days: int, left: float, status: str):
    ends = NOW + timedelta(days=left)
    found = servers.lasting("the certificate", Life(ends - timedelta(days=days), ends), NOW)
    assert found.status == status
    assert f"{ends:%Y-%m-%d}" in found.message


def a_held_history(*, deleted: bool, unknown: bool = False) -> History:
    """One whose second event was changed, or is of a newer release."""
    history = History(KEY)
    for number, event in enumerate([*a_running_job(), *([JobGone(version=90)] if deleted else [])]):
        history.fold(stored(history, event))
        if number == 1:
            history.hold("UnknownEvent" if unknown else "NotConfirmed", "it does not confirm itself")
    return history


@pytest.mark.parametrize("deleted", [pytest.param(True, id="of a deleted job"), pytest.param(False, id="of a job")])
@pytest.mark.parametrize(
    ("unknown", "check"),
    [pytest.param(True, "jobs.held", id="a newer event"), pytest.param(False, "jobs.damaged", id="a changed event")],
)
def test_a_held_history_fails_the_examination(deleted: bool, unknown: bool, check: str):
    (found,) = log.histories([a_held_history(deleted=deleted, unknown=unknown)], "this-log")
    assert (found.check, found.status) == (check, "fail")
    assert f"team-a/resnet{', deleted' if deleted else ''}" in found.message


def test_whole_histories_are_counted_by_the_jobs_that_are_there():
    (found,) = log.histories([a_history(a_running_job()), a_history([*a_running_job(), JobGone(version=90)])], "log")
    assert (found.status, found.message) == ("ok", "1 job, and every history is whole")
