"""How far the training of a job is, as its processes report it.  Pure.

The *group* is the processes that train together.  A change of it (members, replacements, a new attempt) leaves open
whether it trains until the next report of a step, and a training that begins again may do so at an earlier step.
"""

import msgspec

from shared.job.events.event import At
from shared.job.events.watcher import CheckpointTaken, ProgressReported

replace = msgspec.structs.replace


class Training(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known of a job's training; the default is that of a job whose processes report nothing."""

    reported: ProgressReported | None = None
    """The newest report, with what earlier ones said where it is silent."""
    at: At | None = None
    """When that was recorded."""
    changed: At | None = None
    """When the group changed first since it was last known to train; None while it trains."""
    left: int | None = None
    """The step that was reached when a program began anew; None once that makes steps itself."""
    stands: At | None = None
    """Since when it may have stood still: the newest step, change of the group, or start of a pod."""
    stepped: bool = False
    """True once this attempt reported a step."""
    checkpoint: CheckpointTaken | None = None
    """The newest one."""
    backwards: ProgressReported | None = None
    """A report of this attempt that was refused because its step was done already, as those before it."""

    @property
    def made_its_last_step(self) -> bool:
        """True from the last step on: what follows, such as writing the model, makes none."""
        return self.reported is not None and ends(self.reported)

    @property
    def reached(self) -> int | None:
        """The newest step, also while a program that began anew has made none; None without a step."""
        return (self.reported.step if self.reported is not None else None) or self.left

    @property
    def at_stake(self) -> int | None:
        """The steps that an end of the group now would cost; None if that is not known."""
        if self.reported is None or self.reported.step is None or self.checkpoint is None:
            return None
        return max(self.reported.step - self.checkpoint.step, 0)

    @property
    def words(self) -> str:
        """`step 120 of 1000 (12 %)`; empty without a report."""
        known = self.reported
        if known is None:
            return ""
        step = "" if known.step is None else f"step {known.step}"
        step += f" of {known.total}" if step and known.total is not None else ""
        part = "" if known.percentage is None else f"{known.percentage} %"
        return f"{step} ({part})" if step and part else step or part or "it began"

    @property
    def refused(self) -> str:
        """What to do about a program that counts its steps anew; empty if it does not."""
        return goes_back(self.backwards) if self.backwards is not None else ""


def ends(report: ProgressReported) -> bool:
    """True for the last step of a training."""
    return report.percentage == 100 or (report.step is not None and report.step == report.total)


def begins(report: ProgressReported) -> bool:
    """True for the report of a program that has no step behind it."""
    return report.step == 0 or (report.step is None and report.percentage == 0)


def is_urgent(training: Training, report: ProgressReported) -> bool:
    """True for the first report, the first after a change, and the last."""
    last = ends(report) and not training.made_its_last_step
    return training.reported is None or training.changed is not None or last


def merged(report: ProgressReported, before: ProgressReported | None) -> ProgressReported:
    """The report, with what the one before it said where it is silent; one that begins has nothing behind it."""
    if before is None or begins(report):
        return report
    names = ("total", "remaining") if begins(before) else ("total", "remaining", "step", "percentage")
    silent = {name: getattr(before, name) for name in names if getattr(report, name) is None}
    return replace(report, **silent, metrics=report.metrics or before.metrics)


def is_further(report: ProgressReported, known: ProgressReported) -> bool:
    """True if a report is of a later step, or without steps of a higher percentage, than the known one."""
    if report.step is not None and known.step is not None:
        return report.step > known.step
    return report.step is not None or (report.percentage or 0) > (known.percentage or 0)


def told(training: Training, event: ProgressReported | CheckpointTaken, at: At) -> Training:
    """The training after its processes said something."""
    if isinstance(event, CheckpointTaken):
        return replace(training, checkpoint=event)
    if event.backwards:
        return replace(training, backwards=event)
    whole, began = merged(event, training.reported), begins(event)
    return replace(
        training,
        reported=whole,
        at=at,
        changed=(training.changed or at) if began else None,
        left=training.reached if began else None,
        stands=at,
        stepped=training.stepped or not began,
    )


def regrouped(training: Training, at: At, *, anew: bool) -> Training:
    """The training after its group changed; with `anew` for another attempt, whose first step may take long."""
    training = replace(training, backwards=None, stepped=False) if anew else training
    return replace(training, changed=training.changed or at, stands=at)


def goes_back(report: ProgressReported) -> str:
    """What to do about a report of a step that was done before."""
    what = "count steps over the whole training, not in each epoch"
    return f"a report of step {report.step}, which was done before, is refused: {what}"
