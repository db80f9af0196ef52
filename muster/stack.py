"""A whole installation on one machine: the NATS server, a cluster, and the four services as processes.

For the demo and the end-to-end tests.  The caller chooses the cluster; an existing one is left as it was found.
Programs that ended are started again, as a kubelet does, so that a person can kill any of them and watch.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from devcluster.certificates import make_server
from devcluster.child import Child, ChildError
from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from devcluster.cluster import GATEWAY, Devcluster
from muster import crds, permissions, policies
from muster.definitions import until_served
from shared.backoff import Backoff
from shared.cluster import Resource
from shared.cluster.kinds import DEFINITIONS as CRDS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom
from shared.cluster.scope import EVERY_NAMESPACE, SELECTOR
from shared.errors import Refused, Trouble
from shared.eventlog.account import ADMIN, READER
from shared.eventlog.server import CopiesServer, NatsServer
from shared.eventlog.setup import set_up
from shared.installation.permissions import Powers
from shared.installation.plugins import kinds
from shared.process.serving import meanwhile

LOOK_SECONDS = 0.5
"""Seconds between two checks of a running program."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""The bounds of the pause after a restart: a program that fails at each start must not use up a core."""
SERVICES = permissions.SERVICE_ACCOUNTS
_PACKED = Path(__file__).parent / "digits"
DIGITS = _PACKED if _PACKED.exists() else Path(__file__).parents[1] / "examples" / "digits"
"""The example that the demo trains; a wheel has it beside this file."""
IMAGES = {"muster-digits": DIGITS}
_RBAC = "rbac.authorization.k8s.io"
APPLIED: Mapping[str, Resource[Custom]] = {
    "CustomResourceDefinition": CRDS,
    "Namespace": Resource("", "v1", "namespaces", "Namespace", Custom),
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount", Custom),
    "Role": Resource(_RBAC, "v1", "roles", "Role", Custom),
    "RoleBinding": Resource(_RBAC, "v1", "rolebindings", "RoleBinding", Custom),
    "ClusterRole": Resource(_RBAC, "v1", "clusterroles", "ClusterRole", Custom),
    "ClusterRoleBinding": Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Custom),
    policies.POLICY: policies.POLICIES,
    policies.BINDING: policies.BINDINGS,
}
"""The resources of an installation's objects, by kind."""


class Program(Protocol):
    """A process that can be restarted."""

    name: str
    log: Path

    @property
    def running(self) -> bool: ...

    async def restart(self) -> None:
        """End the process and start it again.  Raises `ChildError` or `Trouble` if it does not serve then."""


@asynccontextmanager
async def supervised(programs: Sequence[Program], say: Callable[[str], None]) -> AsyncIterator[None]:
    """While the context lasts, restart each program that ended, with a line about it."""
    async with meanwhile(*(_keep(program, say) for program in programs)):
        yield


async def _keep(program: Program, say: Callable[[str], None]) -> None:
    backoff = Backoff(
        first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS, clock=time.monotonic, random=random.random
    )
    while True:
        if program.running:
            await asyncio.sleep(LOOK_SECONDS)
            continue
        say(f"{program.name} ended; starting it again, its log is {program.log}")
        try:
            await program.restart()
        except (ChildError, Trouble) as error:
            say(f"{program.name} does not start: {error}")
        else:
            say(f"{program.name} runs again")
        await asyncio.sleep(backoff.next())


class Host(Protocol):
    """A cluster that a stack runs on: an async context."""

    lasting: bool
    """True if the cluster exists before and after the stack."""
    outlet: int | None
    """A port of this machine that pods reach; None if there is none."""

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of the administrator, or of a service's service account."""

    @property
    def programs(self) -> Sequence[Program]:
        """The processes of the cluster that this stack started."""

    async def admit(self, users: Sequence[str]) -> None:
        """Let the service accounts in, once they exist."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class Stack:
    """`async with Stack(folder) as stack`: entered, everything runs; left, nothing remains."""

    def __init__(
        self,
        data: Path,
        cluster: Callable[..., Host] = Devcluster,
        *,
        settings: Mapping[str, str] | None = None,
        audit: Path | None = None,
        alone: bool = False,
        reports: bool = False,
    ) -> None:
        """`cluster` makes the cluster from a folder, users, images and the file of an audit log.

        `settings` are environment variables for all services.  With `alone` they act in one namespace, without rights
        beyond it.  With `reports` programs say how far they are, in a cluster whose pods reach this machine.
        """
        self.data = data.absolute()
        self.nats = NatsServer(self.data / "nats")
        self.copies = CopiesServer(self.nats)
        self.cluster = cluster(self.data / "cluster", users=SERVICES, images=IMAGES, audit=audit)
        self._namespace = permissions.HOME if alone else ""
        self._settings = {"MUSTER_NAMESPACE": self._namespace, **(settings or {})}
        self._reports = reports
        self.services: dict[str, Child] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            # First, as it refuses a folder in use before anything else writes there.
            await self._stack.enter_async_context(self.nats)
            await self._stack.enter_async_context(self.copies)
            await self._stack.enter_async_context(self.cluster)
            if self._reports and (port := self.cluster.outlet) is not None:
                self._settings |= _reporting(self.data / "progress", port)
            await set_up(self.nats.url, user=ADMIN, password=self.nats.users[ADMIN])
            self.kube = await KubeCluster.connect(self.cluster.kubeconfig(CLUSTER_ADMIN))
            self._stack.push_async_callback(self.kube.close)
            await self._install()
            await self.cluster.admit(SERVICES)
            self._stack.push_async_callback(self.stop_services)
            await self._start_services()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start_services(self) -> None:
        for name in SERVICES:
            self._start_service(f"services.{name}", name, self.environment(name))

    def _start_service(self, module: str, called: str, environment: Mapping[str, str]) -> None:
        """Start a process of this module under the name `called`."""
        self.services[called] = Child(
            "the status service" if called == "status" else f"the {called}",
            [sys.executable, "-m", module],
            self.data / f"{called}.log",
            {**environment, **self._settings},
        )
        self.services[called].start()

    def environment(self, user: str) -> dict[str, str]:
        """The environment of a process that is `user` at the log and in the cluster; `reader` is a person."""
        at_cluster = user if user in SERVICES else CLUSTER_ADMIN
        return {
            "KUBECONFIG": str(self.cluster.kubeconfig(at_cluster)),
            "NATS_URL": self.nats.url,
            "NATS_USER": user,
            "NATS_PASSWORD": self.nats.users[user],
        }

    def reader(self) -> dict[str, str]:
        """The environment of a person who reads the log."""
        return self.environment(READER) | {SELECTOR: self._settings.get(SELECTOR, EVERY_NAMESPACE)}

    @property
    def programs(self) -> Sequence[Program]:
        """All processes of the stack."""
        return [self.nats, self.copies, *self.cluster.programs, *self.services.values()]

    async def stop_services(self) -> None:
        """End all four services; the next start does what they left undone."""
        await asyncio.gather(*(service.stop() for service in self.services.values()))

    async def logs(self, namespace: str, pod: str) -> AsyncIterator[str]:
        """A pod's log, line by line, until its container ends.  Raises `Trouble` as `KubeCluster.log` does."""
        async for line in self.kube.log(namespace, pod, "", follow=True):
            yield line.decode(errors="replace").partition(" ")[2]

    async def _install(self) -> None:
        """Install the definitions, the roles and the policies; in an existing cluster the stack's end removes them."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": permissions.HOME}}
        scope, powers = self._namespace, Powers.of(self._settings)
        roles = [
            manifest for name in SERVICES for manifest in permissions.manifests(name, scope, kinds(), powers=powers)
        ]
        definitions = crds.manifests(kinds())
        # The embedded cluster serves none.
        if await self.kube.serves(policies.POLICIES):
            roles += policies.manifests(
                policies.accounts(), permissions.HOME, scope=scope, kinds=kinds(), powers=powers
            )
        for manifest in [*definitions, namespace, *roles]:
            await self._apply(manifest)
        for definition in definitions:
            await until_served(self.kube, definition["metadata"]["name"])

    async def _apply(self, manifest: Mapping[str, Any]) -> None:
        resource, metadata = APPLIED[manifest["kind"]], manifest["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        try:
            made = await self.kube.create(resource, namespace, manifest)
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
            if self.cluster.lasting:
                raise Refused(
                    f"{resource.kind} {name} is in this cluster already: use the Muster that runs there, "
                    "or delete the objects of an earlier one",
                    reason="AlreadyInstalled",
                ) from refusal
            return
        if self.cluster.lasting:
            self._stack.push_async_callback(self.kube.delete, resource, namespace, name, uid=made.metadata.uid)


def _reporting(folder: Path, port: int) -> dict[str, str]:
    """The settings of the port for reports; its certificate is made."""
    folder.mkdir(parents=True, exist_ok=True)
    make_server(folder, (), [GATEWAY])
    return {
        "MUSTER_PROGRESS_URL": f"https://{GATEWAY}:{port}",
        "MUSTER_PROGRESS_PORT": str(port),
        "MUSTER_PROGRESS_CA": str(folder / "ca.crt"),
        "MUSTER_PROGRESS_CERT": str(folder / "server.crt"),
        "MUSTER_PROGRESS_KEY": str(folder / "server.key"),
    }


def scratch() -> Path:
    """A new folder for a stack, with a path short enough for socket names."""
    return Path(tempfile.mkdtemp(prefix="muster-", dir=os.environ.get("TMPDIR")))
