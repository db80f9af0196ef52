"""A request's script: run once, in the launcher, for the workers that the request brings or takes.  Pure.

When its turn comes is decided in `scale_out.py` (after the hosts files) and `scale_in.py` (before them).
Its text and its environment stay in the resource; what it writes is nobody's business.
"""

from collections.abc import Sequence

from services.scaler.core.effects import RunScript
from shared.job.events.scaler import ScaleFailed, ScriptStarted
from shared.job.evolve_requests import SCRIPT_OUTCOME_UNKNOWN
from shared.job.request import Request
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import SCRIPT_DEADLINE, passed
from shared.job.views import alive

QUIETLY = ("sh", "-c", 'exec "$@" > /dev/null 2>&1', "sh")
"""What a script writes stays where it is.

Nobody reads it, and the end of a long output was lost with the news of how the script ended: uvloop closes a TLS
connection whose reading is paused before all of it is read (its pull request 661).
"""


def wanted(request: Request) -> bool:
    """It has one, and it did not begin yet."""
    return request.spec is not None and request.spec.script and request.script is None


def running(request: Request) -> bool:
    """It began, and nobody knows yet how it ended."""
    return request.script is not None and not request.script.ended


def owed(job: Job, request: Request) -> list[Step] | None:
    """Its next step, nothing while it runs; None once it ended well, and for a request without one."""
    if wanted(request):
        return _begun(job, request)
    script = request.script
    if script is None:
        return None
    if script.ended:
        return [_failed(request, script.failure)] if script.failure else None
    if passed(job, script.started, SCRIPT_DEADLINE):
        return [_failed(request, SCRIPT_OUTCOME_UNKNOWN)]
    launcher = job.launcher
    if launcher is None or job.spec is None:
        return []
    effect = RunScript(
        kind=request.kind,
        name=request.name,
        request=request.uid,
        pod=launcher.name,
        pod_uid=launcher.uid,
        container=job.spec.role(LAUNCHER).container,
        hosts=_hosts(job, request),
        timeout=script.timeout,
        decision=script.started,
    )
    return [effect]


def command(script: str, environment: Sequence[tuple[str, str]], hosts: str) -> list[str]:
    """The arguments to execute.  No shell reads any of them but its own: a value arrives byte for byte."""
    run = ["sh", script, hosts]
    return [*QUIETLY, *(["env", *(f"{name}={value}" for name, value in environment), *run] if environment else run)]


def _begun(job: Job, request: Request) -> list[Step]:
    if not alive(job.launcher):
        return [_failed(request, "NoLauncher")]
    assert request.spec is not None
    return [Record(ScriptStarted(request=request.uid, timeout=request.spec.timeout_seconds))]


def _failed(request: Request, reason: str) -> Record:
    # In a scale-in nothing has changed yet; a scale-out has its workers in the hosts files, and they stay.
    return Record(ScaleFailed(request=request.uid, reason=reason))


def _hosts(job: Job, request: Request) -> str:
    """`pod:slots,pod2:slots`: those that come, or those that leave."""
    if request.kind == "ScaleOut":
        indices = sorted(slot.index for slot in request.added)
    else:
        indices = [member.index for member in request.leaving]
    slots = job.spec.slots_per_worker if job.spec else 1
    return ",".join(f"{job.worker_name(index)}:{slots}" for index in indices)
