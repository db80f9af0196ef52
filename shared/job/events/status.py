"""What the status service decides: one event for each phase that a job enters."""

from shared.job.events.event import Decided


class PhaseEntered(Decided, frozen=True):
    """The decisions of the status service: one per phase."""

    reason: str
    message: str = ""


class JobCreated(PhaseEntered, frozen=True, tag="JobCreated"):
    """The job is taken on."""


class JobRunning(PhaseEntered, frozen=True, tag="JobRunning"):
    """The launcher runs."""


class JobScaling(PhaseEntered, frozen=True, tag="JobScaling"):
    """A scale request is being carried out."""


class JobRestarting(PhaseEntered, frozen=True, tag="JobRestarting"):
    """The attempt failed and another one is due."""

    counted: bool = True
    """It counts against backoffLimit; a restart after a disruption, or one that a person asked for, does not."""


class JobSuspended(PhaseEntered, frozen=True, tag="JobSuspended"):
    """A person asked for a pause."""


class JobSucceeded(PhaseEntered, frozen=True, tag="JobSucceeded"):
    """The launcher ended well."""


class JobFailed(PhaseEntered, frozen=True, tag="JobFailed"):
    """The job is over and did not do what it should."""


Decision = JobCreated | JobRunning | JobScaling | JobRestarting | JobSuspended | JobSucceeded | JobFailed
