"""The control plane as one async context."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.certificates import Credentials, server_context
from devcluster.child import Child
from devcluster.cluster import ADMIN, DevelopmentCluster
from devcluster.controlplane.programs import (
    SERVICES_RANGE,
    Etcd,
    KubeApiServer,
    More,
    controller_manager,
    scheduler,
)

SCHEDULER_USER = "system:kube-scheduler"


class ControlPlane(DevelopmentCluster):
    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        nodes: int = 1,
        *,
        audit: Path | None = None,
        more: More | None = None,
        accounts: bool = False,
        services: str = SERVICES_RANGE,
    ) -> None:
        """`audit` is a file for one line per call; `more` are further arguments of the programs.
        `services` is the network of the Services' addresses; its first one is the API server's own.

        With `accounts` pods get the token of their service account, as everywhere else; no pod can then be made in a
        new namespace until its default account exists, and most tests are about something else.  The API server then
        also reaches the pods of one node of ours, as for `pods/proxy`.

        Entering raises `MissingProgram` where a program is neither found nor built.
        """
        self._credentials = Credentials(data.absolute())
        # Through it the pods of one agent are reached, whose network is its own; those of a real kubelet need none.
        self.tunnel = data.absolute() / "tunnel" if accounts and nodes == 1 else None
        super().__init__(data, [*users, SCHEDULER_USER], images or {}, nodes)
        given = more or {}
        log = audit.absolute() if audit else None
        self.address = str(next(ipaddress.ip_network(services).hosts()))
        """What pods are told of the API server; somebody has to bring them from there to it."""
        self.etcd = Etcd(self.data, given)
        self.apiserver: KubeApiServer = KubeApiServer(
            self.data,
            self.etcd,
            self._credentials,
            self.tokens,
            log,
            given,
            accounts=accounts,
            services=services,
            tunnel=self.tunnel,
        )
        # The administrator's: its controllers have an account each in a cluster that keeps them apart.
        self.controllers = controller_manager(
            self.data, self.kubeconfig(ADMIN), self._credentials, given, self.authority if accounts else None
        )
        self.scheduler = scheduler(self.data, self.kubeconfig(SCHEDULER_USER), given)
        self.apiserver.followers = (self.controllers, self.scheduler)

    @property
    def programs(self) -> Sequence[Child]:
        return [self.etcd, self.apiserver, self.controllers, self.scheduler, *self.nodes]

    async def _start(self) -> None:
        self._credentials.make()
        self.apiserver.data.mkdir(exist_ok=True)
        # Makes the files; the server that uses them is another program.
        server_context(self.apiserver.data, self.address)
        await self.etcd.run()
        await self.apiserver.run()
        self._write_kubeconfigs()
        await asyncio.gather(self.controllers.run(), self.scheduler.run())

    async def _stop(self) -> None:
        # etcd last: the others do not end in time while their store is away.
        await asyncio.gather(self.controllers.stop(), self.scheduler.stop())
        await self.apiserver.stop()
        await self.etcd.stop()

    def _node_options(self) -> tuple[Sequence[str], Mapping[str, str]]:
        tunnel = ["--tunnel", str(self.tunnel)] if self.tunnel else []
        return ["--client-ca", str(self._credentials.kubelet_client), *tunnel], {}
