"""The commands, their arguments and their help; the files beside this folder carry them out.

A command imports what it needs when it runs, so that `--help` is quick.
"""

from typing import Annotated

import typer
from typer.main import get_command

from muster.commands.arguments import of_cluster
from muster.commands.events import archive, forward, subscriber
from muster.commands.installing import audit_policy, crds, demo, doctor, rbac, run, setup, try_program
from muster.commands.jobs import (
    audit,
    get,
    history,
    logs,
    replay,
    report,
    restart,
    resume,
    scale,
    schema,
    suspend,
    timeline,
    trace,
    ui,
    why,
)
from muster.terminal import say

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
    of_cluster(timeline),
    of_cluster(trace),
    of_cluster(ui),
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
    made.command("try")(try_program)
    made.add_typer(subscriber, name="subscriber")
    made.add_typer(archive, name="archive")
    return made


def carry_out(*, plugin: bool) -> int:
    """Run the command that `sys.argv` has, and return its exit code; wrong usage is one line on standard error.

    `plugin` is true of kubectl's plug-in: a shell asks kubectl for completions then, and not this program.
    """
    program = "kubectl muster" if plugin else "muster"
    command = get_command(application(completion=not plugin))
    try:
        # The group returns the exit code of a command that raised `Exit`, and the None of any other.
        ended: int | None = command.main(prog_name=program, standalone_mode=False)
    except typer.TyperException as wrong:
        told = wrong.format_message().removeprefix("Invalid value: ").replace(": Value error, ", ": ")
        # Without any arguments there are no words: the help was printed.
        if words := " ".join(told.split()).removesuffix("."):
            context: typer.Context | None = getattr(wrong, "ctx", None)
            where = context.command_path if context else program
            if where == program and words.startswith("No such option"):
                words += "; write it after the command"
            if words == "No such command 'verify'":
                words += f": `{program} replay --verify` compares the log, `{program} archive verify` the archive"
            say(f"muster: {words}; see {where} --help", err=True)
        return wrong.exit_code
    return ended or 0


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
