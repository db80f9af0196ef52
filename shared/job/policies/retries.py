"""Which failed exits are retried, whether another attempt follows a failed one, and how long each retry waits.  Pure.

The waits of pods and attempts double with each failure up to five minutes, those of refused effects up to one.
The verdict asks for launchers and leaders, `replacement.py` for the pods that are replaced; the watcher asks whether a
container ran.  No module outside of `policies` tells one failed exit from another.
Users read the rule of exits in docs/compatibility.md (row 13, TrainingJob; `restartPolicy` of the training operator's
kinds; the scheduler's end and `restartPolicy` of the older MXNet operators), in the definitions of
`shared/frameworks/training_job.py`, in examples/tensorflow/limits.yaml and in examples/mxnet/local.yaml.
The status service records that another attempt follows (`JobRestarting`); the scheduler begins it (`JobRestarted`).
"""

import re

from shared.backoff import doubled
from shared.job.attempt import Verdict
from shared.job.events.event import EffectRefused
from shared.job.naming import RESTART_REQUESTED
from shared.job.reasons import GANG_TOO_LARGE, NAME_HELD, STALLED
from shared.job.spec import JobSpec
from shared.job.state import Job, Refusal, Restarting, refusal_key
from shared.job.views import each

LEAST_RETRYABLE_CODE = 128
"""An exit code from here on means a signal: the container was ended from outside."""

_KILLED = 137
"""By SIGKILL, as a container that used too much memory is."""

OUT_OF_MEMORY = "OOMKilled"
"""Kubernetes' reason for the end of a container that used more memory than its limit."""

NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""The reasons of a command that the container runtime could not start: containerd's and Docker's."""


ASKED_FOR = frozenset({RESTART_REQUESTED, GANG_TOO_LARGE})
"""The reasons of restarts that follow from what a person asked for: they begin at once, and count against nothing."""


def retryable(code: int | None) -> bool:
    """True if `restartPolicy: ExitCode` retries this exit.  An unknown exit code is retried."""
    return code is None or code >= LEAST_RETRYABLE_CODE


def final_codes(spec: JobSpec, role: str) -> list[int]:
    """The exit codes after which the kubelet does not begin a container of the role again in place."""
    if spec.policy(role) != "ExitCode":
        return [0]
    return [*range(LEAST_RETRYABLE_CODE), *[_KILLED] * spec.handling.out_of_memory_is_final]


def never_started(reason: str) -> bool:
    """True if the command could not be started, so that the container never ran."""
    return reason in NEVER_STARTED


def is_final(spec: JobSpec, code: int | None, reason: str) -> bool:
    """True if ExitCode lets this end stand: the code is not retried, or the kind does not retry OOMKilled."""
    return not retryable(code) or (reason == OUT_OF_MEMORY and spec.handling.out_of_memory_is_final)


_WORD = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[0-9]+")

FIRST_START_SECONDS = 10
"""The kubelet's first wait for containers that crash; pods and attempts that failed begin again after it."""

FIRST_EFFECT_SECONDS = 1
"""The wait after the first refusal of an effect."""

LONGEST_SECONDS = 300
"""The kubelet's longest wait for containers that crash."""

LONGEST_EFFECT_SECONDS = 60
"""The longest wait of a refused effect: once a policy or a quota is changed, jobs begin within a minute."""


def before_start(failures: int) -> int:
    """Seconds before the next pod or attempt after so many failures: 0, then 10, 20, ... 300."""
    return doubled(FIRST_START_SECONDS, failures, LONGEST_SECONDS)


def before_effect(refusals: int) -> int:
    """Seconds before the next try after so many refusals in a row: 1, 2, 4, ... 60."""
    return doubled(FIRST_EFFECT_SECONDS, refusals, LONGEST_EFFECT_SECONDS)


def told_already(job: Job, event: EffectRefused) -> bool:
    """True if a refusal after the longest back-off is the one that the job knows, in the same words.

    It needs no event: its service tries the effect again after the longest back-off.  Other numbers
    are no news: those of a quota change whenever another pod begins.
    """
    known = job.efforts.refusals.get(refusal_key(event.effect, event.reason))
    if known is None:
        return False
    if event.reason == NAME_HELD:
        return _knows_names(job, known, event)
    if before_effect(known.count) < LONGEST_EFFECT_SECONDS:
        return False
    told = (known.reason, known.field, known.permanent, _NUMBER.sub("0", known.message))
    return told == (event.reason, event.field, event.permanent, _NUMBER.sub("0", event.message))


def _knows_names(job: Job, known: Refusal, event: EffectRefused) -> bool:
    """True if the job knows of these names that are held, and its message speaks of one that still is."""
    if not event.slots:
        return known.message == event.message
    spoken = set(_WORD.findall(known.message))
    return each(event.slots) <= known.slots and any(job.pod_name(slot) in spoken for slot in known.slots)


def may_restart(job: Job, end: Verdict) -> bool:
    """True if another attempt follows.  After a disruption one always does, and counts against no limit."""
    if job.spec is None or end.success or end.permanent:
        return False
    return end.disrupted or (_wanted(job.spec, end) and job.retries.restarts < job.spec.backoff_limit)


def used_up(job: Job, end: Verdict) -> bool:
    """True if only backoffLimit prevents another attempt."""
    if job.spec is None or end.success or end.permanent or may_restart(job, end):
        return False
    return _wanted(job.spec, end)


def _wanted(spec: JobSpec, end: Verdict) -> bool:
    """True if the restartPolicy of the job, or of its leader, asks for another attempt after a failed one.

    A stall ends an attempt only where the job asks for another one.
    """
    if end.reason == STALLED:
        return True
    handling = spec.handling
    of_leader = handling.restarts == "Job" and spec.policy(handling.leader) != "Never"
    return spec.restart_policy != "Never" or of_leader


def restart_delay(job: Job, why: Restarting) -> int:
    """Seconds from the end of an attempt to the next one.

    After a failure 10 s, doubled with each restart that counted, at most 300 s.  After a disruption none; a job that
    is disrupted again before it was steady waits in the same steps.  A restart that a person asked for begins at once.
    """
    if why.counted:
        return before_start(job.retries.restarts + 1)
    return 0 if why.reason in ASKED_FOR else before_start(job.retries.disruptions - 1)
