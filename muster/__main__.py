"""`muster`: the program; under the name `kubectl-muster` it is `kubectl muster`."""

import os
import sys
from pathlib import Path

PLUGIN = "kubectl-muster"
"""The name under which kubectl finds us."""


def main() -> None:
    """The console scripts."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    try:
        # Ctrl-C may come while they are imported, which takes most of the time of a short command.
        from muster.commands import application

        # A shell completes the words of a plug-in by asking kubectl, not us.
        plugin = Path(sys.argv[0]).stem == PLUGIN
        application(completion=not plugin)(prog_name="kubectl muster" if plugin else "muster")
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
