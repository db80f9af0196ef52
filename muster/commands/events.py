"""The commands about events beside those of one job: `muster forward`, `muster subscriber` and `muster archive`."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from muster.commands.arguments import (
    Everywhere,
    JobName,
    Namespace,
    OneOrAll,
    named,
    running,
    settings,
    with_options,
)
from muster.terminal import Format, wrong_usage

LONGEST_SECONDS = 300.0
subscriber = typer.Typer(
    help="Add, list and remove readers of one namespace's events.  "
    "It needs an administrator's NATS credentials, or --data.",
    no_args_is_help=True,
)
archive = typer.Typer(help="Histories that left the log: what waits, checks, files, forgetting.", no_args_is_help=True)
OneUid = Annotated[str, typer.Option(help="of several jobs of the name, the one with this uid; the newest without it")]
Which = Annotated[str, typer.Argument(metavar="NAMESPACE", help="whose events it reads")]
Data = Annotated[
    Path | None,
    typer.Option(help="the folder of a server that `muster run` or `muster demo` runs here; NATS_URL's without it"),
]


class ForwardOptions(NamedTuple):
    to: Annotated[str, typer.Option("--to", envvar="MUSTER_FORWARD_TO", metavar="URL", help="where events are posted")]
    types: Annotated[list[str] | None, typer.Option("--type", help="only events of this type; may be repeated")] = None
    namespaces: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="only events of this namespace; may be repeated")
    ] = None
    phases: Annotated[
        list[str] | None,
        typer.Option("--phase", help="only events with which a job enters this phase; may be repeated"),
    ] = None
    form: Annotated[
        Format | None, typer.Option("--format", help="CloudEvents in one of their two modes, or a chat message")
    ] = None
    batch: Annotated[int, typer.Option(min=1, max=256, help="the most events of one request")] = 1
    everything: Annotated[
        bool, typer.Option("--all", help="begin with the first event there is; without it with the next one")
    ] = False
    name: Annotated[
        str, typer.Option(help="the name of the position, which two processes may share; made of URL and filters")
    ] = ""
    secret: Annotated[
        Path | None, typer.Option("--secret-file", help="sign each request with the secret in this file (whsec_...)")
    ] = None
    dead_letters: Annotated[
        Path | None,
        typer.Option("--dead-letters", help="append what the receiver does not take; without it the command ends then"),
    ] = None
    tries: Annotated[int, typer.Option(min=1, help="how often to try what the receiver answers with 4xx")] = 5
    timeout: Annotated[
        float, typer.Option(min=0.1, max=LONGEST_SECONDS, metavar="SECONDS", help="how long an answer may take")
    ] = 30.0

    @property
    def mode(self) -> Format:
        return self.form or ("structured" if self.batch > 1 else "binary")


@with_options
def forward(options: ForwardOptions) -> None:
    """Send events to a web address, each at least once: CloudEvents over HTTP, or lines for a chat.

    It reads with the user `subscriber` at NATS, and goes on where it was when it is started again.

    The failures of one namespace to a chat:

        muster forward --to https://hooks.slack.com/services/... --format slack -n team-a --phase Failed

    Everything to a broker of Knative, and signed batches to a receiver of your own:

        muster forward --to http://broker-ingress.knative-eventing.svc/team-a/default

        muster forward --to https://example.com/events --batch 100 --secret-file secret --dead-letters lost.jsonl
    """
    from yarl import URL

    from muster.forward import forward as send
    from muster.outgoing import PHASES
    from muster.schemas import KINDS
    from shared.telling.targets import must_be_names

    try:
        url = URL(options.to)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise typer.BadParameter("say where events are posted: --to https://example.com/events")
    for kind in options.types or ():
        if kind not in KINDS:
            raise typer.BadParameter(f"no event has the type {kind}; `muster schema` prints all of them")
    for phase in options.phases or ():
        if phase not in PHASES:
            raise typer.BadParameter(f"{phase} is no phase; say one of {', '.join(PHASES)}")
    if options.batch > 1 and options.form == "binary":
        raise typer.BadParameter("a batch has no binary mode; leave --format out")
    with wrong_usage():
        must_be_names(*(options.namespaces or ()), options.name)
    if "." in options.name:
        raise typer.BadParameter("the name of a position has no dot")
    running(lambda: send(settings(), options))


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
    from muster.setup import add_subscriber

    running(lambda: add_subscriber(settings(), data, namespace, size))


@subscriber.command("list")
def show(data: Data = None) -> None:
    """Print each copy's user, how much it has, and the number of its consumers."""
    from muster.setup import show_subscribers

    running(lambda: show_subscribers(settings(), data))


@subscriber.command("remove")
def remove(namespace: Which, data: Data = None) -> None:
    """Remove a namespace's copy with its consumers, and with --data its user.

    At a server of your own, take the account out afterwards.
    """
    from muster.setup import remove_subscriber

    running(lambda: remove_subscriber(settings(), data, namespace))


@archive.command("status")
def status(namespace: Namespace = "", everywhere: Everywhere = False) -> None:
    """Print how full the archive is, how many sealed histories wait for it, and why."""
    from muster.archive import status as shown

    running(lambda: shown(settings(), "" if everywhere else namespace))


@archive.command("verify")
def verify(target: OneOrAll = "", namespace: Namespace = "", everywhere: Everywhere = False) -> None:
    """Compare each archived history with its seal; exit code 1 when one differs."""
    from muster.archive import verify as verified

    asked = named(target) if target else None
    running(lambda: verified(settings(), asked, "" if everywhere else namespace))


@archive.command("export")
def export(
    target: OneOrAll = "",
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    uid: OneUid = "",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="a file for each job: NAMESPACE/NAME/UID.jsonl")
    ] = None,
) -> None:
    """Print an archived history as JSON Lines, or write many into a folder."""
    from muster.archive import export as exported

    if not target and to is None:
        raise typer.BadParameter("name a job, or a folder with --to")
    asked = named(target) if target else None
    running(lambda: exported(settings(), asked, "" if everywhere else namespace, uid, to))


@archive.command("forget")
def forget(
    target: JobName,
    reason: Annotated[str, typer.Option(help="why: it stays, with the hash of what was removed")],
    namespace: Namespace = "",
    uid: OneUid = "",
) -> None:
    """Remove an archived history, with an administrator's NATS credentials."""
    from muster.archive import forget as forgotten

    running(lambda: forgotten(settings(), named(target), namespace, uid, reason))
