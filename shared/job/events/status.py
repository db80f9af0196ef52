"""The status service's decisions: one event for each phase that a job enters."""

from shared.job.events.event import Decided


class PhaseEntered(Decided, frozen=True):
    """A decision that the job enters a phase."""

    reason: str
    message: str = ""


class JobCreated(PhaseEntered, frozen=True, tag="JobCreated"):
    """The job is admitted."""


class JobRunning(PhaseEntered, frozen=True, tag="JobRunning"):
    """The launcher, or the leader role, runs."""


class JobScaling(PhaseEntered, frozen=True, tag="JobScaling"):
    """A scale request is being carried out."""


class JobRestarting(PhaseEntered, frozen=True, tag="JobRestarting"):
    """The attempt failed and another one follows."""

    counted: bool = True
    """False after a disruption, which counts against no limit.

    True also for a restart that a person asked for, which the fold does not count by its reason.
    """


class JobSuspending(PhaseEntered, frozen=True, tag="JobSuspending"):
    """A person asked for a pause, and pods of the job exist or may still appear."""


class JobSuspended(PhaseEntered, frozen=True, tag="JobSuspended"):
    """A person asked for a pause, and the job has no pods."""


class JobSucceeded(PhaseEntered, frozen=True, tag="JobSucceeded"):
    """The launcher, or the leader role, succeeded."""


class JobFailed(PhaseEntered, frozen=True, tag="JobFailed"):
    """The job failed for good."""


class JobSealed(Decided, frozen=True, tag="JobSealed"):
    """The job is over and gone, with all that it had: its history is whole, and nothing follows."""

    first: int
    """The sequence of its first event in the chain."""
    last: int
    """The sequence of its last event before this one."""
    count: int
    """Its events in the chain, without this one."""
    hash: str
    """The hash after `last`."""
    outcome: str
    """The phase in which it ended; empty for a job that never had one."""
    reason: str
    """Why the job ended, or how its resource did."""


Decision = (
    JobCreated
    | JobRunning
    | JobScaling
    | JobRestarting
    | JobSuspending
    | JobSuspended
    | JobSucceeded
    | JobFailed
    | JobSealed
)
"""All decisions of this author; `catalog` takes them from here."""
