"""Keeps the anchor: compared with the log before this replica writes it for the first time, and never over another."""

import asyncio

import msgspec
import structlog

from shared.cluster import Cluster
from shared.cluster.kinds import LEASES
from shared.errors import Conflict, Refused, Transient
from shared.runtime.anchor import SEALS_SECONDS, Anchor, differs
from shared.runtime.run import Runtime

ANCHOR_SECONDS = 10.0
"""Seconds between two anchors of a log in which something happens."""
log = structlog.get_logger()


class Anchoring:
    """The anchor of one log, in a Lease that is there."""

    def __init__(self, cluster: Cluster, place: str, identity: str) -> None:
        """`place` is NAMESPACE/NAME; empty for the lines of this process alone."""
        self._cluster = cluster
        self._namespace, _, self._name = place.rpartition("/")
        self._identity = identity
        self._known: Anchor | None = None
        """To which this fold leads."""
        self._version = ""

    async def keep(self, runtime: Runtime) -> None:
        """Compare, and then write it as the log goes on, for ever."""
        told = ""
        while True:
            try:
                if runtime.acting:
                    await self.turn(runtime)
                    told = ""
                else:
                    # Another replica may write.
                    self._known, self._version = None, ""
            except Conflict:
                self._known, self._version = None, ""
            except (Transient, Refused) as trouble:
                if str(trouble) != told:
                    log.warning("no anchor", why=(told := str(trouble)))
            await asyncio.sleep(ANCHOR_SECONDS)

    async def turn(self, runtime: Runtime) -> None:
        """Write the anchor of now, if the one that is there is right.  Raises the cluster's and the log's errors."""
        if self._known is None and self._name and not await self._leads(runtime):
            return
        if (now := runtime.eventlog.now()) is None:
            return
        known = self._known
        if known is not None and known.sequence == runtime.histories.position and now - known.time < SEALS_SECONDS:
            return
        anchor = Anchor.of(self._identity, runtime.histories, now)
        log.info("anchor", **msgspec.structs.asdict(anchor))
        if self._name:
            await self._write(anchor)
        self._known = anchor

    async def _leads(self, runtime: Runtime) -> bool:
        """False if this log does not lead to the anchor that is there, until a person has removed that."""
        held = await self._cluster.get(LEASES, self._namespace, self._name)
        if held is None:
            raise Refused(f"there is no Lease {self._namespace}/{self._name}", reason="NotFound")
        found, self._version = Anchor.read(held.metadata.annotations or {}), held.metadata.resource_version
        fault = ""
        if found is not None:
            fault = await differs(runtime.eventlog, found, runtime.subjects) or ""
        if fault and fault != runtime.metrics.anchor:
            log.error("the log does not lead to its anchor", anchor=f"{self._namespace}/{self._name}", why=fault)
        runtime.metrics.anchor = fault
        if found is not None and fault and not found.fault:
            # A day later it could no longer be said.
            await self._write(msgspec.structs.replace(found, fault=fault))
        return not fault

    async def _write(self, anchor: Anchor) -> None:
        patch = {"metadata": {"resourceVersion": self._version, "annotations": anchor.annotations}}
        held = await self._cluster.patch(LEASES, self._namespace, self._name, patch)
        self._version = held.metadata.resource_version
