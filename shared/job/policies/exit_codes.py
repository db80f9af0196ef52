"""Which failed exits `restartPolicy: ExitCode` retries, and what the reasons of an exit mean.  Pure.

`failure.py` asks for launchers and leaders, `replacement.py` for the pods that are replaced; the watcher asks whether a
container ran.  No module outside of `policies` tells one failed exit from another.
Users read the rule in docs/compatibility.md (row 13, TrainingJob; `restartPolicy` of the training operator's kinds;
the scheduler's end and `restartPolicy` of the older MXNet operators), in the definitions of
`shared/frameworks/training_job.py`, in examples/tensorflow/limits.yaml and in examples/mxnet/local.yaml.
"""

from shared.job.spec import JobSpec

LEAST_RETRYABLE_CODE = 128
"""An exit code from here on means a signal: the container was ended from outside."""

OUT_OF_MEMORY = "OOMKilled"
"""Kubernetes' reason for the end of a container that used more memory than its limit."""

NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""The reasons of a command that the container runtime could not start: containerd's and Docker's."""


def retryable(code: int | None) -> bool:
    """True if `restartPolicy: ExitCode` retries this exit.  An unknown exit code is retried."""
    return code is None or code >= LEAST_RETRYABLE_CODE


def never_started(reason: str) -> bool:
    """True if the command could not be started, so that the container never ran."""
    return reason in NEVER_STARTED


def final(spec: JobSpec, code: int | None, reason: str) -> bool:
    """True if ExitCode lets this end stand: the code is not retried, or the kind does not retry OOMKilled."""
    return not retryable(code) or (reason == OUT_OF_MEMORY and spec.handling.out_of_memory_is_final)
