"""The version of this release, and the order of releases."""

import re
from functools import cache
from importlib.metadata import version

MARK = "muster.dev/release"
"""The annotation of a definition that names the release whose set-up wrote it."""


@cache
def this_release() -> str:
    """The version of the installed package."""
    return version("muster")


def is_older(one: str, other: str) -> bool:
    """True if release `one` is older than the `other`; an unknown release is older than all."""
    return _order(one) < _order(other)


def _order(release: str) -> tuple[tuple[int, ...], bool]:
    numbers = re.match(r"\d+(?:\.\d+)*", release)
    if numbers is None:
        return (), False
    # A suffix marks a pre-release: 1.2.0rc1 is older than 1.2.0.
    return tuple(int(number) for number in numbers[0].split(".")), numbers[0] == release
