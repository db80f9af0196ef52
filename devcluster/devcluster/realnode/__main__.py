"""`python -m devcluster.realnode`: install the packages that a real node needs, with apt-get."""

import subprocess
import sys

from devcluster.realnode import machine


def main() -> int:
    if reason := machine.unfit():
        # Not an error: the tests of the real node are skipped here, with the same message.
        print(reason)
        return 0
    try:
        machine.install()
    except (subprocess.CalledProcessError, FileNotFoundError) as problem:
        print(f"{problem}; install by hand: {' '.join(machine.PACKAGES)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
