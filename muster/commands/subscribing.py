"""The commands about readers of one namespace's events."""

from pathlib import Path
from typing import Annotated

import typer

from muster.commands.arguments import settings

subscriber = typer.Typer(
    help="Add, list and remove readers of one namespace's events.  "
    "It needs an administrator's NATS credentials, or --data.",
    no_args_is_help=True,
)

Which = Annotated[str, typer.Argument(metavar="NAMESPACE", help="whose events it reads")]
Data = Annotated[
    Path | None,
    typer.Option(help="the folder of a server that `muster run` or `muster demo` runs here; NATS_URL's without it"),
]


@subscriber.command("add")
def add(
    namespace: Which,
    size: Annotated[
        int, typer.Option(min=2**20, metavar="BYTES", help="of the copy of its events; the oldest leave it when full")
    ] = 2**28,
    data: Data = None,
) -> None:
    """Make a copy of a namespace's events and its user, or another size; print how to connect.

    It is safe to repeat.  At a server of your own, add the account first (docs/events.md).
    """
    from muster.reading import run as running
    from muster.subscribers import add as adding

    running(lambda: adding(settings(), data, namespace, size))


@subscriber.command("list")
def show(data: Data = None) -> None:
    """Print each copy's user, how much it has, and the number of its consumers."""
    from muster.reading import run as running
    from muster.subscribers import show as showing

    running(lambda: showing(settings(), data))


@subscriber.command("remove")
def remove(namespace: Which, data: Data = None) -> None:
    """Remove a namespace's copy with its consumers, and with --data its user.

    At a server of your own, take the account out afterwards.
    """
    from muster.reading import run as running
    from muster.subscribers import remove as removing

    running(lambda: removing(settings(), data, namespace))
