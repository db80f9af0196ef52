"""Decides whether a job needs a Secret with an ssh key pair for its launcher and workers.  Pure.

The shell generates the pair, in `keypair.py`: no decision and no event contains a secret.
"""

from services.scheduler.core.effects import CreateSecret
from shared.job.naming import secret_name
from shared.job.state import Job
from shared.job.steps import Step


def ready(job: Job) -> bool:
    """True if pods can be created: the Secret was seen, the user brings one, or the job uses no ssh."""
    return not _needed(job) or ("Secret", secret_name(job.key.name)) in job.children


def missing(job: Job) -> list[Step]:
    """Create the Secret as soon as the job is admitted: its pods wait for it.

    A Secret that was deleted is created again with another pair, for the pods that follow.
    """
    if ready(job) or not job.may_try("CreateSecret"):
        return []
    return [CreateSecret()]


def _needed(job: Job) -> bool:
    spec = job.spec
    return spec is not None and spec.attach_mode == "ssh" and not spec.ssh_secret
