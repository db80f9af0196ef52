"""Runs seeds of the simulation until the first fault, and prints it with the number of seeds.

    python -m tests.mutants.first_fault 60

`__main__.py` runs this from the copy of the tree.
"""

import os
import signal
import sys

from tests.simulation.plan import plan_of
from tests.simulation.run import simulate

SEED_SECONDS = 60
"""A seed takes less than a second or two: one that takes longer hangs."""


def main(seeds: int) -> int:
    """The exit code: 0 if every seed holds."""
    seed = 0

    def hang(*_: object) -> None:
        _tell(seed, "hangs")
        os._exit(1)

    signal.signal(signal.SIGALRM, hang)
    for seed in range(seeds):
        signal.alarm(SEED_SECONDS)
        try:
            faults = simulate(plan_of(seed)).faults
        except Exception as error:  # noqa: BLE001  a mutant may break anything
            faults = (f"exception: {error!r}",)
        signal.alarm(0)
        if faults:
            _tell(seed, faults[0])
            return 1
    return 0


def _tell(seed: int, fault: str) -> None:
    print(f"seeds {seed + 1}: {fault}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
