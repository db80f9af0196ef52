"""The questions that the watcher asks before it records some facts, and the answers.  Pure.

They are about deletions, lost histories and pods that do not start.
`observe` lists the questions of a job in every turn while they matter.  The shell asks each question once, what it is
to `Hear` now and then, and drops an answer when its question is no longer listed.
"""

from collections.abc import Collection, Mapping

import msgspec

from shared.job.chain import Head
from shared.job.naming import Uid

replace = msgspec.structs.replace


class Confirm(msgspec.Struct, frozen=True):
    """Does the job exist?  Only its own GET proves that it is gone, or that pods were taken from it."""

    epoch: int
    """The cache's epoch; an answer from another epoch does not count."""
    taken: tuple[Uid, ...]
    """Pods that vanished or ended in their deletion, and with which the attempt ends."""
    missing: bool = False
    """The list of the job's kind lacks it; an answer from before does not count."""


class Presence(msgspec.Struct, frozen=True):
    """The answer of a job's GET."""

    there: bool
    """An object with the job's uid exists."""
    deleting: bool = False
    """It is being deleted, or its namespace is."""


class Named(msgspec.Struct, frozen=True):
    """A head and the id of its log."""

    log: str
    head: Head


class Compare(msgspec.Struct, frozen=True):
    """Does the log lead to the heads in the resource and in the checkpoint?"""

    shown: Named | None
    """The head in the resource, if it has one."""
    recall: bool
    """The checkpoint is compared too."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job's history in the log and in the checkpoint."""

    identity: str
    """The id of this log."""
    began: int
    """The log's last sequence before the watcher saw a head of this job."""
    end: int
    """The log's last sequence."""
    shown: Named | None = None
    kept: Named | None = None
    """The head in the checkpoint, if it was read."""
    hashes: Mapping[int, str]
    """The hash of the job's history after each sequence; empty if the job has no such event."""
    empty: bool = False
    """The log has no event of the job."""


class Hear(msgspec.Struct, frozen=True):
    """What do Kubernetes Events say about a pod of which no container begins?"""

    uid: Uid


class Heard(msgspec.Struct, frozen=True):
    """The newest answer."""

    reason: str | None = None
    """One of those that Events tell; empty if its containers begin, None if nothing is said."""
    message: str = ""
    looks: int = 0
    """How often it was asked."""


Question = Confirm | Compare | Hear


class Answers(msgspec.Struct, frozen=True):
    """The answers about one job, each with its question."""

    presence: tuple[Confirm, Presence] | None = None
    evidence: tuple[Compare, Evidence] | None = None
    heard: Mapping[Hear, Heard] = {}

    def has(self, question: Question) -> bool:
        """True if this question was answered, and is not asked again."""
        return question in [answered[0] for answered in (self.presence, self.evidence) if answered is not None]

    def of(self, question: Confirm | None) -> Presence | None:
        """The answer to this question."""
        asked, answered = self.presence or (None, None)
        return answered if question is not None and asked == question else None

    def kept(self, questions: Collection[Question]) -> "Answers":
        """The answers to questions of a type that is still listed; each question to `Hear` has one from the start."""
        kinds = {type(question) for question in questions}
        heard = {each: self.heard.get(each, Heard()) for each in questions if isinstance(each, Hear)}
        return Answers(self.presence if Confirm in kinds else None, self.evidence if Compare in kinds else None, heard)


UNANSWERED = Answers()


def settles(question: Confirm, presence: Presence) -> bool:
    """False if another GET is needed: the watch is late, or the job is about to be deleted."""
    return not presence.there or not (question.missing or presence.deleting)
