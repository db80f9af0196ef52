"""The people and programs who made changes, as the audit service wrote them down.  Pure."""

from collections.abc import Sequence

import msgspec

from shared.job.events.audit import ChangeAttributed
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import JobKey
from shared.job.text import in_a_row

EVERYBODYS = "system:authenticated"
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
        groups = in_a_row([group for group in self.groups if group != EVERYBODYS])
        program = self.agent.split(" ", 1)[0]
        return f"{self.user}{acting}{f' of {groups}' if groups else ''}{f' with {program}' if program else ''}"


class People:
    """The attributions of one log, by the job and the event of it that they name."""

    def __init__(self) -> None:
        self._known: dict[tuple[JobKey, int, int], dict[str, Person]] = {}

    def add(self, job: JobKey, event: ChangeAttributed) -> None:
        person = Person(event.user, event.groups, event.acting_as, event.agent)
        self._known.setdefault((job, event.of, event.write), {})[event.audit] = person

    def of(self, job: JobKey, sequence: int, event: AnyEvent) -> tuple[Person, ...]:
        """Everybody who made the changes of an event; empty if one of them is not known, or two claim the same."""
        match event:
            case JobObserved(writes=writes):
                pass
            case ScaleRequested() | JobDeleting() | JobGone():
                writes = (0,)
            case _:
                return ()
        found: list[Person] = []
        for write in writes:
            claimed = self._known.get((job, sequence, write), {})
            if len(claimed) != 1:
                return ()
            found += claimed.values()
        return tuple(dict.fromkeys(found))


def names(people: Sequence[Person], clients: Sequence[object]) -> str:
    """`alice of team-a with kubectl/v1.36.2 (kubectl-edit)`; empty where neither is known."""
    shown, programs = in_a_row([*map(str, people)]), in_a_row([*map(str, clients)])
    return f"{shown} ({programs})" if shown and programs else shown or programs
