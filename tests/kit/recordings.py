"""Audit logs of real API servers that served end-to-end tests: each is held against the roles when its server ends.

So the tests of one module answer for what they asked, whichever process ran them, and also alone.
"""

from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from devcluster.controlplane import ControlPlane
from muster import permissions
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.installation.permissions import Need, Powers, needs
from tests.security.rights import Comparison, calls, compare, of_kinds, used

NOTHING = Comparison(refused=(), elsewhere=(), missing=frozenset(), in_vain=frozenset())


class RecordedPlane(ControlPlane):
    """What its audit log shows, if it has one, the roles allow."""

    def __init__(self, *given: Any, audit: Path | None = None, **more: Any) -> None:
        super().__init__(*given, audit=audit, **more)
        self._recording = audit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        if self._recording and kind is None:
            assert allowed(self._recording) == NOTHING


def needed(recording: Path, *, spared: Collection[Framework] = ()) -> Comparison:
    """How the rights of all services compare with a recording of all that they do, but for kinds that are spared."""
    return _compared(recording, spared, whole=True)


def allowed(recording: Path) -> Comparison:
    """The same of a recording of a part: which of the rights that all services need were used, it cannot say.

    Those of who takes jobs over are needed by every single one who does.
    """
    return _compared(recording, (), whole=False)


def _compared(recording: Path, spared: Collection[Framework], *, whole: bool) -> Comparison:
    made = [*calls(recording.read_text().splitlines())]
    assert not [kind.name for kind in used(made) if kind in spared], "take it off the list"
    compared = [kind for kind in BUILT_IN if kind not in spared]
    # The watcher watches every kind that is served, used or not.
    made = [call for call in made if not of_kinds([call.need], spared)]
    accounts = permissions.SERVICE_ACCOUNTS
    wanted = [need for name in accounts for need in needs(name, kinds=compared)]
    # These are in no role by default.
    more: list[Need] = []
    for added in (Powers(taking_over=True), Powers(kueue=True), Powers(gangs=True)):
        also = [need for name in accounts for need in needs(name, kinds=compared, powers=added) if need not in wanted]
        more += also if any(call.need in also for call in made) else []
    found = compare(made, [*wanted, *more])
    return found if whole else msgspec.structs.replace(found, in_vain=found.in_vain.intersection(more))
