"""Settings of both programs: a flag, or an environment variable where a manifest is easier to edit."""

import argparse
import os
from collections.abc import Callable


def add(
    parser: argparse.ArgumentParser, flag: str, variable: str, default: str, *, kind: Callable[[str], object], text: str
) -> None:
    """`--flag`, else `$VARIABLE`, else the default; a bad value is reported whichever it came from."""
    parser.add_argument(
        flag,
        default=os.environ.get(variable, default),
        type=kind,
        help=f"{text} (or ${variable}; default: {default or 'none'})",
    )


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a number of seconds")
    return value
