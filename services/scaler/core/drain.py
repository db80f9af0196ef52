"""Whether leaving workers are still used: looked up in the launcher, or given some time where nobody can look.  Pure.

The workers have left the hosts files, and the launcher has seen that; what follows is `scale_in.py`'s.
"""

import re
from collections.abc import Iterable, Sequence

from services.scaler.core.effects import CheckDrain
from shared.job.evolve_requests import DRAIN_FORCED
from shared.job.naming import EDL_FOLDER, HOSTFILE, MPI_FOLDER
from shared.job.request import Request
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.timing import DRAIN, DRAIN_CHECK, passed
from shared.job.views import alive

LOOK = ("sh", "-c", f"cat /proc/[0-9]*/cmdline {EDL_FOLDER}/{HOSTFILE} {MPI_FOLDER}/{HOSTFILE}")
"""The arguments of all processes, each ended by a NUL, and the hosts: an image may lack `ps`.  Nothing is put into it.

A file that is not there is passed over: kinds differ, and users mount their own.  A kubelet brings the hosts files a
moment after they were written; whom the launcher still finds there is in use too.
"""

_BETWEEN = re.compile(rb"[\0\s,:=@]+")


def answer(job: Job, request: Request, *, late: bool) -> str | CheckDrain | None:
    """Why the workers can be released now, or the look that is due, or None while it is waited."""
    look = request.look
    if not alive(job.launcher) or (look is not None and not look.unknown and not look.in_use):
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
    """What could be a worker's name among the arguments of processes, or in hosts files, as it would stand in DNS."""
    return frozenset(word.partition(b".")[0] for word in _BETWEEN.split(arguments))


def in_use(arguments: bytes, workers: Sequence[tuple[int, str]]) -> tuple[int, ...]:
    """The indices of those `workers` (index, name) that anybody was told of; `worker-1` is not `worker-10`."""
    told = names(arguments)
    return tuple(index for index, name in workers if name.encode() in told)


def _look(job: Job, request: Request) -> CheckDrain | None:
    launcher = job.launcher
    if launcher is None or job.spec is None:
        return None
    return CheckDrain(
        request=request.uid,
        pod=launcher.name,
        container=job.spec.role(LAUNCHER).container,
        workers=tuple((index, job.worker_name(index)) for index in _leaving(request)),
        count=request.look.count + 1 if request.look is not None else 1,
    )


def _leaving(request: Request) -> Iterable[int]:
    return sorted(member.index for member in request.leaving)
