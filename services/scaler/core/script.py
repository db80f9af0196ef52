"""Runs a request's script once, in the launcher, for the workers that the request adds or removes.  Pure.

`scale_out.py` runs it after the hosts files changed, `scale_in.py` before.
Its text and environment stay in the resource; its output is neither kept nor logged.
"""

from collections.abc import Sequence

from services.scaler.core.effects import RunScript
from shared.job import reasons
from shared.job.events.scaler import ScaleFailed, ScriptStarted
from shared.job.evolve_requests import SCRIPT_OUTCOME_UNKNOWN
from shared.job.request import Request
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import SCRIPT_DEADLINE, passed
from shared.job.views import alive

QUIETLY = ("sh", "-c", 'exec "$@" > /dev/null 2>&1', "sh")
"""Discards the script's output.

No part of Muster reads it, and with a long output the exit code was lost: uvloop closes a TLS connection whose reading
is paused before all of it is read (its pull request 661).
"""


def wanted(request: Request) -> bool:
    """True if the request has a script that has not started."""
    return request.spec is not None and request.spec.script and request.script is None


def running(request: Request) -> bool:
    """True if the script started and its end is not known."""
    return request.script is not None and not request.script.ended


def next_steps(job: Job, request: Request) -> list[Step] | None:
    """The script's next step, `[]` while it runs; None once it succeeded, and for a request without a script."""
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
    """The arguments to execute.  No other shell interprets them, so each value arrives byte for byte."""
    run = ["sh", script, hosts]
    return [*QUIETLY, *(["env", *(f"{name}={value}" for name, value in environment), *run] if environment else run)]


def _begun(job: Job, request: Request) -> list[Step]:
    if not alive(job.launcher):
        return [_failed(request, reasons.NO_LAUNCHER)]
    assert request.spec is not None
    return [Record(ScriptStarted(request=request.uid, timeout=request.spec.timeout_seconds))]


def _failed(request: Request, reason: str) -> Record:
    # A scale-in has changed nothing yet; a scale-out keeps its workers, which the hosts files already list.
    remains = f"the new workers have joined and stay: {request.sizes}" if request.kind == "ScaleOut" else ""
    return Record(ScaleFailed(request=request.uid, reason=reason, remains=remains))


def _hosts(job: Job, request: Request) -> str:
    """`pod:slots,pod2:slots` of the workers that the request adds or removes."""
    if request.kind == "ScaleOut":
        indices = sorted(slot.index for slot in request.added)
    else:
        indices = [member.index for member in request.leaving]
    slots = job.spec.slots_per_worker if job.spec else 1
    return ",".join(f"{job.worker_name(index)}:{slots}" for index in indices)
