"""Decides which Secret has the ssh keys of an attempt, and when it is created and deleted.  Pure.

Each attempt has a Secret of its own.  No watch shows Secrets, so the scheduler records what it did: `SecretMade` and
`SecretGone`.  The shell generates the keys, in `keypair.py`: no decision and no event contains a secret.
"""

from services.scheduler.core.effects import CreateSecret, DeleteSecret
from shared.job.naming import secret_name, shared_secret_name
from shared.job.state import Job
from shared.job.steps import Step
from shared.job.views import ended


def secret(job: Job) -> str:
    """The name of the Secret for the pods of this attempt; the kind decides whether they mount it.

    Pods of one attempt need the same keys, so an attempt that was taken over keeps the Secret that it began with.
    """
    return shared_secret_name(job.key.name) if job.attempt.inherited else secret_name(job.key, job.attempt.number)


def ready(job: Job) -> bool:
    """True if pods can be created: the Secret exists, the user brings one, or the job uses no ssh."""
    return not _needed(job) or job.attempt.number in job.objects.secrets


def missing(job: Job) -> list[Step]:
    """Create the Secret as soon as the job is admitted: its pods wait for it."""
    if ready(job) or not job.may_try("CreateSecret"):
        return []
    return [CreateSecret(job.attempt.number, secret(job))]


def spent(job: Job) -> list[Step]:
    """Delete the Secrets of attempts that are over, once no pod of theirs is left that may mount it."""
    over = {attempt for attempt in job.objects.secrets if _is_over(job, attempt)}
    if over:
        over -= {pod.attempt for pod in job.pods.views.values() if not ended(pod)}
    return [step for step in everything(job) if step.attempt in over]


def everything(job: Job) -> list[DeleteSecret]:
    return [DeleteSecret(attempt, secret_name(job.key, attempt), uid) for attempt, uid in job.objects.secrets.items()]


def _is_over(job: Job, attempt: int) -> bool:
    # A job that is suspended before its first slots goes on with the same attempt.
    return attempt != job.attempt.number or job.over or (job.between_attempts and job.attempt.begun)


def _needed(job: Job) -> bool:
    spec = job.spec
    return spec is not None and spec.attach_mode == "ssh" and not spec.ssh_secret
