"""The real control plane and a real node beside it, with the face of the other development clusters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from devcluster.controlplane import ControlPlane
from devcluster.controlplane.programs import More
from devcluster.realnode import places
from devcluster.realnode.node import USER, RealNode


class RealCluster(ControlPlane):
    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        *,
        audit: Path | None = None,
        more: More | None = None,
        accounts: bool = False,
    ) -> None:
        super().__init__(
            data, [*users, USER], nodes=0, audit=audit, more=more, accounts=accounts, services=places.SERVICES
        )
        self.real_node = RealNode(self, self.data / "node", images)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self.real_node.__aenter__()
        except BaseException:
            await self._leave()
            raise
        return self

    async def _leave(self) -> None:
        # The node ends its pods while there is somebody to tell.
        await self.real_node.__aexit__(None, None, None)
        await super()._leave()
