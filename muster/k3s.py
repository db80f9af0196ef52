"""K3s in a container, for the demo and the end-to-end tests on a machine with a Docker engine.

The images of its pods are built from their folders' Containerfiles before the node starts.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from devcluster.cluster import ADMIN
from muster.borrowed import BorrowedCluster
from shared.errors import Refused
from shared.private import write_private

K3S = "rancher/k3s:v1.36.1-k3s1"
IMPORTED = "/var/lib/rancher/k3s/agent/images"
"""The folder from which K3s imports image archives when it starts."""


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
