"""Whether the scope is ours, by the claims that `muster setup` left in the definitions, and whose release these are.

Only an installation for the whole cluster may read them; where that is withheld, or nobody claimed anything, it works.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

from shared.cluster import Cluster, Resource
from shared.cluster.kinds import DEFINITIONS
from shared.cluster.objects import Metadata, Object
from shared.cluster.scope import no_room, others
from shared.errors import Refused
from shared.release import MARK, is_older, this_release

_HEADS: Resource[Object] = Resource(
    DEFINITIONS.group, DEFINITIONS.version, DEFINITIONS.plural, DEFINITIONS.kind, Object
)
"""Without the schemas, which nobody here needs."""

log = structlog.get_logger()


class Scope:
    """The whole cluster, for one service and one log."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self._cluster = cluster
        self._identity = identity
        self._old: tuple[str, ...] = ()
        """Definitions of older releases that were told of."""

    async def must_be_ours(self, kinds: Iterable[Resource[Any]]) -> None:
        """Raise `Refused(reason="ScopeTaken")` where another installation has claimed what we would act on."""
        try:
            found = await asyncio.gather(*(self._of(kind) for kind in kinds))
        except Refused as refusal:
            if refusal.reason != "Forbidden":
                raise
            return
        there = [metadata for metadata in found if metadata is not None]
        for metadata in there:
            if claims := others(metadata.annotations, "", self._identity):
                raise Refused(f"{metadata.name}: {no_room(claims, self._identity)}", reason="ScopeTaken")
        self._tell_of(there)

    async def _of(self, kind: Resource[Any]) -> Metadata | None:
        definition = await self._cluster.get(_HEADS, "", f"{kind.plural}.{kind.group}")
        return definition.metadata if definition is not None else None

    def _tell_of(self, there: Iterable[Metadata]) -> None:
        marks = {metadata.name: (metadata.annotations or {}).get(MARK, "") for metadata in there}
        # Those that nobody marked are another operator's, or were applied by hand.
        old = tuple(name for name, mark in marks.items() if mark and is_older(mark, this_release()))
        if old and old != self._old:
            log.warning("definitions of an older release", definitions=old, remedy="run `muster setup`")
        self._old = old
