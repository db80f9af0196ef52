"""The embedded cluster as one async context: our API server and its nodes as child processes.

async with Devcluster(folder, users=["watcher"], images={"muster/train": Path(".")}) as cluster:
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig("watcher"))
"""

import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.cluster import ADMIN, START_TIMEOUT, ApiServer, DevelopmentCluster
from shared.ports import HOST, free_port

__all__ = ["ADMIN", "ApiServerProcess", "Devcluster"]

NODE_TOKEN_VARIABLE = "DEVCLUSTER_NODE_TOKEN"  # noqa: S105 - the name of a variable
"""The variable with the token of the kubelet API for both sides; other users could read it on a command line."""


class ApiServerProcess(ApiServer):
    """The API server.  After a restart it serves the same data on the same port."""

    def __init__(self, data: Path, environment: Mapping[str, str], *options: str) -> None:
        self.data = data / "apiserver"
        port = free_port()
        self.url = f"https://{HOST}:{port}"
        module = [sys.executable, "-m", "devcluster.apiserver", "--data", str(self.data), "--port", str(port)]
        super().__init__("the API server", [*module, *options], data / "apiserver.log", environment)

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
