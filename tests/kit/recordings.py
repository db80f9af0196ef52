"""Audit logs of real API servers that served end-to-end tests: what a whole session asked of Kubernetes."""

from pathlib import Path

RECORDINGS: list[Path] = []
"""Of this session; `tests/security/test_least_privilege.py` reads them when all other tests are over."""


def recorded(audit: Path) -> Path:
    """Have this file compared with the roles at the session's end."""
    RECORDINGS.append(audit)
    return audit
