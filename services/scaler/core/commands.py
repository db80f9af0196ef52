"""Decides which commands run in the launcher: the script of a request, once, and the checks of a drain.  Pure.

A script runs for the workers that the request adds or removes, after the hosts files changed in a scale-out and before
in a scale-in.  Its text and environment stay in the resource; its output is neither kept nor logged.
Leaving workers may be released when no process of the launcher names them, or the drain time passed.  By then the
launcher has seen hosts files without them.
"""

import re
from collections.abc import Sequence

from services.scaler.core.effects import CheckDrain, RunScript
from shared.job import causes, reasons
from shared.job.events.event import Cause
from shared.job.events.scaler import ScaleFailed, ScriptStarted
from shared.job.evolve_requests import DRAIN_FORCED, SCRIPT_OUTCOME_UNKNOWN
from shared.job.naming import EDL_FOLDER, HOSTFILE, MPI_FOLDER
from shared.job.scaling import Request
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import DRAIN, DRAIN_CHECK, SCRIPT_DEADLINE, passed
from shared.job.views import PodView, alive, ended

LOOK = ("sh", "-c", f"cat /proc/[0-9]*/cmdline {EDL_FOLDER}/{HOSTFILE} {MPI_FOLDER}/{HOSTFILE}")
"""Prints the arguments of all processes, each ended by a NUL, and the hosts files.

It needs no `ps`, which an image may lack, and ignores missing files: kinds differ, and users mount their own.  The
kubelet updates the hosts files with a delay; a worker that they still list is in use.
"""

_BETWEEN = re.compile(rb"[\0\s,:=@]+")


def reason_to_release(job: Job, request: Request, *, late: bool) -> str | CheckDrain | None:
    """The reason to release the workers now, or the check that is due; None while there is nothing to do but wait."""
    look = request.look
    if not _may_use(job.launcher) or (look is not None and not look.unknown and not look.in_use):
        return "Drained"
    if late:
        return DRAIN_FORCED
    if look is not None and look.unknown and passed(job, request.seen, DRAIN):
        return "DrainTimed"
    # Its timer runs only after a look that may have another result.
    if look is not None and not passed(job, look.at, DRAIN_CHECK):
        return None
    return _look(job, request)


def names(arguments: bytes) -> frozenset[bytes]:
    """Every word of process arguments or hosts files that may be a pod's name, cut at the first dot."""
    return frozenset(word.partition(b".")[0] for word in _BETWEEN.split(arguments))


def in_use(arguments: bytes, workers: Sequence[tuple[int, str]]) -> tuple[int, ...]:
    """The indices of the `workers` (index, name) that the arguments name; `worker-1` is not `worker-10`."""
    named = names(arguments)
    return tuple(index for index, name in workers if name.encode() in named)


def _may_use(launcher: PodView | None) -> bool:
    """True while a process of the launcher may use workers: one that is being deleted runs for its grace period."""
    return launcher is not None and not ended(launcher) and (launcher.phase == "Running" or not launcher.deleting)


def _look(job: Job, request: Request) -> CheckDrain | None:
    launcher = job.launcher
    if launcher is None or job.spec is None:
        return None
    indices = sorted(member.index for member in request.leaving)
    return CheckDrain(
        request=request.uid,
        pod=launcher.name,
        pod_uid=launcher.uid,
        container=job.spec.role(LAUNCHER).container,
        workers=tuple(zip(indices, job.worker_names(indices), strict=True)),
        count=request.look.count + 1 if request.look is not None else 1,
    )


QUIETLY = ("sh", "-c", 'exec "$@" > /dev/null 2>&1', "sh")
"""Discards the script's output.

No part of Muster reads it, and with a long output the exit code was lost: uvloop closes a TLS connection whose reading
is paused before all of it is read (its pull request 661).
"""


def script_wanted(request: Request) -> bool:
    return request.spec is not None and request.spec.script and request.script is None


def script_steps(job: Job, request: Request) -> list[Step] | None:
    """The script's next step, `[]` while it runs; None once it succeeded, and for a request without a script."""
    if script_wanted(request):
        return _begun(job, request)
    script = request.script
    if script is None:
        return None
    if script.ended:
        return [_failed(request, script.failure, Cause(script.ended))] if script.failure else None
    if passed(job, script.started, SCRIPT_DEADLINE):
        return [_failed(request, SCRIPT_OUTCOME_UNKNOWN, causes.timer(job, script.started, SCRIPT_DEADLINE))]
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


def script_command(script: str, environment: Sequence[tuple[str, str]], hosts: str) -> list[str]:
    """The arguments to execute.  No other shell interprets them, so each value arrives byte for byte."""
    run = ["sh", script, hosts]
    return [*QUIETLY, *(["env", *(f"{name}={value}" for name, value in environment), *run] if environment else run)]


def _begun(job: Job, request: Request) -> list[Step]:
    if not alive(job.launcher):
        return [_failed(request, reasons.NO_LAUNCHER, causes.of_launcher(job))]
    assert request.spec is not None
    started = ScriptStarted(request=request.uid, timeout=request.spec.timeout_seconds)
    return [Record(started, causes.of_request(job, request))]


def _failed(request: Request, reason: str, because: Cause) -> Record:
    # A scale-in has changed nothing yet; a scale-out keeps its workers, which the hosts files already list.
    remains = f"the new workers have joined and stay: {request.sizes}" if request.kind == "ScaleOut" else ""
    return Record(ScaleFailed(request=request.uid, reason=reason, remains=remains), because)


def _hosts(job: Job, request: Request) -> str:
    """`pod:slots,pod2:slots` of the workers that the request adds or removes."""
    if request.kind == "ScaleOut":
        indices = sorted(slot.index for slot in request.added)
    else:
        indices = [member.index for member in request.leaving]
    slots = job.spec.slots_per_worker if job.spec else 1
    return ",".join(f"{name}:{slots}" for name in job.worker_names(indices))
