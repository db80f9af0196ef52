"""Files with secrets."""

import os
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read, from its first byte on and also if it existed before."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "wb") as file:
        os.fchmod(opened, 0o600)
        file.write(content.encode() if isinstance(content, str) else content)
