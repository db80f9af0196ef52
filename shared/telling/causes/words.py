"""The plain words of causes.  Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from shared.job.naming import Slot
from shared.job.reasons import plain
from shared.job.spec import LAUNCHER, PASSING, UNLIMITED, WORKER, Problem, waits_for_turn
from shared.job.state import Job, needed_workers
from shared.job.text import counted, in_a_row, range_words
from shared.job.views import Actor, alive, ranges
from shared.telling.causes.links import Person, names

OWN_OUTPUT = "why it ended so; its own output may say"


def rest_of_line(message: str) -> str:
    """A message as the rest of a line."""
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


def waits_for(problems: Iterable[Problem]) -> str:
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
    running = len(slots_that_run(job))
    runs = counted(running, "running worker") if running else "no running worker"
    lost = f" without {names_of(job, without)}" if len(without) > 1 else ""
    return f"{runs} left{lost}, and minReplicas is {needed_workers(job)}"


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
