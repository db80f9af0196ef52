"""What the watcher has to ask before it records something grave, and the answers.  Pure: plain data.

`observe` lists the questions of a job on every turn for as long as they matter.  The shell asks each one once, and
forgets an answer when its question is no longer listed: a name that comes back is asked about anew.
"""

from collections.abc import Collection, Mapping

import msgspec

from shared.job.chain import Head
from shared.job.naming import Uid

replace = msgspec.structs.replace


class Confirm(msgspec.Struct, frozen=True):
    """Is the job still there?  Only its own GET says that it is gone, or that it lost its launcher."""

    epoch: int
    """Of the store that the cache shows: another store's answer means nothing."""
    launchers: tuple[Uid, ...]
    """Launchers of the job that vanished before their end was seen."""


class Presence(msgspec.Struct, frozen=True):
    """What the GET of a job answered."""

    there: bool
    """An object with this very uid."""
    deleting: bool = False


class Named(msgspec.Struct, frozen=True):
    """A head, and the log that it is of."""

    log: str
    head: Head


class Compare(msgspec.Struct, frozen=True):
    """Does the log lead to what is kept outside of it?"""

    shown: Named | None
    """The head in the resource; None when it shows none."""
    recall: bool
    """The checkpoint is compared too, the first time."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the log and the checkpoint say of a job."""

    identity: str
    """Of this log."""
    began: int
    """The log's last sequence when the watcher had not yet seen a head of this job."""
    end: int
    """The log's last sequence."""
    shown: Named | None = None
    kept: Named | None = None
    """The head in the checkpoint, where it was read."""
    hashes: Mapping[int, str]
    """The hash of the job's history after a sequence; empty where the job has no such event."""
    empty: bool = False
    """The log has no event of the job."""


Question = Confirm | Compare


class Answers(msgspec.Struct, frozen=True):
    """What was answered about one job, each answer with its question."""

    presence: tuple[Confirm, Presence] | None = None
    evidence: tuple[Compare, Evidence] | None = None

    def has(self, question: Question) -> bool:
        """True if this very question was answered."""
        return question in [answered[0] for answered in (self.presence, self.evidence) if answered is not None]

    def of(self, question: Confirm | None) -> Presence | None:
        """The answer to this very question."""
        asked, answered = self.presence or (None, None)
        return answered if question is not None and asked == question else None

    def kept(self, questions: Collection[Question]) -> "Answers":
        """Those of a kind of question that is still asked; the newest head may wait for its answer."""
        kinds = {type(question) for question in questions}
        return Answers(self.presence if Confirm in kinds else None, self.evidence if Compare in kinds else None)


UNANSWERED = Answers()


def settles(question: Confirm, presence: Presence) -> bool:
    """False if the job has to be asked for again: its watch is late, or the job is about to go."""
    return not presence.there or (bool(question.launchers) and not presence.deleting)
