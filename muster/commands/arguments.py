"""Arguments that several commands take, their completion in a shell, and the settings of the environment."""

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from muster.terminal import fail, wrong_usage
from shared.errors import Refused

if TYPE_CHECKING:
    from shared.cluster.kube import KubeCluster
    from shared.process.settings import Settings
    from shared.telling.targets import Asked

TIMEOUT_SECONDS = 600
"""Seconds that a command waits without `--timeout`: longer than the end of pods or the pull of images takes."""
PATIENCE_SECONDS = 2.0
"""How long a person waits for a completion; without an answer by then there is none."""


def settings() -> "Settings":
    """The settings of the environment.  Exits with one line for a bad one."""
    from pydantic import ValidationError

    from shared.process.settings import Settings, complaint

    try:
        return Settings()
    except ValidationError as error:
        raise fail(complaint(error)) from error


def in_namespace(namespace: str | None) -> "Settings":
    """The settings of the environment, of an installation for this namespace if one is given."""
    return settings() if namespace is None else settings().model_copy(update={"namespace": namespace})


def named(text: str) -> "Asked":
    """The job or the request of a KIND/NAME.  Wrong usage if it is none."""
    from shared.telling.targets import parse_target

    with wrong_usage():
        return parse_target(text)


def named_job(text: str, command: str, does: str) -> "Asked":
    """The job of a KIND/NAME, for the command that does this with it.  Wrong usage if it is a request or nothing."""
    asked = named(text)
    if asked.is_request:
        raise typer.BadParameter(f"`muster {command}` {does} jobs; `muster why` explains a request")
    return asked


def or_current(context: typer.Context, namespace: str) -> str:
    """The given namespace, or that of kubectl's current context; empty with `-A`."""
    from shared.cluster.access import current_namespace

    if context.params.get("everywhere"):
        return ""
    try:
        known = settings()
        return namespace or current_namespace(known.kubeconfig, known.context)
    except Refused as refusal:
        raise fail(str(refusal)) from refusal


def or_all(context: typer.Context, namespace: str) -> str:
    """The given namespace; without one that of the current context for a job, and an empty one for all."""
    return or_current(context, namespace) if context.params.get("file") else namespace


def of_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The command with kubectl's options `--kubeconfig` and `--context`, which become settings of this process."""

    @functools.wraps(command)
    def chosen(*args: object, kubeconfig: str, context: str, **options: object) -> None:
        command(*args, **options)

    def option(name: str, setting: str, metavar: str, told: str) -> inspect.Parameter:
        def choose(context: typer.Context, value: str) -> str:
            if value:
                os.environ[setting] = value
            if value and name == "kubeconfig" and not (context.resilient_parsing or Path(value).expanduser().is_file()):
                raise fail(f"there is no kubeconfig at {value}")
            return value

        # Eager: the default of the namespace depends on it.
        given = typer.Option(metavar=metavar, is_eager=True, callback=choose, show_default=False, help=told)
        hint = Annotated[str, given]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=hint)

    added = (
        option("kubeconfig", "KUBECONFIG", "FILE", "the kubeconfig, instead of kubectl's"),
        option("context", "MUSTER_CONTEXT", "NAME", "the context of the kubeconfig, instead of the current one"),
    )
    signature = inspect.signature(command)
    wrapped = cast("Any", chosen)
    wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])
    wrapped.__annotations__ = command.__annotations__ | {each.name: each.annotation for each in added}
    return chosen


def with_options(command: Callable[[Any], None]) -> Callable[..., None]:
    """The command whose options are the fields of its only parameter, a `NamedTuple` of them with their defaults."""
    (options,) = (kind for name, kind in get_type_hints(command).items() if name != "return")

    @functools.wraps(command)
    def chosen(**given: object) -> None:
        command(options(**given))

    wrapped = cast("Any", chosen)
    wrapped.__signature__ = inspect.signature(options)
    wrapped.__annotations__ = get_type_hints(options, include_extras=True)
    return chosen


def running(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a command's coroutine as `muster.asking` does, which is not imported for the help of a command."""
    from muster.asking import run

    run(work)


def on_cluster(work: "Callable[[KubeCluster], Awaitable[None]]") -> None:
    """Run `work` with the cluster of kubectl's current context."""
    from muster.asking import open_cluster

    async def connected() -> None:
        async with open_cluster(settings()) as cluster:
            await work(cluster)

    running(connected)


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """What may be meant: `trainingjob/resnet` and the like, and names alone once one is begun."""
    found: list[tuple[str, str]] = []
    # No line of an error may come between a person and the prompt.
    with suppress(Exception, SystemExit):
        namespace = str(context.params.get("namespace") or "")
        found = asyncio.run(asyncio.wait_for(_jobs(settings(), namespace), PATIENCE_SECONDS))
    return sorted({word for kind, name in found for word in _words(kind, name, incomplete)})


def _words(kind: str, name: str, incomplete: str) -> Iterator[str]:
    if incomplete and name.startswith(incomplete):
        yield name
    if f"{kind}/{name}".startswith(incomplete):
        yield f"{kind}/{name}"


async def _jobs(settings: "Settings", namespace: str) -> list[tuple[str, str]]:
    """The kind, as commands call it, and the name of each job; a kind that cannot be listed is left out."""
    from muster.asking import open_cluster
    from muster.jobs import objects
    from shared.cluster.access import current_namespace
    from shared.telling.shown import called
    from shared.telling.targets import known_kinds

    kinds = known_kinds()
    where = namespace or current_namespace(settings.kubeconfig, settings.context)
    async with open_cluster(settings) as cluster:
        lists = await asyncio.gather(
            *(objects(cluster, kind.resource.by_metadata, where) for kind in kinds), return_exceptions=True
        )
    return [
        (called(kind, kinds), job.metadata.name)
        for kind, listed in zip(kinds, lists, strict=True)
        if isinstance(listed, tuple)
        for job in listed
    ]


Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", callback=or_current, show_default="the current context's", help="the namespace"),
]
NamespaceOrAll = Annotated[
    str,
    typer.Option("--namespace", "-n", callback=or_all, help="the namespace; the current context's of a job, else all"),
]
JobName = Annotated[
    str,
    typer.Argument(metavar="KIND/NAME", help="the job: trainingjob/NAME, or only NAME", autocompletion=job_names),
]
"""A string, which the command parses with `named`: typer's help would show the name of another type."""
OneOrAll = Annotated[
    str,
    typer.Argument(metavar="[KIND/NAME]", help="one job; all of the namespace without it", autocompletion=job_names),
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", is_eager=True, help="the jobs of all namespaces")]
Uid = Annotated[str, typer.Option(help="an earlier job of that name, by its uid; the newest without it")]
Nats = Annotated[
    bool,
    typer.Option(
        "--nats", help="ask the log itself, as with NATS_URL or NATS_USER set, and not the cluster's history.muster.dev"
    ),
]
Wait = Annotated[bool, typer.Option(help="wait until it is done, and print each phase on the way")]
Timeout = Annotated[
    int, typer.Option(min=0, metavar="SECONDS", help="how long to wait, 0 for ever; after that the exit code is 3")
]
