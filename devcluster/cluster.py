"""What every development cluster has: users with kubeconfigs, one API server, and node agents as child processes."""

import asyncio
import csv
import io
import secrets
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from devcluster.child import Child
from devcluster.kubeconfig import write_kubeconfig
from shared.cluster.connections import AbruptResponse
from shared.private import write_private

ADMIN = "admin"
NODE_USER = "system:node:"
"""A kubelet's user name begins so; the Node authorizer knows kubelets by it."""

NOT_READY = "node.kubernetes.io/not-ready"
"""The taint of a node that was not Ready a moment ago."""

SERVICES_NAMESPACE = "muster"
"""Where the service accounts of Muster's services are."""

START_TIMEOUT = 60.0
"""Seconds for an API server to serve, and again for all nodes to be Ready: two each on a quiet machine."""


class ServerProcess(Child, ABC):
    """A server that keeps its port and its data, and says on a line of its own or by an answer that it serves."""

    @abstractmethod
    async def run(self) -> None:
        """Start it; serving when this returns."""

    async def restart(self) -> None:
        """SIGKILL and start again; serving when this returns."""
        self.kill()
        await self.run()


class ApiServer(ServerProcess):
    """An API server, ours or the real one."""

    url: str
    data: Path
    """The folder of its certificates: clients trust `ca.crt`."""


class NodeProcess(Child):
    """One node agent.  Restarted it registers anew, and finds its pods again by its folder."""


class DevelopmentCluster(ABC):
    """`async with` it: serving and with all nodes Ready when entered, gone when left.

    Enter it from the thread that lives as long as the cluster: the kernel ends the children with that thread.
    """

    apiserver: ApiServer

    lasting = False
    """Nothing of it is left afterwards."""

    def __init__(self, data: Path, users: Sequence[str], images: Mapping[str, Path], nodes: int) -> None:
        """`users` get a token and a kubeconfig each, besides `admin`: a service account's of that name, or the
        user's own where the name begins with `system:`.

        `images` maps image names to the folders that are their root or code; without nodes, pods stay Pending.
        """
        self.data = data.absolute()
        self.nodes = [self._node(f"node-{number}", images) for number in range(nodes)]
        kubelets = [NODE_USER + node.name for node in self.nodes]
        self.users = [ADMIN, *kubelets, *(user for user in users if user != ADMIN)]
        self._tokens = {user: secrets.token_urlsafe(24) for user in self.users}

    @property
    def url(self) -> str:
        """Where the API server is, while it runs."""
        return self.apiserver.url

    @property
    def authority(self) -> Path:
        """The certificate that clients trust, once the API server runs."""
        return self.apiserver.data / "ca.crt"

    @property
    def programs(self) -> Sequence[Child]:
        """Every process of the cluster, in the order in which they start."""
        return [self.apiserver, *self.nodes]

    @abstractmethod
    async def _start(self) -> None:
        """Start everything but the nodes; serving when this returns."""

    @abstractmethod
    async def _stop(self) -> None:
        """End everything but the nodes."""

    @abstractmethod
    def _node_options(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """Arguments and environment that let the API server in at the node agents."""

    @property
    def node(self) -> NodeProcess:
        """The first node."""
        return self.nodes[0]

    def kubeconfig(self, user: str) -> Path:
        """The file that makes a client `user`."""
        return self.data / f"kubeconfig-{user.replace(':', '-')}"

    @property
    def tokens(self) -> Path:
        """The file that tells the API server its users, written before it starts."""
        return self.data / "tokens.csv"

    async def admit(self, users: Sequence[str]) -> None:
        """Nothing to do: the tokens of all users are known from the start."""
        assert set(users) <= set(self.users), f"{users} are not among {self.users}"

    async def __aenter__(self) -> Self:
        self.data.mkdir(parents=True, exist_ok=True)
        self._write_tokens()
        try:
            await self._start()
            self._write_kubeconfigs()
            for node in self.nodes:
                node.start()
            await self._wait_for_nodes()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        # Nodes first: they end their pods, and tell the API server so.
        await asyncio.gather(*(node.stop() for node in self.nodes))
        await self._stop()

    def _node(self, name: str, images: Mapping[str, Path]) -> NodeProcess:
        arguments, environment = self._node_options()
        command = [sys.executable, "-m", "devcluster.node", *arguments, "--name", name]
        command += ["--kubeconfig", str(self.kubeconfig(NODE_USER + name)), "--data", str(self.data / name)]
        for image, folder in images.items():
            command += ["--image", f"{image}={folder.absolute()}"]
        return NodeProcess(name, command, self.data / f"{name}.log", environment)

    def _write_tokens(self) -> None:
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        for user, token in self._tokens.items():
            lines.writerow([token, *identity(user)])
        write_private(self.tokens, text.getvalue())

    def _write_kubeconfigs(self) -> None:
        authority = self.authority.read_bytes()
        for user in self.users:
            write_kubeconfig(
                self.kubeconfig(user), server=self.url, authority=authority, user=user, token=self._tokens[user]
            )

    async def _wait_for_nodes(self) -> None:
        async with self.session() as session:
            for node in self.nodes:
                await node.until(partial(is_ready, session, node.name), START_TIMEOUT)

    def session(self, user: str = ADMIN) -> aiohttp.ClientSession:
        """A bare client of the API server, as `user`."""
        return aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {self._tokens[user]}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(self.authority))),
            response_class=AbruptResponse,
        )


def identity(user: str) -> tuple[str, str, str]:
    """Name, uid and groups by which an API server knows `user`."""
    if user == ADMIN:
        return user, user, "system:masters"
    if user.startswith(NODE_USER):
        return user, user, "system:nodes"
    if user.startswith("system:"):
        return user, user, ""
    account = f"system:serviceaccount:{SERVICES_NAMESPACE}:{user}"
    return account, account, f"system:serviceaccounts,system:serviceaccounts:{SERVICES_NAMESPACE}"


async def is_ready(session: aiohttp.ClientSession, node: str) -> bool:
    """Whether pods may come to the node."""
    async with session.get(f"/api/v1/nodes/{node}") as response:
        found = await response.json() if response.status == 200 else {}
    conditions = found.get("status", {}).get("conditions", ())
    tainted = any(taint["key"] == NOT_READY for taint in found.get("spec", {}).get("taints", ()))
    return not tainted and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
