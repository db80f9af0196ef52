"""Clusters that this stack does not make itself: the one that kubectl uses here, and K3s in a container.

An administrator's kubeconfig installs; the services get tokens of their service accounts, as in pods of their own.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from devcluster.cluster import ADMIN
from devcluster.kubeconfig import write_access
from muster.permissions import HOME
from muster.stack import Program
from shared.cluster.access import HOME_KUBECONFIG
from shared.cluster.kube import KubeCluster
from shared.cluster.kubeconfig import current_context
from shared.errors import Refused
from shared.private import write_private

TOKENS = f"/api/v1/namespaces/{HOME}/serviceaccounts/{{}}/token"
TOKEN_REQUEST = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    # A day.
    "spec": {"expirationSeconds": 24 * 3600},
}
K3S = "rancher/k3s:v1.36.1-k3s1"
IMPORTED = "/var/lib/rancher/k3s/agent/images"
"""The folder from which K3s imports image archives when it starts."""


class BorrowedCluster:
    lasting = True
    outlet: int | None = None

    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        *,
        audit: Path | None = None,
        kubeconfig: Path | None = None,
    ) -> None:
        """`kubeconfig` is the administrator's; by default it is kubectl's.

        Images and an audit log are not supported: the nodes and the API server are not of this stack.
        """
        self._data = data
        self._kubeconfig = kubeconfig or _usual_kubeconfig()
        self._users = users

    def kubeconfig(self, user: str) -> Path:
        return self._data / f"kubeconfig-{user}" if user in self._users else self._kubeconfig

    async def admit(self, users: Sequence[str]) -> None:
        """Write a kubeconfig with a token for each service account.  Raises `Trouble`."""
        context = current_context([str(self._kubeconfig)])
        kube = await KubeCluster.connect(self._kubeconfig)
        try:
            for user in users:
                path, what = TOKENS.format(user), f"ask for a token of the service account {HOME}/{user}"
                answer = await kube.ask(path, what=what, review=TOKEN_REQUEST)
                token = msgspec.json.decode(answer.body)["status"]["token"]
                write_access(self.kubeconfig(user), context.cluster, user=user, token=token)
        finally:
            await kube.close()

    @property
    def programs(self) -> Sequence[Program]:
        """None: this stack starts no process of the cluster."""
        return ()

    async def __aenter__(self) -> Self:
        self._data.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        """The cluster goes on."""


def _usual_kubeconfig() -> Path:
    named = os.environ.get("KUBECONFIG", "")
    if os.pathsep in named:
        raise Refused(
            "KUBECONFIG names several files: write one with `kubectl config view --flatten`, and name that",
            reason="BadKubeconfig",
        )
    path = Path(named or HOME_KUBECONFIG).expanduser().absolute()
    if not path.is_file():
        raise Refused(f"there is no kubeconfig at {path}: name one in KUBECONFIG", reason="NoCluster")
    return path


class K3sCluster(BorrowedCluster):
    lasting = False

    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        *,
        audit: Path | None = None,
    ) -> None:
        """`images` maps names to folders with a Containerfile.  It writes no audit log."""
        super().__init__(data, users, kubeconfig=data / f"kubeconfig-{ADMIN}")
        self._images = images or {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Raises `Refused` without a Docker engine."""
        archives = self._data / "images"
        archives.mkdir(parents=True, exist_ok=True)
        container = await asyncio.to_thread(self._start, archives)
        self._stack.push_async_callback(asyncio.to_thread, container.stop)
        write_private(self._kubeconfig, await asyncio.to_thread(container.config_yaml))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _start(self, archives: Path) -> Any:
        from testcontainers.community.k3s import K3SContainer

        engine = docker_engine()
        for name, folder in self._images.items():
            image, _ = engine.images.build(path=str(folder), dockerfile="Containerfile", tag=name)
            with (archives / f"{name.replace(':', '-')}.tar").open("wb") as archive:
                for chunk in image.save(named=True):
                    archive.write(chunk)
        return K3SContainer(K3S).with_volume_mapping(str(archives), IMPORTED, "ro").start()


def docker_engine() -> Any:
    """A client of the Docker engine.  Raises `Refused` with the missing part."""
    try:
        import docker
    except ImportError as error:
        raise Refused("K3s needs the package testcontainers: pip install testcontainers", reason="NoDocker") from error
    missing = "K3s needs a Docker engine, and none answers here: start it, or use `--cluster real`"
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if address.startswith("unix://") and not Path(address.removeprefix("unix://")).is_socket():
        # Without this check the library's attempt would leave a socket open.
        raise Refused(missing, reason="NoDocker")
    try:
        return docker.from_env()
    except docker.errors.DockerException as error:
        raise Refused(missing, reason="NoDocker") from error
