"""`muster archive`: the commands about histories that left the log."""

from pathlib import Path
from typing import Annotated

import typer

from muster.commands.arguments import JobName, Namespace, named, settings

archive = typer.Typer(help="Histories that left the log: what waits, checks, files, forgetting.", no_args_is_help=True)
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", is_eager=True, help="of all namespaces")]
OneOrAll = Annotated[str, typer.Argument(metavar="[KIND/NAME]", help="the job; all of the namespace without it")]
Uid = Annotated[str, typer.Option(help="of several jobs of the name, the one with this uid; the newest without it")]


@archive.command("status")
def status(namespace: Namespace = "", everywhere: Everywhere = False) -> None:
    """Print how full the archive is, how many sealed histories wait for it, and why."""
    from muster.archive import status as shown
    from muster.asking import run as running

    running(lambda: shown(settings(), "" if everywhere else namespace))


@archive.command("verify")
def verify(target: OneOrAll = "", namespace: Namespace = "", everywhere: Everywhere = False) -> None:
    """Compare each archived history with its seal; exit code 1 when one differs."""
    from muster.archive import verify as verified
    from muster.asking import run as running

    asked = named(target) if target else None
    running(lambda: verified(settings(), asked, "" if everywhere else namespace))


@archive.command("export")
def export(
    target: OneOrAll = "",
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    uid: Uid = "",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="a file for each job: NAMESPACE/NAME/UID.jsonl")
    ] = None,
) -> None:
    """Print an archived history as JSON Lines, or write many into a folder."""
    from muster.archive import export as exported
    from muster.asking import run as running

    if not target and to is None:
        raise typer.BadParameter("name a job, or a folder with --to")
    asked = named(target) if target else None
    running(lambda: exported(settings(), asked, "" if everywhere else namespace, uid, to))


@archive.command("forget")
def forget(
    target: JobName,
    reason: Annotated[str, typer.Option(help="why: it stays, with the hash of what was removed")],
    namespace: Namespace = "",
    uid: Uid = "",
) -> None:
    """Remove an archived history, with an administrator's NATS credentials."""
    from muster.archive import forget as forgotten
    from muster.asking import run as running

    running(lambda: forgotten(settings(), named(target), namespace, uid, reason))
