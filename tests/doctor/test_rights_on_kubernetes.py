"""Whose rights a person can learn on the real control plane, by what that person may do there."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from devcluster.kubeconfig import write_kubeconfig
from muster import permissions
from muster.doctor import all_findings
from muster.doctor.findings import Choices, Finding
from shared.eventlog.server import NatsServer
from shared.process.settings import Settings
from tests.doctor.conftest import of, wrong
from tests.kit.nats import owners, until
from tests.security.accounts import Accounts, accounts

pytestmark = [pytest.mark.real, pytest.mark.nats]

PERSON = "auditor"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVICES = ("watcher", "scheduler", "scaler", "status")
ALL = {f"rights.{service}" for service in SERVICES}
AMONG_JOBS = {"rights.home": "warn"}
"""The accounts are in the namespace of the jobs, for want of another one."""


@pytest.fixture
async def own(real_server: ControlPlane) -> AsyncIterator[Accounts]:
    """A namespace with the accounts and roles of an installation there."""
    async with accounts(real_server) as own:
        for service in SERVICES:
            await own.apply(permissions.manifests(service, own.namespace, home=own.namespace))
        yield own


async def examined(own: Accounts, nats: NatsServer, kubeconfig: Path) -> list[Finding]:
    settings = Settings(
        _env_file=None,
        kubeconfig=kubeconfig,
        namespace=own.namespace,
        nats_url=nats.url,
        nats_user="reader",
        nats_password=nats.users["reader"],
    )
    async with owners(nats, own.namespace):
        return await all_findings(settings, Choices(own.namespace, timeout=20))


async def as_account(own: Accounts, name: str, folder: Path) -> Path:
    file = folder / f"kubeconfig-{name}"
    token = await own.token(name)
    write_kubeconfig(file, server=own.plane.url, authority=own.plane.authority.read_bytes(), user=name, token=token)
    return file


async def a_person(own: Accounts, folder: Path, *rules: dict[str, Any]) -> Path:
    """A user with these rights in the namespace, and nothing else."""
    subject = {"kind": "ServiceAccount", "name": PERSON, "namespace": own.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": PERSON}
    await own.apply(
        [
            {"kind": "ServiceAccount", "metadata": {"name": PERSON}},
            {"kind": "Role", "metadata": {"name": PERSON}, "rules": [*rules]},
            {"kind": "RoleBinding", "metadata": {"name": PERSON}, "roleRef": reference, "subjects": [subject]},
        ]
    )
    return await as_account(own, PERSON, folder)


LOOKING = {"apiGroups": [""], "resources": ["pods", "serviceaccounts"], "verbs": ["list"]}
IMPERSONATING = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}


def statuses(found: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.status for finding in found if finding.check.startswith("rights.")}


async def test_an_administrator_learns_all_and_what_is_missing(own: Accounts, nats_server: NatsServer):
    kubeconfig = own.plane.kubeconfig(ADMIN)
    found: list[Finding] = []

    async def well() -> bool:
        # The authorizer reads roles a moment after they are made.
        nonlocal found
        found = await examined(own, nats_server, kubeconfig)
        return wrong(found) == []

    await until(well)
    assert statuses(found) == dict.fromkeys(ALL, "ok") | AMONG_JOBS
    assert of(found, "definitions.kinds")[0].status == "ok"
    # What the API server adds to a definition makes it none of another release.
    assert of(found, "definitions.release") == []
    kept = [
        rule | {"verbs": [verb for verb in rule["verbs"] if verb != "delete"]}
        for rule in permissions.rules("scheduler", own.namespace)
    ]
    path = f"{RBAC}/namespaces/{own.namespace}/roles/{permissions.role('scheduler')}"
    async with own.plane.session() as session:
        kind = {"Content-Type": "application/merge-patch+json"}
        rules = [rule for rule in kept if rule["verbs"]]
        async with session.patch(path, json={"rules": rules}, headers=kind) as answer:
            assert answer.status == 200, await answer.text()

    async def told() -> bool:
        nonlocal found
        found = await examined(own, nats_server, kubeconfig)
        return bool(wrong(found))

    await until(told)
    (line,) = wrong(found)
    assert line.check == "rights.scheduler"
    assert "delete pods" in line.message
    assert f"muster rbac -n {own.namespace}" in line.remedy


async def test_who_may_impersonate_learns_all(own: Accounts, nats_server: NatsServer, tmp_path: Path):
    kubeconfig = await a_person(own, tmp_path, LOOKING, IMPERSONATING)

    async def told() -> bool:
        return statuses(await examined(own, nats_server, kubeconfig)) == dict.fromkeys(ALL, "ok") | AMONG_JOBS

    await until(told)


async def test_who_may_only_look_learns_what_to_ask_for(own: Accounts, nats_server: NatsServer, tmp_path: Path):
    kubeconfig = await a_person(own, tmp_path, LOOKING)

    async def told() -> bool:
        found = await examined(own, nats_server, kubeconfig)
        return wrong(found) == [] and statuses(found) == dict.fromkeys(ALL, "unknown") | AMONG_JOBS

    await until(told)


async def test_a_service_account_examines_itself(own: Accounts, nats_server: NatsServer, tmp_path: Path):
    kubeconfig = await as_account(own, "watcher", tmp_path)

    async def told() -> bool:
        found = await examined(own, nats_server, kubeconfig)
        return wrong(found) == [] and statuses(found) == {"rights.watcher": "ok"} | AMONG_JOBS

    await until(told)
