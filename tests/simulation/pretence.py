"""Refuses real time and real chance while a simulation runs: with them a seed would not be one run."""

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

# Keys for ssh are really random: they are in no event, and of their Secret the trace has the version alone.
_REAL = (
    (time, "time"),
    (time, "monotonic"),
    (time, "perf_counter"),
    (time, "sleep"),
    (random, "random"),
    (random, "uniform"),
    (random, "randint"),
    (random, "choice"),
    (uuid, "uuid4"),
)


@contextmanager
def nothing_real() -> Iterator[None]:
    """Make each call of the real clocks and sources of chance an error that names it."""
    patches = [patch.object(module, name, _refusing(f"{module.__name__}.{name}")) for module, name in _REAL]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError(f"the simulation calls {name}, so that its seed is not one run")

    return refuse
