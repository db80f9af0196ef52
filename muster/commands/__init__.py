"""The commands, their arguments and their help; what they do is in the files beside this folder.

A command imports what it needs when it runs, so that `--help` is quick.
"""

import typer

from muster.commands.installing import crds, doctor, rbac, run, setup
from muster.commands.looking import get, history, logs, replay, why
from muster.commands.steering import restart, resume, scale, suspend
from muster.commands.trying import demo

app = typer.Typer(
    help="Elastic training jobs on Kubernetes, with every fact and decision in one log.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 waited too long, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

for command in (demo, run, setup, crds, rbac, get, history, logs, replay, why, scale, suspend, resume, restart, doctor):
    app.command()(command)
