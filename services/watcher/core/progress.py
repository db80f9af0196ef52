"""What a training says of itself: the body of a report as Kubeflow Trainer takes it, and whether it is believed.  Pure.

`transformers` writes the number of its step among the metrics, as `current_step`; there a checkpoint's is, too.
"""

import re
from collections.abc import Iterable
from typing import Annotated, NamedTuple, Self

import msgspec

from shared.errors import Refused
from shared.job import training
from shared.job.events.watcher import CheckpointTaken, ProgressReported
from shared.job.naming import Uid
from shared.job.state import Job
from shared.job.views import PodView
from shared.untrusted import MALFORMED

MOST_BYTES = 2**16
"""The most bytes of a report, as at Kubeflow Trainer."""

MOST_METRICS = 16
"""The most metrics of one event; a report may have 256."""

LONGEST = 64
"""Characters of a metric's name, and of its value."""

_STEP = ("current_step", "step", "global_step")
_TOTAL = ("total_steps", "max_steps")
_CHECKPOINT = ("checkpoint_step",)

Said = ProgressReported | CheckpointTaken

_NUMBER = re.compile("[0-9]{1,15}")
MOST = 10**15 - 1


class _Metric(msgspec.Struct):
    name: str
    value: str


class _Status(msgspec.Struct, rename="camel"):
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: list[_Metric] = []


class _Body(msgspec.Struct, rename="camel"):
    trainer_status: _Status | None = None


class Report(NamedTuple):
    """What one report says; its own time does not count, as clocks of nodes differ."""

    said: ProgressReported
    checkpoint: int | None

    def after(self, before: Self) -> Self:
        """With what the one before it said where this one is silent."""
        checkpoint = before.checkpoint if self.checkpoint is None else self.checkpoint
        said = training.merged(self.said, before.said)
        if self.said.percentage is not None:
            # By the step of another pod it would not be further.
            said = msgspec.structs.replace(said, step=self.said.step)
        return self._replace(said=said, checkpoint=checkpoint)


_decoder = msgspec.json.Decoder(_Body)


def read(body: bytes, pod: Uid) -> Report:
    """The report of a pod, without its attempt.  Raises `Refused` with the reason for one that no training can mean."""
    try:
        status = _decoder.decode(body).trainer_status
    except MALFORMED as error:
        raise Refused(f"this is no report of progress: {error}", reason="Malformed") from error
    if status is None:
        raise Refused("the report has no trainerStatus", reason="Malformed")
    if not 0 <= (status.progress_percentage or 0) <= 100:
        raise Refused("progressPercentage is from 0 to 100", reason="OutOfRange")
    if not 0 <= (status.estimated_remaining_seconds or 0) <= MOST:
        raise Refused(f"estimatedRemainingSeconds is from 0 to {MOST}", reason="OutOfRange")
    said = {metric.name: metric.value for metric in status.metrics}
    step, total, checkpoint = (_number(said, names) for names in (_STEP, _TOTAL, _CHECKPOINT))
    if step is not None and total is not None and step > total:
        raise Refused(f"step {step} is beyond the total of {total}", reason="BeyondTheEnd")
    if step is not None and checkpoint is not None and checkpoint > step:
        raise Refused(f"checkpoint_step {checkpoint} is beyond step {step}", reason="BeyondTheEnd")
    if checkpoint is not None and step is None:
        raise Refused("a report with checkpoint_step has a step, too", reason="Malformed")
    known = {*_STEP, *_TOTAL, *_CHECKPOINT}
    others = [(name[:LONGEST], value[:LONGEST]) for name, value in said.items() if name not in known]
    event = ProgressReported(
        pod=pod,
        attempt=0,
        step=step,
        total=total,
        percentage=status.progress_percentage,
        remaining=status.estimated_remaining_seconds,
        metrics=tuple(others[:MOST_METRICS]),
    )
    return Report(event, checkpoint)


def _number(said: dict[str, str], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if name in said), None)
    if name is None:
        return None
    if not _NUMBER.fullmatch(said[name]):
        raise Refused(f"{name} is a whole number from 0 to {MOST}", reason="OutOfRange")
    return int(said[name])


def events(job: Job, report: Report, *, in_time: bool = False) -> list[Said]:
    """What a report says that is new; `in_time`: it was believed when it came.  Raises `Refused` if it cannot be true.

    Of the reports of an attempt that go backwards one may be told, with `backwards`, though it is refused as well.
    """
    advanced, known = _believed(job, report.said, in_time=in_time), job.training.checkpoint
    if advanced is not None and advanced.backwards:
        return [advanced]
    found: list[Said] = []
    if report.checkpoint is not None and (known is None or known.step != report.checkpoint):
        found.append(CheckpointTaken(step=report.checkpoint, pod=report.said.pod, source="Report"))
    return [*found, advanced] if advanced is not None else found


def still(job: Job, report: Report, kind: type[Said]) -> Said | None:
    """What a report that was believed says of the job as it is now: the event of this kind."""
    try:
        found = events(job, report, in_time=True)
    except Refused:
        # The group changed, or another replica recorded a later step.
        return None
    return next((event for event in found if isinstance(event, kind)), None)


def _believed(job: Job, said: ProgressReported, *, in_time: bool) -> ProgressReported | None:
    """The event of what a pod said; None if it says nothing new.  Raises `Refused` if it cannot be true.

    The steps of one process go back only where its group changed, or where a new program said that it begins.
    """
    view, group_changed = job.pods.views.get(said.pod), job.training.changed is not None
    # Its pod may have gone since it came.
    if view is None and (group_changed or not in_time):
        raise Refused("the token is of a pod that is none of this job", reason="NotOfThisJob")
    attempt, ends = view.attempt if view is not None else said.attempt, job.deleting or job.resource.gone
    if (job.over and not in_time) or ends or job.between_attempts or attempt != job.attempt.number:
        raise Refused("the attempt of this pod is over", reason="Over")
    if said.step is None and said.percentage is None:
        # Metrics alone, as of an evaluation, do not say how far the training is.
        return None
    event, known = msgspec.structs.replace(said, attempt=attempt), job.training.reported
    if known is None or group_changed or training.begins(event):
        return event if known is None or not training.begins(event) or not training.begins(known) else None
    if training.is_further(event, known):
        return event
    if said.pod == known.pod and said.step is not None and known.step is not None and said.step < known.step:
        if job.training.backwards is not None:
            raise goes_backwards(job, said)
        return msgspec.structs.replace(event, backwards=True)
    return None


def goes_backwards(job: Job, said: ProgressReported) -> Refused:
    """The refusal of a report of a step that is done already."""
    known = job.training.reported
    message = f"step {said.step} is before step {known.step if known else 0}, and the group has not changed since"
    return Refused(message, reason="StepBackwards")


class _End(msgspec.Struct):
    checkpoint_step: Annotated[int, msgspec.Meta(ge=0, le=MOST)]


_end_decoder = msgspec.json.Decoder(_End)


def checkpoint_in(message: str) -> int | None:
    """The step in a termination message such as `{"checkpoint_step": 120}`, its last line; None for any other one."""
    last = message.rstrip().rpartition("\n")[2]
    if not last.startswith("{"):
        return None
    try:
        return _end_decoder.decode(last).checkpoint_step
    except MALFORMED:
        return None


def newest_checkpoint(pod: PodView) -> int:
    """The step of the newest checkpoint that the containers of a pod took at their end; -1 without one."""
    return max((end.checkpoint for end in pod.exits if end.checkpoint is not None), default=-1)


def taken_at_end(job: Job, pods: Iterable[PodView]) -> CheckpointTaken | None:
    """The newest checkpoint that these pods took at their end, if it is newer than the known one."""
    ended = (pod for pod in pods if pod.attempt == job.attempt.number)
    newest = max(ended, key=lambda pod: (newest_checkpoint(pod), pod.uid), default=None)
    known, step = job.training.checkpoint, newest_checkpoint(newest) if newest is not None else -1
    if newest is None or step <= (known.step if known is not None else -1):
        return None
    return CheckpointTaken(step=step, pod=newest.uid, source="TerminationMessage")
