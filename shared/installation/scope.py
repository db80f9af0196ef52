"""Checks that no other installation has claimed the scope, and that the definitions are of this release.

Only a service for the whole cluster checks.  It works without the right to read definitions, and without claims.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

from shared.cluster import Cluster, Resource
from shared.cluster.kinds import DEFINITIONS
from shared.cluster.objects import Metadata
from shared.cluster.scope import conflicting, why_excluded
from shared.errors import Refused
from shared.release import MARK, is_older, this_release

log = structlog.get_logger()


class Scope:
    """The scope of the whole cluster, for one service and one log."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self._cluster = cluster
        self._identity = identity
        self._old: tuple[str, ...] = ()
        """The definitions of older releases that were logged."""

    async def must_be_ours(self, kinds: Iterable[Resource[Any]]) -> None:
        """Raise `Refused(reason="ScopeTaken")` if another installation has claimed a scope in these kinds."""
        try:
            found = await asyncio.gather(*(self._of(kind) for kind in kinds))
        except Refused as refusal:
            if refusal.reason != "Forbidden":
                raise
            return
        there = [metadata for metadata in found if metadata is not None]
        for metadata in there:
            if claims := conflicting(metadata.annotations, "", self._identity):
                raise Refused(f"{metadata.name}: {why_excluded(claims, self._identity)}", reason="ScopeTaken")
        self._warn_of_older(there)

    async def _of(self, kind: Resource[Any]) -> Metadata | None:
        definition = await self._cluster.get(DEFINITIONS.by_metadata, "", f"{kind.plural}.{kind.group}")
        return definition.metadata if definition is not None else None

    def _warn_of_older(self, there: Iterable[Metadata]) -> None:
        marks = {metadata.name: (metadata.annotations or {}).get(MARK, "") for metadata in there}
        # A definition without a mark is another operator's, or was applied by hand.
        old = tuple(name for name, mark in marks.items() if mark and is_older(mark, this_release()))
        if old and old != self._old:
            log.warning("definitions of an older release", definitions=old, remedy="run `muster setup`")
        self._old = old
