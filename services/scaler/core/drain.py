"""Decides when leaving workers may be released: no process of the launcher names them, or the drain time passed.  Pure.

By then the launcher has seen hosts files without them; `scale_in.py` has the steps before and after.
"""

import re
from collections.abc import Sequence

from services.scaler.core.effects import CheckDrain
from shared.job.evolve_requests import DRAIN_FORCED
from shared.job.naming import EDL_FOLDER, HOSTFILE, MPI_FOLDER
from shared.job.request import Request
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.timers import DRAIN, DRAIN_CHECK, passed
from shared.job.views import PodView, ended

LOOK = ("sh", "-c", f"cat /proc/[0-9]*/cmdline {EDL_FOLDER}/{HOSTFILE} {MPI_FOLDER}/{HOSTFILE}")
"""Prints the arguments of all processes, each ended by a NUL, and the hosts files.

It needs no `ps`, which an image may lack, and ignores missing files: kinds differ, and users mount their own.  The
kubelet updates the hosts files with a delay; a worker that they still list is in use.
"""

_BETWEEN = re.compile(rb"[\0\s,:=@]+")


def answer(job: Job, request: Request, *, late: bool) -> str | CheckDrain | None:
    """The reason to release the workers now, or the check that is due; None while there is nothing to do but wait."""
    look = request.look
    if not _may_use(job.launcher) or (look is not None and not look.unknown and not look.in_use):
        return "Drained"
    if late:
        return DRAIN_FORCED
    if look is not None and look.unknown:
        if passed(job, request.seen, DRAIN):
            return "DrainTimed"
        if not look.again:
            return None
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
    return CheckDrain(
        request=request.uid,
        pod=launcher.name,
        pod_uid=launcher.uid,
        container=job.spec.role(LAUNCHER).container,
        workers=tuple((index, job.worker_name(index)) for index in sorted(member.index for member in request.leaving)),
        count=request.look.count + 1 if request.look is not None else 1,
    )
