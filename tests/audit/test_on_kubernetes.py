"""From `kubectl` to `muster why`: a real API server tells the audit service who wrote, and people read it."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.binaries import kubectl
from devcluster.certificates import make_server
from devcluster.child import Child
from devcluster.controlplane import ControlPlane
from muster import policies
from muster.policies import log_policy
from muster.stack import Stack
from shared.eventlog.account import AUDIT
from shared.frameworks.kinds import BUILT_IN
from shared.ports import HOST, free_port
from tests.frameworks.documents import training_job
from tests.kit.commands import Ended, run
from tests.kit.controlplane import require_control_plane

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

PEOPLE = ("alice", "bob")
TOKEN = "the token of the webhook"
PATIENCE_SECONDS = 60.0
EDITS = 60


class Site(NamedTuple):
    stack: Stack
    receiver: Child

    async def kubectl(self, user: str, *words: str, given: Any = None) -> Ended:
        config = self.stack.cluster.kubeconfig(user)
        return await run(str(kubectl()), "--kubeconfig", str(config), *words, given=yaml.safe_dump(given or {}))

    async def must(self, user: str, *words: str, given: Any = None) -> None:
        ended = await self.kubectl(user, *words, given=given)
        assert ended.code == 0, ended.complaint

    async def muster(self, *words: str) -> str:
        ended = await run(sys.executable, "-m", "muster", *words, "-n", "team-a", environment=self.stack.reader())
        assert ended.code == 0, ended.complaint
        return ended.out

    async def until_said(self, word: str, *words: str) -> str:
        for _ in range(30):
            if word in (said := await self.muster(*words)):
                return said
            await asyncio.sleep(0.5)
        raise AssertionError(said)

    async def changes(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in (await self.muster("audit", "--json")).splitlines()]


def webhook(folder: Path) -> tuple[int, list[str]]:
    """The receiver's port, and the arguments of an API server that sends audit events there."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    make_server(folder, ["localhost"])
    (folder / "token").write_text(TOKEN)
    (folder / "policy.yaml").write_text(yaml.safe_dump(log_policy(BUILT_IN)))
    cluster = {"server": f"https://localhost:{port}/audit", "certificate-authority": str(folder / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "muster",
        "clusters": [{"name": "muster", "cluster": cluster}],
        "users": [{"name": "muster", "user": {"token": TOKEN}}],
        "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": "muster"}}],
    }
    (folder / "webhook.yaml").write_text(yaml.safe_dump(config))
    return port, [
        f"--audit-policy-file={folder / 'policy.yaml'}",
        f"--audit-webhook-config-file={folder / 'webhook.yaml'}",
        "--audit-webhook-batch-max-wait=1s",
        "--audit-webhook-initial-backoff=1s",
        "--audit-webhook-truncate-enabled",
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    require_control_plane()
    folder = tmp_path_factory.mktemp("site")
    port, arguments = webhook(folder / "audit")

    def plane(data: Path, users: Sequence[str] = (), images: Any = None, *, audit: Path | None = None) -> ControlPlane:
        return ControlPlane(data, (*users, *PEOPLE), images, nodes=0, more={"kube-apiserver": arguments})

    async with Stack(folder / "stack", plane) as stack:
        environment = {
            "NATS_URL": stack.nats.url,
            "NATS_USER": AUDIT,
            "NATS_PASSWORD": stack.nats.users[AUDIT],
            "MUSTER_AUDIT_PORT": str(port),
            "MUSTER_AUDIT_HOST": HOST,
            "MUSTER_AUDIT_CERT": str(folder / "audit" / "server.crt"),
            "MUSTER_AUDIT_KEY": str(folder / "audit" / "server.key"),
            "MUSTER_AUDIT_TOKEN_FILE": str(folder / "audit" / "token"),
        }
        command = [sys.executable, "-m", "services.audit"]
        receiver = Child("the audit service", command, folder / "audit.log", environment)
        receiver.start()
        site = Site(stack, receiver)
        try:
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "people"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": "muster"} for user in PEOPLE],
            }
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
            for manifest in (binding, namespace, *policies.of_audit("muster")):
                await site.must("admin", "apply", "-f", "-", given=manifest)
            # An API server puts a policy in force a little later.
            await until_noted(site)
            yield site
        finally:
            await receiver.stop()


async def until_noted(site: Site) -> None:
    for number in range(20):
        job = training_job() | {"metadata": {"name": f"probe-{number}", "namespace": "team-a"}}
        await site.must("admin", "create", "-f", "-", given=job)
        await asyncio.sleep(2)
        if any(change["people"] for change in await site.changes()):
            return
    raise AssertionError("no creation was attributed")


def a_job(name: str) -> dict[str, Any]:
    return training_job() | {"metadata": {"name": name, "namespace": "team-a"}}


async def test_why_and_audit_name_the_users_of_each_change(site: Site):
    await site.must("alice", "apply", "-f", "-", given=a_job("resnet"))
    await site.until_said("was applied by system:serviceaccount:muster:alice", "why", "resnet")
    await site.must("bob", "scale", "trainingjob/resnet", "--replicas=3", "-n", "team-a")
    await site.until_said("muster:bob", "audit")
    await site.must("alice", "delete", "trainingjob/resnet", "-n", "team-a", "--wait=false")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            mine = [change for change in await site.changes() if change["job"].endswith("/resnet")]
            if len(mine) == 3 and mine[-1]["people"]:
                break
            await asyncio.sleep(0.5)
    users = [[person["user"].rsplit(":", 1)[1] for person in change["people"]] for change in mine]
    assert users == [["alice"], ["bob"], ["alice"]]
    assert mine[0]["people"][0]["groups"] == [], "a name without its groups, unless the setting asks for them"
    assert mine[0]["people"][0]["agent"].startswith("kubectl/")


async def test_two_users_with_one_program_are_never_taken_for_each_other(site: Site):
    chance, wrote = random.Random(7), dict[int, str]()
    await site.must("alice", "apply", "-f", "-", given=a_job("busy"))

    async def edit(user: str) -> None:
        for _ in range(EDITS // len(PEOPLE)):
            # An edit with the present number changes nothing, and has the version of the other user's write.
            size, path = chance.randint(1, 2), "{.metadata.resourceVersion} {.spec.etReplicaSpecs.worker.replicas}"
            patch = f'{{"spec":{{"etReplicaSpecs":{{"worker":{{"replicas":{size}}}}}}}}}'
            words = ("patch", "trainingjob/busy", "-n", "team-a", "--type=merge", "-p", patch, "-o", f"jsonpath={path}")
            ended = await site.kubectl(user, *words)
            assert ended.code == 0, ended.complaint
            version = int(ended.out.split()[0])
            # Of two with one answer neither is known to have written it.
            wrote[version] = "" if version in wrote and wrote[version] != user else user

    await asyncio.gather(*map(edit, PEOPLE))
    await asyncio.sleep(5)
    lines = (await site.muster("history", "busy", "--json")).splitlines()
    events = [msgspec.json.decode(line) for line in lines]
    told = [event["body"] for event in events if event["subject"].endswith("audit.ChangeAttributed")]
    named = {each["write"]: each["user"].rsplit(":", 1)[1] for each in told if each["write"]}
    assert len(named) > 5
    assert named == {write: wrote[write] or user for write, user in named.items()}
    assert len(named) == len([each for each in told if each["write"]])
