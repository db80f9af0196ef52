"""`muster why`: the chain of causes of the state of a job, a worker or a request, from the log."""

from collections.abc import Iterator
from typing import Self

import msgspec

from shared.errors import Refused
from shared.job.policies import capacity
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.text import counted, in_one_line, range_words
from shared.job.views import ranges
from shared.telling.causes import outlook
from shared.telling.causes.chains import (
    Chain,
    of_job,
    of_request,
    of_slot,
    request_of,
    request_state,
    slot_of,
    slot_state,
)
from shared.telling.causes.links import Link, of_at_most, waits_of
from shared.telling.causes.walk import Causes
from shared.telling.shown import Shown, running_pods
from shared.telling.targets import Asked, Target, find, known_kinds


def answered(causes: Causes, asked: Asked, about: str, *, as_json: bool = False) -> list[str]:
    """The lines of the answer.  Raises `Refused` if the job has nothing of that name."""
    target, _ = find([causes.history], asked, causes.job.key.namespace, waiting=True)
    if about and target.is_request:
        words = f"a {target.resource.kind} has no workers or requests; ask of trainingjob/{causes.job.key.name}"
        raise Refused(words, reason="Invalid")
    word = about or (f"{target.resource.kind}/{target.name}" if target.is_request else "")
    heading, chains = explained(causes, word, target)
    return as_lines(chains) if as_json else [*heading, *chain_lines(chains)]


def explained(causes: Causes, word: str, target: Target) -> tuple[list[str], list[Chain]]:
    """The present state and its chains of causes: of the pod or the request `word`, or of the job without one."""
    if not word:
        shown = Shown.of(causes.history, known_kinds())
        return _heading(causes, target, shown), of_job(causes, shown.phase)
    slot = None if target.is_request else slot_of(causes, word)
    if slot is not None:
        name = causes.job.pod_name(slot)
        state = f"{name}, attempt {slot.attempt + 1}: {slot_state(causes, slot)}"
        return [state, *_warnings(causes, target)], [of_slot(causes, slot)]
    request = request_of(causes, word)
    if request is not None:
        state = f"{request.kind.lower()}/{request.name}: {request_state(causes, request)}"
        state += outlook.of_request(causes, request)
        return [state, *_warnings(causes, target)], of_request(causes, request)
    raise Refused(f"{target.label} has no pod and no request {word!r}; it knows {_known(causes)}", reason="NotFound")


def chain_lines(chains: list[Chain]) -> Iterator[str]:
    """Chains as lines, each below its question; a link that was printed before ends a chain with a hint."""
    seen: set[int] = set()
    for chain in chains:
        yield ""
        yield f"{chain.question}:"
        for link in chain.links:
            if id(link) in seen:
                yield f"{link.sequence:>6}  as told above"
                break
            seen.add(id(link))
            yield line(link)
            if link.unknown:
                yield f"{'':>6}  unknown: {link.unknown}"


def line(link: Link) -> str:
    """`42  2030-01-01 00:00:42  status     JobFailed         the job failed`."""
    when = f"{link.time[:10]} {link.time[11:19]}"
    return f"{link.sequence:>6}  {when}  {link.author:<9}  {link.type:<17}  {link.text}".rstrip()


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the chain of causes of a state, the newest first."""

    question: str
    """What the chain explains, such as `why is it Running`."""
    sequence: int
    time: str
    type: str
    author: str
    text: str
    """The event in plain words."""
    cause: int | None = None
    """The sequence of the event that caused it; None for the first cause."""
    unknown: str = ""
    """A cause that must exist and is not in the log; empty if all are there."""

    @classmethod
    def of(cls, question: str, link: Link) -> Self:
        told = {name: getattr(link, name) for name in ("sequence", "time", "type", "author", "text", "unknown")}
        return cls(question=question, cause=link.cause.sequence if link.cause else None, **told)


def as_lines(chains: list[Chain]) -> list[str]:
    """The links of all chains as one JSON list, each once."""
    found: dict[int, Cause] = {}
    for chain in chains:
        for link in chain.links:
            found.setdefault(id(link), Cause.of(chain.question, link))
    return [msgspec.json.format(msgspec.json.encode([*found.values()])).decode()]


def _heading(causes: Causes, target: Target, shown: Shown) -> list[str]:
    job = causes.job
    leaves = "gone; it was " if job.resource.gone else "being deleted; it is " if job.deleting else ""
    waits = "" if job.status.phase else waits_of(job.resource.problems)
    state = leaves + (": ".join(filter(None, (shown.phase, waits))) or "not taken on yet")
    works = (job.scaling.size or job.attempt.slots) and not (job.over or job.resource.gone or job.between_attempts)
    size = f", {_working(job, shown.wanted)}" if works else ""
    attempt = f", attempt {job.attempt.number + 1}" if job.attempt.number else ""
    limit = of_at_most(job.spec.backoff_limit) if job.spec else ""
    counts = f"{job.retries.restarts}{limit} restarts" if limit else counted(job.retries.restarts, "restart")
    restarts = f", {counts}" if job.retries.restarts else ""
    replaced = f", {counted(job.attempt.replaced, 'pod')} replaced" if job.attempt.replaced else ""
    heading = f"{target.label} ({job.key.uid}): {state}{size}{attempt}{restarts}{replaced}"
    heading += outlook.of_job(causes, shown, target.label)
    return [heading, *_size(job), *_progress(job), *_warnings(causes, target)]


def _size(job: Job) -> Iterator[str]:
    """Who decided how many workers train, if more than the resource did."""
    decided = capacity.deciders(job)
    if decided[1:] or (job.elasticity is not None and decided):
        yield f"its size: {'; '.join(decided)}"


def _progress(job: Job) -> Iterator[str]:
    """How far the training is, and what an end now would cost."""
    known = job.training
    if known.reported is None or known.at is None:
        return
    said = [f"its training was at {known.words} at {known.at.clock}"]
    said += [", ".join(in_one_line(f"{name} {value}") for name, value in known.reported.metrics)]
    said += [f"about {known.reported.remaining} s are left" if known.reported.remaining and not job.over else ""]
    if known.checkpoint is not None:
        cost = f", {counted(known.at_stake, 'step')} before that" if known.at_stake is not None else ""
        said += [f"its newest checkpoint is of step {known.checkpoint.step}{cost}"]
    said.append(known.refused)
    yield "; ".join(filter(None, said))


def _working(job: Job, wanted: int) -> str:
    if job.spec is None or job.spec.handling.hosts_files:
        return f"{len(job.listed_workers)} of {counted(job.scaling.size, 'worker')} in the hosts files"
    return f"{len(running_pods(job))} of {counted(wanted, 'pod')} running"


def _warnings(causes: Causes, target: Target) -> list[str]:
    job, held = causes.job, causes.history.held
    warnings = [f"held: {held}; what follows is what could be read"] if held else []
    if job.integrity.doubt is not None:
        warnings.append(
            f"held: {job.integrity.sentence}; every service holds the job until `muster history accept {target.label}`"
        )
    if job.resource.another:
        until = "until MUSTER_TAKE_OVER=true says that it is gone"
        until = f"because Muster cannot take it over: {job.resource.obstacle}" if job.resource.obstacle else until
        warnings.append(f"another operator began it; no service acts on the job {until}")
    return warnings


def _known(causes: Causes) -> str:
    indices: dict[str, set[int]] = {}
    for slot in causes.lives:
        indices.setdefault(slot.role, set()).add(slot.index)
    pods = [
        role if role == LAUNCHER else f"{role} {range_words(ranges(found))}" for role, found in sorted(indices.items())
    ]
    requests = [f"{known.kind.lower()}/{known.name}" for known in causes.known.values()]
    return " and ".join(filter(None, (", ".join(pods), ", ".join(requests)))) or "neither yet"
