"""Installations other than the chart's default, really installed on one control plane, each with a job to its end.

First two single namespaces on one log with TLS: `one` with its NATS and all services in one process, `two` with that
NATS as its own, for which it has to wait.  Then the Kustomize base, for the whole cluster: it waits until the two gave
their scopes up, and `muster doctor` examines it from outside, well and in trouble.
"""

import asyncio
import base64
import copy
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.crds import manifests
from shared.eventlog.account import USERS
from shared.release import MARK
from tests.deploy.rendering import ROOT
from tests.kit.operator import a_job
from tests.kit.platform import Platform, a_platform
from tests.security.authority import Authority

pytestmark = pytest.mark.real

WAIT = "--wait --timeout 2m"
PATIENCE = 130.0
"""Seconds for a command that waits up to two minutes itself."""
CHART = "deploy/helm/muster"
LOG = "tls://muster-nats-0.muster-nats.one.svc:4222"
SETUP = "-l app.kubernetes.io/component=setup --tail=-1"
ACCOUNT = "system:serviceaccount:{}:muster-setup"
DEFINITIONS = "customresourcedefinitions"
WITH_TLS = "--set nats.tls.secret=pki,nats.auth.existingSecret=passwords"
ONE = f"helm install muster {CHART} -n one --set mode=all-in-one,scope.namespace=team-a,nats.persistence.enabled=false"
TWO = f"helm install muster {CHART} -n two --set scope.namespace=team-b,nats.enabled=false,nats.url={LOG}"
SECRETS, *_ = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "deploy/kustomize/README.md").read_text(), re.DOTALL | re.M)
KUSTOMIZE = "kubectl apply -k deploy/kustomize/base"
"""Without an overlay, as the nodes have the image."""


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    async with a_platform(tmp_path, disks=1, audit=tmp_path / "audit") as platform:
        yield platform


async def test_one_namespace_another_on_its_log_and_then_the_whole_cluster(platform: Platform):
    await _prepare(platform)

    await platform.do(f"{TWO} {WITH_TLS}")
    await platform.says("-n two deploy/muster-status", "start NATS there")
    await platform.do(f"{ONE} {WITH_TLS} {WAIT}", patience=PATIENCE)
    await platform.says("-n two deploy/muster-scaler", "the server does not know this user and password")
    await platform.do("kubectl -n two wait --for=condition=Available=False deployment/muster-scaler --timeout=10s")
    await platform.do("kubectl apply -f -", given=json.dumps(_passwords("two")))
    await _available(platform, "two")
    # Whichever came first.
    set_ups = f"kubectl logs -n one {SETUP}; kubectl logs -n two {SETUP}"
    await platform.do(f"({set_ups}) | grep 'definition trainingjobs.* upgraded'")
    await asyncio.gather(*(_trains(platform, team) for team in ("team-a", "team-b")))
    await _the_set_up_was_itself(platform)

    await platform.do(f"set -e; cd {platform.folder}; {SECRETS}")
    await platform.do(KUSTOMIZE)
    await platform.says(f"-n muster {SETUP}", "the namespace team-a has the log .*the namespace team-b has the log")
    await platform.says("-n muster deploy/muster-watcher", "stream not found")
    await platform.do("kubectl delete trainingjobs --all --all-namespaces")
    await asyncio.gather(*(_give_up(platform, home) for home in ("one", "two")))
    await asyncio.gather(*(platform.do(f"helm uninstall muster -n {home}") for home in ("one", "two")))
    await _available(platform, "muster")
    await _trains(platform, "default")
    await _the_doctor_sees(platform)


async def _prepare(platform: Platform) -> None:
    """Namespaces, passwords of which one is wrong, certificates, and a definition of an older release."""
    names = ("one", "two", "team-a", "team-b")
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
    ]
    authority = Authority(platform.folder / "pki")
    served = authority.issue("server", host="*.muster-nats.one.svc")
    assert served.certificate is not None
    assert served.key is not None
    trusted = {"ca.crt": authority.path}
    documents += [
        _passwords("one"),
        _passwords("two", scaler="guessed"),
        _secret("two", "pki", {name: path.read_text() for name, path in trusted.items()}),
        _secret(
            "one",
            "pki",
            {
                name: path.read_text()
                for name, path in (trusted | {"tls.crt": served.certificate, "tls.key": served.key}).items()
            },
        ),
    ]
    (ours,) = [copy.deepcopy(each) for each in manifests() if each["metadata"]["name"].startswith("trainingjobs")]
    older: dict[str, Any] = {**ours, "metadata": {**ours["metadata"], "annotations": {MARK: "0.0.1"}}}
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # The rules name the field.
    del schema["properties"]["spec"]["properties"]["suspend"], schema["x-kubernetes-validations"]
    await platform.do("kubectl create -f -", given=yaml.safe_dump_all([*documents, older]))


def _passwords(home: str, **others: str) -> dict[str, Any]:
    return _secret(home, "passwords", {user: f"of-{user}" for user in USERS} | others)


def _secret(home: str, name: str, content: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": home}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content}


async def _available(platform: Platform, home: str) -> None:
    wait = f"kubectl -n {home} wait --for=condition=Available deployment --all --timeout=90s"
    await platform.do(wait, patience=PATIENCE)


async def _trains(platform: Platform, home: str) -> None:
    job = a_job("job", "sleep 1")
    job["metadata"]["namespace"] = home
    await platform.do("kubectl apply -f -", given=yaml.safe_dump(job))
    await platform.do(f"kubectl -n {home} wait --for=condition=Succeeded trainingjob/job --timeout=60s", patience=70)


async def _give_up(platform: Platform, home: str) -> None:
    """As the page says before an uninstallation."""
    upgrade = f"helm upgrade muster {CHART} -n {home} --reset-then-reuse-values --set setup.release=true"
    await platform.do(f"{upgrade} {WAIT}", patience=PATIENCE)
    await platform.says(f"-n {home} {SETUP}", "given up")


async def _the_set_up_was_itself(platform: Platform) -> None:
    """Its own account made the definitions, met no refusal, and may do nothing besides."""
    calls = [json.loads(line) for line in (platform.folder / "audit").read_text().splitlines()]
    made = [
        call
        for call in calls
        if call.get("objectRef", {}).get("resource") == DEFINITIONS and call["verb"] in ("create", "patch")
        if call["user"]["username"] != "admin"
    ]
    assert {call["user"]["username"] for call in made} == {ACCOUNT.format("one"), ACCOUNT.format("two")}
    assert {call["verb"] for call in made} == {"create", "patch"}
    for verb, what in (("get", "secrets"), ("list", "pods"), ("delete", DEFINITIONS), ("patch", "trainingjobs")):
        asked = await platform.shell(f"kubectl auth can-i {verb} {what} -A --as={ACCOUNT.format('one')}")
        assert asked.out.strip() == "no", (verb, what)
    # A service of one namespace has no rights in the other.
    for where, may in (("team-a", "yes"), ("team-b", "no")):
        account = "system:serviceaccount:one:muster"
        assert (await platform.shell(f"kubectl auth can-i list pods -n {where} --as={account}")).out.strip() == may


async def _the_doctor_sees(platform: Platform) -> None:
    """Everything through the real API server, and each trouble in one line; applying the base again fixes it."""
    password = (await platform.get("secret muster-nats-reader -n muster"))["data"]["reader"]
    async with platform.forwarded("-n muster muster-nats-0", 4222) as port:
        where = f"NATS_URL=tls://127.0.0.1:{port} NATS_CA={platform.folder}/ca.crt"
        known = f"{where} NATS_USER=reader NATS_PASSWORD={base64.b64decode(password).decode()}"
        ask = f"{known} muster doctor --json"
        well = await _examined(platform, ask, code=0)
        told = [finding["message"] for finding in well]
        assert "5 services in 5 pods are ready" in told
        assert [words for words in told if words.endswith("behind the log's end")]
        assert [finding for finding in well if finding["status"] not in ("ok", "unknown")] == []

        await platform.do("kubectl -n muster scale deployment/muster-scaler --replicas=0")
        await platform.do("kubectl delete clusterrolebinding muster-scheduler")
        await platform.do("kubectl -n muster wait --for=delete pod -l app.kubernetes.io/component=scaler --timeout=30s")
        await asyncio.sleep(2.0)
        ill = await _examined(platform, ask, code=1)
        assert "no replica holds the lease of scaler" in _line(ill, "services.owners")
        assert "may not" in _line(ill, "rights.scheduler")

        await platform.do(KUSTOMIZE)
        await _available(platform, "muster")
        await platform.do("kubectl -n muster scale statefulset/muster-nats --replicas=0")
        await platform.do("kubectl -n muster wait --for=delete pod/muster-nats-0 --timeout=60s")
        assert "start NATS there" in _line(await _examined(platform, ask, code=1), "log.reached")


async def _examined(platform: Platform, ask: str, *, code: int) -> list[dict[str, str]]:
    ended = await platform.shell(ask)
    assert ended.code == code, f"{ended.out}{ended.complaint}"
    found: list[dict[str, str]] = json.loads(ended.out)["findings"]
    return found


def _line(findings: list[dict[str, str]], check: str) -> str:
    (line,) = [each["message"] for each in findings if (each["check"], each["status"]) == (check, "fail")]
    assert "\n" not in line
    return line
