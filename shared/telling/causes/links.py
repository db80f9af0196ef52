"""The links of causal chains: an event, its words, and the earlier event that caused it; plain words of causes.  Pure.

With the people and programs who made changes, as the audit service wrote them down; and the link of what a job or a
request waits for, by the rule of `shared/job/waiting.py`.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from shared.job import text
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.fold import History
from shared.job.naming import JobKey, Slot, Uid
from shared.job.reasons import NAME_HELD, plain
from shared.job.scaling import Request
from shared.job.spec import LAUNCHER, PASSING, UNLIMITED, WORKER, JobSpec, Problem, waits_for_turn
from shared.job.state import Job, hosts_seen, refusal_key
from shared.job.text import in_a_row, range_words
from shared.job.views import Actor, alive, ranges
from shared.job.waiting import Wait, below_minimum, waiting

ALL_USERS = "system:authenticated"
"""A group of every user, which tells nothing."""
DELETED = "it was deleted, by whom is not in this log"
_DOUBTS = ("HistoryBroken", "HistoryDisputed", "HistoryAccepted")
_OF_THE_STATUS_SERVICE = ("PatchStatus", "Announce")
"""Effects for which no job waits."""
OfPeople = JobObserved | ScaleRequested | JobDeleting | JobGone
"""A fact of what a person or a program did."""


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


class Link(msgspec.Struct, eq=False, gc=False):
    """One event in a chain; compared by identity, because an event may be in several chains with different words.

    That of a change has other words once it is known who made it.
    """

    sequence: int
    time: str
    type: str
    author: str
    text: str
    cause: "Link | None" = None
    unknown: str = ""
    """The cause that must exist and is not in the log."""

    def says(self, text: str, cause: "Link | None" = None, *, unknown: str = "") -> "Link":
        """A link of the same event with these words."""
        assert cause is None or cause.sequence < self.sequence, f"{cause} cannot have caused {self}"
        return Link(self.sequence, self.time, self.type, self.author, text, cause, unknown)

    def chain(self) -> Iterator["Link"]:
        """This link, its cause, the cause of that, and so on."""
        link: Link | None = self
        while link is not None:
            yield link
            link = link.cause


class Changed(NamedTuple):
    """A change, the job's spec before and after it, and its link."""

    event: OfPeople
    was: JobSpec | None
    now: JobSpec | None
    link: Link


def newest(links: Iterable[Link | None]) -> Link | None:
    """The newest link; of several of one event, the last."""
    known = [link for link in links if link is not None]
    return max(reversed(known), key=lambda link: link.sequence, default=None)


class Links:
    """One job's fold, and a link for each event with news of the job, a pod or a request."""

    def __init__(self, key: JobKey) -> None:
        self.history = History(key)
        self.at: dict[int, Link] = {}
        """By sequence; for an event about several pods, the link of the last pod."""
        self.newest: dict[str, Link] = {}
        """The newest link of each type of event."""
        self.lives: dict[Slot, list[Link]] = {}
        """All links of a slot, in log order."""
        self.last: dict[Slot, Link] = {}
        """The newest link of a slot or its pod, which is the cause of its next one."""
        self.successors: dict[Slot, Slot] = {}
        """The slots that took the place of others."""
        self.requests: dict[Uid, list[Link]] = {}
        """All links of a request, in log order."""
        self.known: dict[Uid, Request] = {}
        """The last state of every request: the job forgets one that was deleted before its turn."""
        self.phase: Link | None = None
        self.times: dict[int, str] = {}
        """The time of each event."""
        self.changes: dict[int, Changed] = {}
        """By sequence."""
        self.people = People()

    @property
    def job(self) -> Job:
        return self.history.job

    @property
    def deletion(self) -> str:
        """That the resource was deleted, and by whom if that is known."""
        link = self.newest.get("JobDeleting") or self.newest.get("JobGone")
        by = self.by(link.sequence) if link is not None else ""
        return f"it was deleted{by}" if by else DELETED

    def by(self, sequence: int) -> str:
        """Who made a change, as the rest of a line; empty where that is not known."""
        if (known := self.changes.get(sequence)) is None:
            return ""
        clients = known.event.by if isinstance(known.event, JobObserved | ScaleRequested) else ()
        return by(clients, self.people.of(self.job.key, sequence, known.event))

    @property
    def doubt(self) -> Link | None:
        """The newest link about the integrity of the history."""
        return newest(self.newest.get(kind) for kind in _DOUBTS)


def waits_for(causes: Links) -> Link | None:
    """What a job waits for; of one that waits for nothing, the newest effect that is refused."""
    job = causes.job
    if job.integrity.doubt is not None:
        return causes.doubt
    if job.resource.another:
        return causes.newest.get("JobOfAnother")
    if job.resource.gone or job.over:
        return None
    if job.resource.problems and not job.status.phase:
        return causes.newest.get("JobObserved")
    wait = waiting(job)
    if wait is not None and wait.slot in job.attempt.vacancies:
        # The chain of the lost pods tells it.
        wait = None
    if wait is not None:
        return link_of(causes, job, wait)
    refusals = (known for known in job.efforts.refusals.values() if known.effect not in _OF_THE_STATUS_SERVICE)
    return newest(causes.at.get(refusal.at.sequence) for refusal in refusals)


def link_of(causes: Links, job: Job, wait: Wait) -> Link | None:
    """The link of what a job waits for: of a refused effect, of the pod in a slot, or of a node."""
    if wait.effect:
        return causes.at.get(job.efforts.refusals[wait.effect].at.sequence)
    return causes.last.get(wait.slot) if wait.slot is not None else causes.at.get(wait.since.sequence)


def request_waits_for(causes: Links, request: Request) -> Link | None:
    """What a request that is not over waits for: its turn, the job, pods, or the hosts files."""
    job = causes.job
    if request.over or job.resource.gone or request.uid not in job.scaling.requests:
        return None
    if request.phase == "Scaling":
        return awaited_by(causes, job, request)
    if job.scaling.open:
        return newest(causes.requests.get(job.scaling.open, ()))
    return _refused(causes, job, "OwnRequest") if job.status.phase == "Running" else causes.phase


def awaited(causes: Links, job: Job, slots: Container[Slot]) -> Link | None:
    """What the job waits for, if it is about one of these slots or prevents all."""
    wait = waiting(job)
    return link_of(causes, job, wait) if wait is not None and (wait.slot is None or wait.slot in slots) else None


def awaited_by(causes: Links, job: Job, request: Request) -> Link | None:
    """What an open request waits for."""
    if request.published and not hosts_seen(job, request.published):
        return _refused(causes, job, "WriteHosts") or causes.newest.get("HostsPublished")
    if request.kind == "ScaleOut":
        return awaited(causes, job, request.added)
    leaving = (job.attempt.worker_slot(member.index) for member in request.leaving)
    # Workers that are not released yet wait for the request.
    return newest(link for slot in leaving if slot not in job.attempt.slots and (link := causes.last.get(slot)))


def _refused(causes: Links, job: Job, effect: str) -> Link | None:
    refusal = job.efforts.refusals.get(effect) or job.efforts.refusals.get(refusal_key(effect, NAME_HELD))
    return causes.at.get(refusal.at.sequence) if refusal is not None else None


OWN_OUTPUT = "why it ended so; its own output may say"


def rest_of_line(message: str) -> str:
    return f": {message}" if message else ""


def because(reason: str, message: str = "") -> str:
    """The reason as the rest of a line: its sentence, if there is one, and its word in status and metrics."""
    if message:
        return f": {message}" + (f" ({reason})" if reason and reason not in message else "")
    return f" ({plain(reason)})" if reason else ""


def problem_line(problems: tuple[Problem, ...]) -> str:
    first = problems[0]
    where = f" ({first.field})" if first.field else ""
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{first.reason}{where}{rest_of_line(first.message)}{more}"


def waits_of(problems: Iterable[Problem]) -> str:
    """What a job or a request waits for that begins by itself; empty for one that cannot be acted upon."""
    problems = tuple(problems)
    if waits_for_turn(problems):
        return "waits for its turn"
    return "waits for its runtime" if any(problem.reason in PASSING for problem in problems) else ""


def by(actors: Sequence[Actor], people: Sequence[Person] = ()) -> str:
    """Who wrote it, as the rest of a line: ` by kubectl-edit`; empty where that is not known."""
    known = names(people, actors)
    return f" by {known}" if known else ""


def of_at_most(limit: int) -> str:
    """The rest of `2 of at most 6`; empty without a limit."""
    return f" of at most {limit}" if limit < UNLIMITED else ""


def at_time(time: str, seconds: int) -> str:
    """`at 10:59:01 UTC`, so many seconds after a time; with the date where that is another day."""
    since = datetime.fromisoformat(time).astimezone(UTC)
    until = since + timedelta(seconds=seconds)
    return f"at {until:%H:%M:%S} UTC" if until.date() == since.date() else f"at {until:%Y-%m-%d %H:%M:%S} UTC"


def back_off_line(since: str, seconds: int) -> str:
    """When a lost pod is replaced; `since` is the time of its loss."""
    if not seconds:
        return "it is replaced"
    return f"it is replaced after a back-off of {seconds} s, {at_time(since, seconds)}"


def slots_that_run(job: Job) -> set[Slot]:
    """The slots of workers whose pods run."""
    views = job.by_slot()
    return {slot for slot in job.attempt.workers if alive(views.get(slot)) and views[slot].phase == "Running"}


def minimum_line(job: Job, without: Sequence[Slot] = ()) -> str:
    """How many workers run, of those that the job needs; several that it is without are named."""
    return below_minimum(job, f" without {names_of(job, without)}" if len(without) > 1 else "")


def listing(job: Job) -> str:
    """The word for the list of a job's members: its hosts files, or its group if it has none."""
    return "hosts files" if job.spec is None or job.spec.handling.hosts_files else "group"


def names_of(job: Job, slots: Iterable[Slot]) -> str:
    """`resnet-worker-3`; several are `the launcher and workers 0-3`, or their names in a job without a launcher."""
    found = sorted(slots)
    if len(found) == 1:
        return job.pod_name(found[0])
    if job.spec is not None and not job.spec.has_launcher:
        return in_a_row([_names(job, role, found) for role in dict.fromkeys(slot.role for slot in found)]) or "no pod"
    words = ["the launcher"] if any(slot.role == LAUNCHER for slot in found) else []
    if workers := [slot.index for slot in found if slot.role == WORKER]:
        words.append(f"worker{'s' if len(workers) > 1 else ''} {range_words(ranges(workers))}")
    return " and ".join(words) or "no pod"


def _names(job: Job, role: str, slots: list[Slot]) -> str:
    """`resnet-ps-0`, `resnet-ps-[0-3]`."""
    those = [slot for slot in slots if slot.role == role]
    if len(those) == 1:
        return job.pod_name(those[0])
    stem = job.pod_name(those[0]).removesuffix(str(those[0].index))
    return f"{stem}[{range_words(ranges([slot.index for slot in those]))}]"
