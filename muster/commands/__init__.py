"""The commands, their arguments and their help; the files beside this folder carry them out.

A command imports what it needs when it runs, so that `--help` is quick.
"""

from typing import Annotated

import typer

from muster.commands.arguments import of_cluster
from muster.commands.installing import audit_policy, crds, doctor, rbac, run, setup
from muster.commands.looking import audit, get, history, logs, replay, report, schema, why
from muster.commands.sending import forward
from muster.commands.steering import restart, resume, scale, suspend
from muster.commands.subscribing import subscriber
from muster.commands.trying import demo

COMMANDS = (
    demo,
    of_cluster(run),
    of_cluster(setup),
    crds,
    rbac,
    audit_policy,
    of_cluster(get),
    of_cluster(history),
    of_cluster(report),
    of_cluster(audit),
    of_cluster(logs),
    of_cluster(replay),
    of_cluster(why),
    schema,
    forward,
    of_cluster(scale),
    of_cluster(suspend),
    of_cluster(resume),
    of_cluster(restart),
    of_cluster(doctor),
)


def application(*, completion: bool = True) -> typer.Typer:
    """The program; `completion` adds the options that install shell completion for the name `muster`."""
    made = typer.Typer(
        epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 waited too long, 130 Ctrl-C.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=completion,
    )
    made.callback()(options)
    for command in COMMANDS:
        made.command()(command)
    made.add_typer(subscriber, name="subscriber")
    return made


def _tell_version(asked: bool) -> None:
    if asked:
        from shared.release import this_release

        typer.echo(f"muster {this_release()}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the release and exit.")
    ] = False,
) -> None:
    """Elastic training jobs on Kubernetes, with every fact and decision in one log."""
