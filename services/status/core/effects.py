"""The status service's effects on the cluster, as data."""

from math import inf
from typing import ClassVar

import msgspec

from shared.job.naming import Uid
from shared.job.steps import Effect


class PatchStatus(Effect, frozen=True):
    """Write the whole status of one object; the shell adds the head of the history."""

    settle: ClassVar[float] = inf
    """Never repeated: only the status service writes it, and the next document replaces it."""
    rests: ClassVar[bool] = True

    api_version: str
    kind: str
    name: str
    uid: Uid
    document: bytes
    """Canonical JSON; null marks fields to remove."""
    repair: int = 0
    """The sequence at which a forged head was noticed, which is removed first; 0 if there is none."""
    over: bool = False
    """True if the job or the request has ended: this document usually is its last."""

    @property
    def target(self) -> str:
        return f"status/{self.uid}"

    def urgent(self, last: Effect) -> bool:
        """True if the phase changes: people and scripts wait for that, while counts can wait a moment."""
        return isinstance(last, PatchStatus) and _phase(last) != _phase(self)


class Announce(Effect, frozen=True):
    """Create a Kubernetes Event, named after its log event: a repetition finds that it exists."""

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
