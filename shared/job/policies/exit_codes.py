"""Which exits `restartPolicy: ExitCode` retries; no other module judges an exit code.  Pure.

`failure.py` asks for launchers and leaders, `replacement.py` for the pods that are replaced.  Users read the rule in
row 13 of docs/compatibility.md and in the definitions (`shared/frameworks/training_schemas.py`).
"""

from shared.job.spec import JobSpec

LEAST_RETRYABLE_CODE = 128
"""An exit code from here on means a signal: the container was ended from outside."""

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
