"""The command that shows jobs in a browser."""

from typing import Annotated

import typer

from muster.commands.arguments import Namespace, Nats, settings


def ui(
    namespace: Namespace = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", is_eager=True, help="list the jobs of all namespaces")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port on 127.0.0.1; 0 for any that is free")] = 8686,
    nats: Nats = False,
) -> None:
    """Show jobs, their timelines and the fleet in a browser, with the rights of the other commands, until Ctrl-C."""
    from muster.asking import run as running
    from muster.page.server import ui as serve

    where = "" if everywhere else namespace
    running(lambda: serve(settings(), where, nats=nats, port=port))
