"""The base of every development cluster: users with kubeconfigs, one API server, and node agents as child processes."""

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
from typing import Self

import aiohttp

from devcluster.child import Child
from devcluster.kubeconfig import write_kubeconfig
from shared.cluster.connections import AbruptResponse
from shared.private import write_private

ADMIN = "admin"
NODE_USER = "system:node:"
"""The prefix of a kubelet's user name, by which the Node authorizer recognizes kubelets."""

NOT_READY = "node.kubernetes.io/not-ready"
"""The taint that the control plane keeps on a node until it has been Ready."""

SERVICES_NAMESPACE = "muster"
"""The namespace of the service accounts of Muster's services."""

START_TIMEOUT = 60.0
"""Seconds until an API server serves, and then until all nodes are Ready: each takes two on an idle machine."""


class ServerProcess(Child, ABC):
    """A server that keeps its port and its data over restarts; a line of its log or an answer shows that it serves."""

    @abstractmethod
    async def run(self) -> None:
        """Start the server; it serves when this returns."""

    async def restart(self) -> None:
        """Kill the server and start it again; it serves when this returns."""
        self.kill()
        await self.run()


class ApiServer(ServerProcess):
    """An API server, ours or the real one."""

    url: str
    data: Path
    """The folder of its certificates: clients trust `ca.crt`."""


class NodeProcess(Child):
    """One node agent.  After a restart it registers again, and finds its pods by its folder."""


class DevelopmentCluster(ABC):
    """A cluster as an async context: entered, it serves and all nodes are Ready; left, all its processes are gone.

    Enter it from a thread that lives as long as the cluster: the kernel ends the children with that thread.
    """

    apiserver: ApiServer

    lasting = False
    """False: the cluster ends with the context."""

    def __init__(self, data: Path, users: Sequence[str], images: Mapping[str, Path], nodes: int) -> None:
        """Each of `users`, and `admin`, gets a token and a kubeconfig: as the service account of that name, or as the
        user itself if the name begins with `system:`.

        `images` maps image names to the folders with their code; without nodes, pods stay Pending.
        """
        self.data = data.absolute()
        self.nodes = [self._node(f"node-{number}", images) for number in range(nodes)]
        kubelets = [NODE_USER + node.name for node in self.nodes]
        self.users = [ADMIN, *kubelets, *(user for user in users if user != ADMIN)]
        self._tokens = {user: secrets.token_urlsafe(24) for user in self.users}

    @property
    def url(self) -> str:
        """The URL of the API server while it runs."""
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
        """Start all processes but the nodes; the API server serves when this returns."""

    @abstractmethod
    async def _stop(self) -> None:
        """End all processes but the nodes."""

    @abstractmethod
    def _node_options(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """The arguments and the environment with which the node agents accept the API server's requests."""

    @property
    def node(self) -> NodeProcess:
        """The first node."""
        return self.nodes[0]

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of `user`."""
        return self.data / f"kubeconfig-{user.replace(':', '-')}"

    @property
    def tokens(self) -> Path:
        """The file with the API server's users, written before it starts."""
        return self.data / "tokens.csv"

    async def admit(self, users: Sequence[str]) -> None:
        """Let users in; here all of them have tokens from the start."""
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

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        # The nodes stop first: they end their pods, and write that to the API server.
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
        """An HTTP client of the API server, as `user`."""
        return aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {self._tokens[user]}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(self.authority))),
            response_class=AbruptResponse,
        )


def identity(user: str) -> tuple[str, str, str]:
    """The name, uid and groups of `user` at an API server."""
    if user == ADMIN:
        return user, user, "system:masters"
    if user.startswith(NODE_USER):
        return user, user, "system:nodes"
    if user.startswith("system:"):
        return user, user, ""
    account = f"system:serviceaccount:{SERVICES_NAMESPACE}:{user}"
    return account, account, f"system:serviceaccounts,system:serviceaccounts:{SERVICES_NAMESPACE}"


async def is_ready(session: aiohttp.ClientSession, node: str) -> bool:
    """True if the node is Ready and without the taint of a node that is not."""
    async with session.get(f"/api/v1/nodes/{node}") as response:
        found = await response.json() if response.status == 200 else {}
    conditions = found.get("status", {}).get("conditions", ())
    tainted = any(taint["key"] == NOT_READY for taint in found.get("spec", {}).get("taints", ()))
    return not tainted and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
