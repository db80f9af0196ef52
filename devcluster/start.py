"""The whole cluster as one async context: the API server and its nodes as child processes, ready when it is entered.

    async with Devcluster(folder, users=["watcher"], images={"muster/train": Path(".")}) as cluster:
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig("watcher"))

Enter it from the thread that lives as long as the cluster: the kernel ends the children with that thread.
"""

import asyncio
import secrets
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from devcluster.child import Child
from devcluster.kubeconfig import write_kubeconfig

ADMIN, NODE = "admin", "node"
GROUPS = {ADMIN: "system:masters", NODE: "system:nodes"}

START_TIMEOUT = 15.0
"""Seconds for the API server to serve, and again for all nodes to be Ready; on a busy machine this takes a while."""

NODE_TOKEN_VARIABLE = "DEVCLUSTER_NODE_TOKEN"  # noqa: S105 - the name of a variable
"""How both sides learn the token of the kubelet API; command lines can be read by other users."""


class ApiServerProcess(Child):
    """The API server.  Started again it serves the same data on the same port."""

    def __init__(self, data: Path, environment: Mapping[str, str], *options: str) -> None:
        self.data = data / "apiserver"
        self.url = ""
        module = [sys.executable, "-m", "devcluster.apiserver", "--data", str(self.data)]
        super().__init__("the API server", [*module, *options], data / "apiserver.log", environment)

    async def run(self) -> None:
        """Start it; serving when this returns."""
        self.start()
        url = await self.line("ready ", START_TIMEOUT)
        if not self.url:
            self.url = url
            self.command += ["--port", url.rpartition(":")[2]]

    async def restart(self) -> None:
        """SIGKILL and start again; serving when this returns."""
        self.kill()
        await self.run()


class NodeProcess(Child):
    """One node agent.  Restarted it finds its pods again by its folder."""

    async def restart(self) -> None:
        """SIGKILL and start again; it registers on its own."""
        self.kill()
        self.start()


class Devcluster:
    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        nodes: int = 1,
        *,
        audit: Path | None = None,
    ) -> None:
        """`users` get a token and a kubeconfig each, besides `admin` and `node`.

        `images` maps image names to the folders that are their root or code; without nodes, pods stay Pending.
        """
        self.data = data.absolute()
        self.users = [ADMIN, NODE, *(user for user in users if user not in (ADMIN, NODE))]
        self._tokens = {user: secrets.token_urlsafe(24) for user in self.users}
        self._environment = {NODE_TOKEN_VARIABLE: secrets.token_urlsafe(24)}
        options = ["--tokens", str(self._tokens_file)]
        options += ["--audit", str(audit.absolute())] if audit else []
        self.apiserver = ApiServerProcess(self.data, self._environment, *options)
        self.nodes = [self._node(f"node-{number}", images or {}) for number in range(nodes)]

    @property
    def node(self) -> NodeProcess:
        """The first node."""
        return self.nodes[0]

    @property
    def _tokens_file(self) -> Path:
        return self.data / "tokens.csv"

    def _node(self, name: str, images: Mapping[str, Path]) -> NodeProcess:
        command = [sys.executable, "-m", "devcluster.node", "--kubeconfig", str(self.kubeconfig(NODE))]
        command += ["--data", str(self.data / name), "--name", name]
        for image, folder in images.items():
            command += ["--image", f"{image}={folder.absolute()}"]
        return NodeProcess(name, command, self.data / f"{name}.log", self._environment)

    def kubeconfig(self, user: str) -> Path:
        assert user in self.users, f"{user} is none of {', '.join(self.users)}"
        return self.data / f"kubeconfig-{user}"

    async def __aenter__(self) -> Self:
        self.data.mkdir(parents=True, exist_ok=True)
        self._write_tokens()
        try:
            await self.apiserver.run()
            self._write_kubeconfigs()
            for node in self.nodes:
                node.start()
            await self._wait_for_nodes()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        # Nodes first: they end their pods, and tell the API server so.
        await asyncio.gather(*(node.stop() for node in self.nodes))
        await self.apiserver.stop()

    def _write_tokens(self) -> None:
        self._tokens_file.touch(mode=0o600)
        lines = [f'{self._tokens[user]},{user},{user},"{GROUPS.get(user, "devcluster:users")}"' for user in self.users]
        self._tokens_file.write_text("\n".join(lines) + "\n")

    def _write_kubeconfigs(self) -> None:
        authority = (self.apiserver.data / "ca.crt").read_bytes()
        for user in self.users:
            write_kubeconfig(
                self.kubeconfig(user),
                server=self.apiserver.url,
                authority=authority,
                user=user,
                token=self._tokens[user],
            )

    async def _wait_for_nodes(self) -> None:
        if not self.nodes:
            return
        context = ssl.create_default_context(cafile=str(self.apiserver.data / "ca.crt"))
        headers = {"Authorization": f"Bearer {self._tokens[ADMIN]}"}
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT
        async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as session:
            for node in self.nodes:
                url = f"{self.apiserver.url}/api/v1/nodes/{node.name}"
                while not await _is_ready(session, url):
                    if not node.running or asyncio.get_running_loop().time() > deadline:
                        raise node.error("did not become Ready")
                    await asyncio.sleep(0.05)


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(url) as response:
        if response.status != 200:
            return False
        conditions = ((await response.json()).get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
