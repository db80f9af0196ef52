"""The people and programs who made changes, as the audit service wrote them down.  Pure."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from shared.job import text
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import JobKey

ALL_USERS = "system:authenticated"
"""A group of every user, which tells nothing."""


class Person(msgspec.Struct, frozen=True, rename="camel"):
    """Who made a change, as the API server authenticated it; the agent is the client's own word."""

    user: str
    groups: tuple[str, ...] = ()
    acting_as: str = ""
    """The user whom it impersonated."""
    agent: str = ""

    def __str__(self) -> str:
        acting = f" as {self.acting_as}" if self.acting_as else ""
        groups = text.in_a_row([group for group in self.groups if group != ALL_USERS])
        program = self.agent.split(" ", 1)[0]
        # What a client or an identity provider chose may have control characters.
        return text.in_one_line(
            text.first(f"{self.user}{acting}{f' of {groups}' if groups else ''}{f' with {program}' if program else ''}")
        )


class People:
    """The attributions of one log, by the job and the event of it that they name."""

    def __init__(self) -> None:
        self._known: defaultdict[tuple[JobKey, int, int], set[Person]] = defaultdict(set)

    def add(self, job: JobKey, event: ChangeAttributed) -> None:
        person = Person(event.user, event.groups, event.acting_as, event.agent)
        self._known[job, event.of, event.write].add(person)

    def of(self, job: JobKey, sequence: int, event: AnyEvent) -> tuple[Person, ...]:
        """The users who made the changes of an event; empty if one of them is not known, or two claim the same."""
        match event:
            case JobObserved(writes=writes):
                pass
            case ScaleRequested() | JobDeleting() | JobGone():
                writes = (0,)
            case _:
                return ()
        found: list[Person] = []
        for write in writes:
            claimed = self._known.get((job, sequence, write), ())
            if len(claimed) != 1:
                return ()
            found += claimed
        return tuple(dict.fromkeys(found))


def names(people: Sequence[Person], clients: Sequence[object]) -> str:
    """`alice of team-a with kubectl/v1.36.2 (kubectl-edit)`; empty where neither is known."""
    shown, programs = text.in_a_row([*map(str, people)]), text.in_a_row([*map(str, clients)])
    return f"{shown} ({programs})" if shown and programs else shown or programs
