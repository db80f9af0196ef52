"""Which exits `restartPolicy: ExitCode` retries.  Pure."""

from shared.job.spec import JobSpec

LEAST_RETRYABLE_CODE = 128
"""An exit code from here on means a signal: the container was ended from outside (docs/compatibility.md, line 13)."""

OUT_OF_MEMORY = "OOMKilled"
"""Kubernetes' reason for the end of a container that used more memory than its limit."""


NEVER_STARTED = "StartError"
"""The container runtime's reason for a command that it could not start."""


def retryable(code: int | None) -> bool:
    """True if `restartPolicy: ExitCode` retries this exit.  An unknown exit code is retried."""
    return code is None or code >= LEAST_RETRYABLE_CODE


def final(spec: JobSpec, code: int | None, reason: str) -> bool:
    """True if ExitCode lets this end stand: the code is not retried, or the kind does not retry OOMKilled."""
    return not retryable(code) or (reason == OUT_OF_MEMORY and spec.handling.out_of_memory_is_final)
