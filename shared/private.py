"""Files with secrets."""

import os
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read, whole or not at all, and also if it existed before."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            os.fchmod(opened, 0o600)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(opened)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
