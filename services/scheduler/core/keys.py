"""The key pair with which the launcher reaches the workers: whether a Secret has to be made for it.  Pure.

The pair itself is made when the effect is carried out, in `keypair.py`: a decision knows no secrets.
"""

from services.scheduler.core.effects import CreateSecret
from shared.job.naming import secret_name
from shared.job.state import Job
from shared.job.steps import Step


def there(job: Job) -> bool:
    """The pods can be made: the Secret was seen, or is the user's own, or nobody attaches by ssh."""
    return not _needed(job) or ("Secret", secret_name(job.key.name)) in job.children


def owed(job: Job) -> list[Step]:
    """The Secret, asked for as soon as the job is taken on: its pods wait for it.

    One that vanished is made again, with another pair, for the pods that come.
    """
    if job.phase == "Suspended" or there(job) or not job.may_try("CreateSecret"):
        return []
    return [CreateSecret()]


def _needed(job: Job) -> bool:
    spec = job.spec
    return spec is not None and spec.attach_mode == "ssh" and not spec.ssh_secret
