"""The whole of `muster doctor`, against an API server and a real NATS server: well, and in each trouble."""

import json
import sys
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from time import time as clock
from typing import Any

import msgspec
import pytest

from muster.crds import manifests
from muster.doctor.findings import Choices, is_well
from shared.cluster import scope
from shared.cluster.kinds import PODS
from shared.eventlog import Entry, api
from shared.eventlog.account import ADMIN
from shared.eventlog.inspection import stream
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.streams import STREAMS, StreamInfo
from shared.eventlog.tls import Tls
from shared.job.events.watcher import HistoryBroken
from shared.job.naming import JobKey, Uid, subject_of
from shared.ports import free_port
from tests.doctor.conftest import HOME, Installation, MakeInstallation, of, wrong
from tests.kit.commands import run
from tests.kit.nats import a_decision, a_server, certified, connected, owners, until
from tests.security.authority import Authority

pytestmark = pytest.mark.nats

FORBIDDEN = 403
LONG_AGO = "2020-01-01T00:00:00.000Z"


async def test_an_installation_that_is_well(an_installation: MakeInstallation):
    async with an_installation() as it:
        await it.with_pods("watcher", "scheduler", "scaler", "status")
        it.front.say("/proxy/healthz", 200, {"service": "one", "ready": True, "position": 1, "held": {}})
        # So NATS answers at `/varz` for ever, once asked there before its JetStream has started.
        it.front.say("/varz", 200, {"server_name": "n0", "jetstream": {}})
        it.front.say("/jsz", 200, {"server_id": "N", "config": {"sync_always": True}})
        it.with_policies()
        found = await it.examined(nats_monitor=(it.front.url,))
    assert {finding.status for finding in found} == {"ok"}, found
    assert len([finding for finding in found if finding.check.startswith("rights.")]) == 4
    assert "agree within" in of(found, "clock.kubernetes")[0].message
    assert "agree within" in of(found, "clock.nats")[0].message


async def test_an_audit_service_that_is_not_ready_is_told(an_installation: MakeInstallation):
    async with an_installation() as it:
        await it.with_pods("audit")
        it.front.say("/proxy/healthz", 200, {"service": "audit", "ready": False, "trouble": "another log"})
        found = await it.examined()
    assert "audit in muster-audit is not ready: another log" in [finding.message for finding in found]


async def test_certificates_that_run_out_are_told(an_installation: MakeInstallation, tmp_path: Path):
    """Of both sides: those of this authority live for eleven days and have one left."""
    authority = Authority(tmp_path / "pki")
    ours = authority.issue("reader")
    trusted = Tls(authority.path, ours.certificate, ours.key)
    async with (
        an_installation() as it,
        NatsServer(tmp_path / "nats", more=certified(authority.issue("server", of_clients=authority.path))) as server,
    ):
        await set_up(server.url, password=server.users[ADMIN], tls=trusted)
        mine = {"nats_password": server.users["reader"], "nats_cert": ours.certificate, "nats_key": ours.key}
        found = of(await it.examined(nats_url=server.url, nats_ca=authority.path, **mine), "log.certificates")
    assert [finding.status for finding in found] == ["warn", "warn"]
    assert "the log's server" in found[0].message
    assert str(ours.certificate) in found[1].message


async def test_all_services_in_one_pod_and_one_account(an_installation: MakeInstallation):
    async with an_installation() as it:
        await it.with_pods("all", version="0.0.9")
        each = {"ready": True, "position": 1}
        it.front.say("/proxy/healthz", 200, {"ready": True, "services": [each | {"service": "watcher"}, each]})
        found = await it.examined()
    assert "watcher/scheduler/scaler/status" in of(found, "rights.all")[0].message
    assert of(found, "services.ready")[0].message == "2 services in 1 pods are ready"
    (version,) = of(found, "versions.services")
    assert version.status == "warn"
    assert "0.0.9" in version.message


Trouble = Callable[[Installation], Awaitable[dict[str, Any]]]
"""Brings it about; returns settings that belong to it."""


async def no_definition(it: Installation) -> dict[str, Any]:
    it.front.say("GET .*customresourcedefinitions/scaleins", 404)
    return {}


async def an_older_definition(it: Installation) -> dict[str, Any]:
    (ours,) = [each for each in manifests() if each["metadata"]["name"].startswith("trainingjobs")]
    (version,) = ours["spec"]["versions"]
    spec = ours["spec"] | {"versions": [version | {"name": "v1alpha0"}]}
    it.front.say("GET .*customresourcedefinitions/trainingjobs", 200, ours | {"spec": spec, **ESTABLISHED})
    return {}


ESTABLISHED = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}


async def a_missing_right(it: Installation) -> dict[str, Any]:
    def but_exec(body: bytes, _: Any) -> dict[str, Any]:
        wanted = json.loads(body)["spec"]["resourceAttributes"]
        return {"status": {"allowed": (wanted["verb"], wanted["resource"]) != ("delete", "pods")}}

    await it.with_pods("scheduler")
    it.front.say("POST .*accessreviews", 200, but_exec)
    return {}


async def a_wrong_password(it: Installation) -> dict[str, Any]:
    return {"nats_password": "guessed"}


async def no_nats(it: Installation) -> dict[str, Any]:
    return {"nats_url": f"nats://127.0.0.1:{free_port()}"}


async def no_monitor(it: Installation) -> dict[str, Any]:
    return {"nats_monitor": f"http://127.0.0.1:{free_port()}"}


async def no_api_server(it: Installation) -> dict[str, Any]:
    it.front.say(".*", 503)
    return {}


async def no_kubeconfig(it: Installation) -> dict[str, Any]:
    return {"kubeconfig": Path("/no/such/kubeconfig")}


async def a_pod_that_is_not_ready(it: Installation) -> dict[str, Any]:
    await it.with_pods("watcher")
    report = {"service": "watcher", "ready": False, "trouble": "run `muster setup`"}
    it.front.say("/proxy/healthz", 200, report)
    return {}


async def a_failed_set_up(it: Installation) -> dict[str, Any]:
    await it.with_pods("setup")
    await it.cluster.patch(PODS, HOME, "muster-setup", {"status": {"phase": "Failed"}}, subresource="status")
    return {}


@pytest.mark.parametrize(
    ("trouble", "check", "says", "remedy"),
    [
        pytest.param(no_definition, "definitions.kinds", "scaleins", "muster crds", id="no definition"),
        pytest.param(an_older_definition, "definitions.versions", "v1alpha0", "muster crds", id="older definition"),
        pytest.param(a_missing_right, "rights.scheduler", "may not delete pods", "muster rbac", id="a missing right"),
        pytest.param(a_wrong_password, "log.reached", "NATS_PASSWORD", "", id="a wrong password"),
        pytest.param(no_nats, "log.reached", "start NATS there", "", id="no NATS"),
        pytest.param(no_api_server, "versions.kubernetes", "503", "", id="no API server"),
        pytest.param(no_kubeconfig, "versions.kubernetes", "there is no kubeconfig", "", id="no kubeconfig"),
        pytest.param(no_monitor, "log.fsync", "correct NATS_MONITOR", "", id="no monitor"),
        pytest.param(a_failed_set_up, "services.setup", "failed in muster-setup", "runbook", id="a failed set-up"),
        pytest.param(a_pod_that_is_not_ready, "services.ready", "run `muster setup`", "runbook", id="not ready"),
    ],
)
async def test_each_trouble_is_one_line_and_the_rest_goes_on(
    an_installation: MakeInstallation, trouble: Trouble, check: str, says: str, remedy: str
):
    async with an_installation() as it:
        found = await it.examined(**await trouble(it))
    (line,) = wrong(found)
    assert line.check == check
    assert says in line.message
    assert remedy in line.remedy
    assert "\n" not in line.message
    # Whatever the other server says is told all the same.
    assert of(found, "clock.nats") or of(found, "clock.kubernetes")


async def test_a_server_without_policies_is_told_of(an_installation: MakeInstallation):
    async with an_installation() as it:
        await it.with_pods("scaler")
        (line,) = of(await it.examined(), "policies.accounts")
    assert line.status == "warn"
    assert "serves no ValidatingAdmissionPolicy" in line.message
    assert "the embedded cluster is for development" in line.remedy


async def test_who_may_not_read_policies_is_told_so(an_installation: MakeInstallation):
    async with an_installation() as it:
        await it.with_pods("scaler")
        it.front.say("validatingadmissionpolicies/", FORBIDDEN)
        it.with_policies()
        (line,) = of(await it.examined(), "policies.accounts")
    assert line.status == "unknown"
    assert "validatingadmissionpolicies" in line.remedy


async def test_no_service_acts(an_installation: MakeInstallation):
    async with an_installation(owned=False) as it:
        (line,) = wrong(await it.examined())
    assert line.check == "services.owners"
    assert "watcher, scheduler, scaler, status" in line.message


async def test_definitions_of_an_older_release(an_installation: MakeInstallation):
    (ours,) = [each for each in manifests() if each["metadata"]["name"].startswith("scaleouts")]
    older = json.loads(json.dumps(ours))
    older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].popitem()
    async with an_installation() as it:
        it.front.say("GET .*customresourcedefinitions/scaleouts", 200, older | ESTABLISHED)
        found = await it.examined()
    (line,) = of(found, "definitions.release")
    assert (line.status, "scaleouts" in line.message, "muster setup" in line.remedy) == ("warn", True, True)
    assert is_well(found)


async def test_what_another_installation_has_claimed(an_installation: MakeInstallation):
    (ours,) = [each for each in manifests() if each["metadata"]["name"].startswith("scaleouts")]
    claim = {scope.key(""): scope.holder("another-log", "nats://elsewhere:4222")}
    claimed = ours | {"metadata": ours["metadata"] | {"annotations": claim}}
    async with an_installation() as it:
        it.front.say("GET .*customresourcedefinitions/scaleouts", 200, claimed | ESTABLISHED)
        (line,) = wrong(await it.examined())
    assert line.check == "services.installations"
    assert "another-log at nats://elsewhere:4222" in line.message


async def test_nothing_is_installed(an_installation: MakeInstallation):
    async with an_installation(installed=False) as it:
        (line,) = wrong(await it.examined())
    assert line.check == "definitions.kinds"
    assert "none of the kinds of job is installed" in line.message


async def test_clocks_that_differ(an_installation: MakeInstallation):
    async with an_installation() as it:
        it.front.date = formatdate(clock() + 100, usegmt=True)
        found = await it.examined()
    (difference,) = of(found, "clock.kubernetes")
    assert difference.status == "warn"
    assert "ahead of the one here" in difference.message
    assert is_well(found)


async def test_who_may_not_look_is_told_what_is_not_known(an_installation: MakeInstallation):
    async with an_installation() as it:
        await it.with_pods("watcher")
        for pattern in ("customresourcedefinitions", "accessreviews", "serviceaccounts", "/proxy/"):
            it.front.say(pattern, FORBIDDEN)
        found = await it.examined()
    assert is_well(found)
    unknown = {finding.check: finding for finding in found if finding.status == "unknown"}
    assert set(unknown) == {"log.fsync", "definitions.kinds", "rights.watcher", "services.lag"}
    assert "kubectl auth can-i" in unknown["rights.watcher"].remedy
    assert "pods/proxy" in unknown["services.lag"].remedy


async def test_who_may_impersonate_asks_in_the_accounts_name(an_installation: MakeInstallation):
    asked = []

    def note(_: bytes, headers: Any) -> dict[str, Any]:
        asked.append(headers.get("Impersonate-User"))
        return {"status": {"allowed": True}}

    async with an_installation() as it:
        await it.with_pods("watcher")
        it.front.say("POST .*/subjectaccessreviews", FORBIDDEN)
        it.front.say("POST .*/selfsubjectaccessreviews", 200, note)
        found = await it.examined()
    assert of(found, "rights.watcher")[0].status == "ok"
    assert set(asked) == {"system:serviceaccount:muster:muster-watcher"}


async def test_a_service_far_behind_the_log(an_installation: MakeInstallation, tmp_path: Path):
    async with an_installation() as it:
        await it.with_pods("watcher")
        it.front.say("/proxy/healthz", 200, {"service": "watcher", "ready": True, "position": 1})
        async with a_server(tmp_path / "nats") as server, owners(server), connected(server, ADMIN) as log:
            for number in range(1_100):
                await api.publish(log.connection, f"facts.team-a.j{number}.u.watcher.X", b"{}", {})
            found = await it.examined(nats_url=server.url, nats_password=server.users["reader"])
    (lag,) = of(found, "services.lag")
    assert (lag.status, "watcher in muster-watcher is 1100 events behind" in lag.message) == ("warn", True)


async def _has_events(log: JetStreamEventLog, name: str) -> bool:
    known = await stream(log, name)
    return known is not None and known.state.messages > 0


async def test_a_log_in_trouble(an_installation: MakeInstallation, tmp_path: Path):
    async with an_installation() as it, a_server(tmp_path / "nats") as server, owners(server):
        where = {"nats_url": server.url, "nats_password": server.users["reader"]}
        async with connected(server, ADMIN) as log, connected(server, "watcher") as watcher:
            identity = await log.identity()
            # A decision on no basis, an event that no release knows, a job that this log lost, and one of another log.
            await log.append(a_decision("team-a"), expect=0)
            newer = subject_of(JobKey("team-a", "newer", Uid("uid-newer")), "facts", "watcher", "NotYet")
            await watcher.append(
                Entry(subject=newer, event_id="newer", time=LONG_AGO, body=b'{"type":"NotYet"}'), expect=0
            )
            for name, whose in (("lost", identity), ("elsewhere", "another-log")):
                key = JobKey("team-a", name, Uid(f"uid-{name}"))
                broken = HistoryBroken(log=whose, sequence=9, hash="ab", reason="HistoryBroken")
                body, subject = msgspec.json.encode(broken), subject_of(key, "facts", "watcher", "HistoryBroken")
                await watcher.append(Entry(subject=subject, event_id=name, time=LONG_AGO, body=body), expect=0)
            jobs = await stream(log, STREAMS[0])
            assert jobs is not None
            config = jobs.config | {"max_age": 86_400_000_000_000, "max_bytes": jobs.state.bytes}
            await api.call(log.connection, f"STREAM.UPDATE.{STREAMS[0]}", config, StreamInfo)
            mirror = {"name": "FEW", "mirror": {"name": STREAMS[0]}, "mirror_direct": True, "storage": "memory"}
            await api.call(log.connection, "STREAM.CREATE.FEW", mirror, StreamInfo)
            await until(lambda: _has_events(log, "FEW"))
            found = await it.examined(**where)
            jobs_wrong = {"jobs.held", "jobs.damaged", "jobs.broken", "jobs.foreign"}
            assert {line.check for line in wrong(found)} == {"log.settings", "log.room", *jobs_wrong}
            assert "the stream FEW answers" in of(found, "log.mirrors")[0].message
            assert "max_age" in of(found, "log.settings")[0].message
            assert "team-a/newer" in of(found, "jobs.held")[0].message
            assert "team-a/resnet" in of(found, "jobs.damaged")[0].message
            assert "team-a/lost" in of(found, "jobs.broken")[0].message
            assert "muster history accept" in of(found, "jobs.broken")[0].remedy
            assert "team-a/elsewhere" in of(found, "jobs.foreign")[0].message
            assert of(found, "log.room")[0].message.endswith("(100%): it is full")
            for bucket in STREAMS[2:]:
                await api.call(log.connection, f"STREAM.DELETE.{bucket}", None, api.Acknowledged)
            (lacking,) = of(await it.examined(**where), "log.streams")
            assert lacking.status == "fail"
            assert "muster setup" in lacking.remedy


async def test_a_server_that_never_answers_is_given_up(an_installation: MakeInstallation):
    async with an_installation() as it:
        it.front.hangs = True
        found = await it.examined(choices=Choices(HOME, timeout=0.5))
    (line,) = wrong(found)
    assert line.check == "versions.kubernetes"
    assert f"{it.front.url} has not answered within 0.5 s" in line.message


async def test_the_program_prints_a_document_and_ends_with_one_when_something_fails(
    an_installation: MakeInstallation, tmp_path: Path
):
    async with an_installation() as it:
        known = it.settings()
        environment = {
            "NATS_URL": known.nats_url,
            "NATS_USER": "reader",
            "NATS_PASSWORD": known.nats_password or "",
            "KUBECONFIG": str(known.kubeconfig),
        }
        command = (sys.executable, "-m", "muster", "doctor")
        well = await run(*command, "--json", environment=environment)
        ill = await run(*command, environment=environment | {"NATS_PASSWORD": "guessed"})
    said = json.loads(well.out)
    assert (well.code, said["ok"], said["schema"]) == (0, True, "muster.dev/doctor/v1")
    assert set(said["findings"][0]) == {"check", "status", "message", "remedy"}
    assert sum(said["summary"].values()) == len(said["findings"])
    assert ill.code == 1
    assert "  FAIL  " in ill.out
    assert "Traceback" not in ill.out + ill.complaint
