"""Prints what others wrote: a control character in it never reaches a terminal, which would act on it.

With the formats that commands print and send.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

import typer

from shared.errors import Refused

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tabs and ends of lines, and those that turn the direction of a text around."""


def say(text: str, *, err: bool = False, nl: bool = True, exact: bool = False, coloured: bool = False) -> None:
    """Print a text with each control character as JSON would escape it.

    With `exact` it is left as it is where no terminal shows it: the hashes of a history cover its bytes.  One that is
    `coloured` was made harmless before.
    """
    shown = is_terminal(sys.stderr if err else sys.stdout)
    typer.echo(text if coloured or (exact and not shown) else harmless(text), err=err, nl=nl)


def is_terminal(stream: TextIO | None) -> bool:
    """True for a terminal; a process that began with its output closed has no stream at all."""
    return stream is not None and stream.isatty()


def width() -> int:
    """The columns of the terminal; 0 where the output is none."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else 0


def has_colours() -> bool:
    """True on a terminal that shows them, unless the person set NO_COLOR."""
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fail(message: str) -> typer.Exit:
    """Print one line on standard error; the exception ends the command with exit code 1."""
    say(f"muster: {message}", err=True)
    return typer.Exit(1)


@contextmanager
def wrong_usage(hint: str | None = None) -> Iterator[None]:
    """What is refused here is exit code 2, with its words as the line on standard error, of the option `hint`."""
    try:
        yield
    except (Refused, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def harmless(text: str) -> str:
    """The text with escapes in the place of control characters; JSON stays JSON of the same meaning."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


Output = Literal["table", "wide", "json", "yaml"]
"""The formats of `muster get`."""

Format = Literal["binary", "structured", "slack"]
"""The forms of a request of `muster forward`."""
