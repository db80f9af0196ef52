"""`muster`: the program; under the name `kubectl-muster` it is `kubectl muster`."""

import errno
import os
import sys
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of a write to a full disk, or beyond a limit."""

PLUGIN = "kubectl-muster"
"""The name by which kubectl finds its plug-in."""


def main() -> None:
    """The console scripts."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    _open_what_is_closed()
    try:
        # Imports take most of the time of a short command, so a Ctrl-C may come during them.
        from muster.commands import carry_out

        raise SystemExit(carry_out(plugin=Path(sys.argv[0]).stem == PLUGIN))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"muster: the output cannot be written: {error.strerror}", file=sys.stderr)
        # What is left in the buffer would fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _open_what_is_closed() -> None:
    """Give a stream that the caller closed (`>&-`) its number back: libuv aborts where a socket has one of these."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    main()
