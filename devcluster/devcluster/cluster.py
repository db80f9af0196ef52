"""A cluster as an async context: users with kubeconfigs, one API server, and node agents as child processes.

`Devcluster` is the embedded one, with our API server:

    async with Devcluster(folder, users=["watcher"], images={"muster/train": Path(".")}) as cluster:
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig("watcher"))

`controlplane.py` and `realnode/` have the same interface, with the real programs.
"""

import asyncio
import csv
import io
import os
import random
import secrets
import socket
import ssl
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import aiohttp

from devcluster.child import Child
from devcluster.client import AbruptResponse
from devcluster.kubeconfig import write_kubeconfig, write_private

ADMIN = "admin"
NODE_USER = "system:node:"
"""The prefix of a kubelet's user name, by which the Node authorizer recognizes kubelets."""

NOT_READY = "node.kubernetes.io/not-ready"
"""The taint that the control plane keeps on a node until it has been Ready."""

SERVICES_NAMESPACE = "muster"
"""The namespace of the service accounts of Muster's services."""

GATEWAY = "10.88.0.1"
"""The address of the machine in the network of the pods."""

START_TIMEOUT = 60.0
"""Seconds until an API server serves, and then until all nodes are Ready: each takes two on an idle machine."""


SAME_CODE = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""With this environment a child process finds the modules of this one, installed or not."""


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


class DevelopmentCluster(ABC):
    """A cluster as an async context: entered, it serves and all nodes are Ready; left, all its processes are gone.

    Enter it from a thread that lives as long as the cluster: the kernel ends the children with that thread.
    """

    apiserver: ApiServer

    lasting = False
    """False: the cluster ends with the context."""

    outlet: int | None = None
    """A port of this machine that pods reach at `GATEWAY`, for a server of the caller's; only of the embedded cluster,
    as pods of the others have no account by which that server could know them."""

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
    def node(self) -> Child:
        """The first node."""
        return self.nodes[0]

    def kubeconfig(self, user: str) -> Path:
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

    def _node(self, name: str, images: Mapping[str, Path]) -> Child:
        """One node agent.  After a restart it registers again, and finds its pods by its folder."""
        arguments, environment = self._node_options()
        command = [sys.executable, "-m", "devcluster.node", *arguments, "--name", name]
        command += ["--kubeconfig", str(self.kubeconfig(NODE_USER + name)), "--data", str(self.data / name)]
        command += ["--outlet", str(self.outlet)] if self.outlet is not None else []
        for image, folder in images.items():
            command += ["--image", f"{image}={folder.absolute()}"]
        return Child(name, command, self.data / f"{name}.log", {**SAME_CODE, **environment})

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


HOST = "127.0.0.1"

_claims: deque[int] = deque()
"""Sockets that hold the ports which this process gave out, as the servers on them may not have started yet.

Each socket is bound to the port's number for datagrams, which no server here uses: so no other process gets it either.
"""
MOST_CLAIMS = 256
"""The older ones are given up: their servers listen, or are over."""

PORTS_VARIABLE = "MUSTER_PORTS"
"""The environment variable with the range of ports for a process and its children, such as `10000-20000`."""
ALL_PORTS = "10000-30000"
"""The default range, below the ports that a kernel gives to clients.

A client could take such a port while its server restarts, even one that connects to that server.
"""
PORT_TRIES = 1000


def free_port() -> int:
    """A port on which nothing listens, and which no other process gets from here for now.

    Raises `OSError` after `PORT_TRIES` ports that are taken.
    """
    first, last = map(int, os.environ.get(PORTS_VARIABLE, ALL_PORTS).split("-"))
    for _ in range(PORT_TRIES):
        # Random, as a range may be full at its start; it guards no secret.
        port = random.randint(first, last)  # noqa: S311
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind((HOST, port))
            with socket.socket() as probe:
                probe.bind((HOST, port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim.detach())
        if len(_claims) > MOST_CLAIMS:
            os.close(_claims.popleft())
        return port
    raise OSError(f"of {PORT_TRIES} ports between {first} and {last} none is free")


NODE_TOKEN_VARIABLE = "DEVCLUSTER_NODE_TOKEN"  # noqa: S105 - the name of a variable
"""The variable with the token of the kubelet API for both sides; other users could read it on a command line."""


class ApiServerProcess(ApiServer):
    """The API server.  After a restart it serves the same data on the same port."""

    def __init__(self, data: Path, environment: Mapping[str, str], *options: str) -> None:
        self.data = data / "apiserver"
        port = free_port()
        self.url = f"https://{HOST}:{port}"
        module = [sys.executable, "-m", "devcluster.apiserver", "--data", str(self.data), "--port", str(port)]
        super().__init__("the API server", [*module, *options], data / "apiserver.log", {**SAME_CODE, **environment})

    async def run(self) -> None:
        self.start()
        await self.line("ready ", START_TIMEOUT)


class Devcluster(DevelopmentCluster):
    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        nodes: int = 1,
        *,
        audit: Path | None = None,
    ) -> None:
        """`audit` is a file with one line for each call."""
        self._environment = {NODE_TOKEN_VARIABLE: secrets.token_urlsafe(24)}
        self.outlet = free_port()
        super().__init__(data, users, images or {}, nodes)
        options = ["--tokens", str(self.tokens)]
        options += ["--audit", str(audit.absolute())] if audit else []
        self.apiserver: ApiServerProcess = ApiServerProcess(self.data, self._environment, *options)

    async def _start(self) -> None:
        await self.apiserver.run()

    async def _stop(self) -> None:
        await self.apiserver.stop()

    def _node_options(self) -> tuple[Sequence[str], Mapping[str, str]]:
        return (), self._environment
