"""What the status service does in the cluster, as data."""

from math import inf
from typing import ClassVar

import msgspec

from shared.job.naming import Uid
from shared.job.steps import Effect


class PatchStatus(Effect, frozen=True):
    """The whole status of one object; the head of the history is added when it is written."""

    settle: ClassVar[float] = inf
    """Nobody but us writes it, and the next document replaces it."""
    rests: ClassVar[bool] = True

    api_version: str
    kind: str
    name: str
    uid: Uid
    document: bytes
    """Canonical JSON; null marks fields that shall be absent."""
    repair: int = 0
    """Not 0: a forged head, noticed at that sequence, has to be removed first."""
    over: bool = False
    """The job or the request has ended: as a rule this document is its last."""

    @property
    def target(self) -> str:
        return f"status/{self.uid}"

    def urgent(self, last: Effect) -> bool:
        """Another phase is what people and scripts wait for; counts can wait a moment."""
        return isinstance(last, PatchStatus) and _phase(last) != _phase(self)


class Announce(Effect, frozen=True):
    """One Kubernetes Event, named after the log event that it tells of: a repetition finds it there."""

    settle: ClassVar[float] = inf

    api_version: str
    kind: str
    name: str
    uid: Uid
    sequence: int
    time: str
    reason: str
    message: str
    warning: bool = False

    @property
    def target(self) -> str:
        return f"event/{self.uid}/{self.sequence}/{self.reason}"


class _Document(msgspec.Struct):
    phase: str = ""


def _phase(patch: PatchStatus) -> str:
    return msgspec.json.decode(patch.document, type=_Document).phase
