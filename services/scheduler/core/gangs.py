"""Keeps the PodGroups by which the kube-scheduler places pods together.  Pure.

`shared/job/policies/gangs.py` says which pods those are.
"""

from services.scheduler.core.effects import CreatePodGroup, DeletePodGroup
from shared.job.naming import gang_attempt
from shared.job.policies import gangs
from shared.job.policies.gangs import POD_GROUP
from shared.job.state import Job
from shared.job.steps import Step
from shared.job.views import ChildView, occupies


def missing(job: Job) -> list[Step]:
    """Create those that were not seen, also one that was deleted: pods that name it wait for it."""
    if not job.attempt.gang or job.resource.problems or not job.may_try("CreatePodGroup"):
        return []
    if job.spec is None or all(role.name in gangs.OUTSIDE for role in job.spec.roles):
        # An edit took the roles away after their pods had ended.
        return []
    found = (gang for gang in gangs.known(job) if (POD_GROUP, gang.name) not in job.objects.children)
    return [CreatePodGroup(gang.name, gang.least) for gang in found]


def spent(job: Job) -> list[Step]:
    """Delete those of attempts that are over, once no pod of them runs."""
    attempt = job.attempt
    if not attempt.gang or not job.may_try("DeletePodGroup"):
        return []
    used = {pod.attempt for pod in job.pods.views.values() if occupies(pod)}
    if not (job.over or job.between_attempts):
        used.add(attempt.number)
    return [_deletion(child) for child in _ours(job) if gang_attempt(job.key, child.name) not in used]


def everything(job: Job) -> list[Step]:
    """Delete those that outlive the resource."""
    return [_deletion(child) for child in _ours(job)] if job.attempt.gang else []


def _ours(job: Job) -> list[ChildView]:
    children = (child for child in job.objects.children.values() if child.kind == POD_GROUP and child.ours)
    return [child for child in children if gang_attempt(job.key, child.name) is not None]


def _deletion(child: ChildView) -> Step:
    return DeletePodGroup(child.name, child.uid)
