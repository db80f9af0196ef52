"""`muster setup`: the log, the definitions and the claim of the scope, one line for each.

The rules about changes are in `shared.eventlog.streams` for streams, `muster.crds` for definitions and
`shared.cluster.scope` for claims.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import typer

from muster.asking import CONNECT_SECONDS, open_cluster
from muster.commands.installing import SetupOptions
from muster.definitions import Definitions
from muster.following import WAITED_TOO_LONG
from muster.subscribers import administrators_alone, as_administrator, sizes_of
from shared.cluster.examination import must_allow
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Trouble
from shared.eventlog.setup import SetUp
from shared.eventlog.setup import set_up as set_up_log
from shared.eventlog.streams import CONFIGS
from shared.installation.permissions import set_up as rights
from shared.installation.plugins import chosen, kinds
from shared.process.settings import Settings

BETWEEN_TRIES_SECONDS = 1.0

FIXED_BY_OTHERS = frozenset(
    {
        "BadKubeconfig",
        "Disconnected",
        "Forbidden",
        "NameConflict",
        "NoAccount",
        "NoCluster",
        "NoPassword",
        "ScopeTaken",
        "Unauthorized",
        "Unfit",
        "Untrusted",
    }
)
"""Reasons that another person or program can remove while `--wait` retries.

A lost log and a wrong argument are not among them: the next try could hide them.
"""

T = TypeVar("T")


async def set_up(settings: Settings, options: SetupOptions) -> None:
    """Set up, or with `check` print the changes.  Raises `Refused`, and `Exit` with 3 after the timeout."""
    if options.data is not None:
        settings = as_administrator(settings, options.data)
    patience = _Patience(options.timeout, FIXED_BY_OTHERS if options.wait else frozenset())
    if options.log_only:
        changes = _tell_log(await patience(lambda: _log(settings, options, check=options.check)), check=options.check)
    else:
        async with contextlib.AsyncExitStack() as stack:
            cluster = await patience(lambda: stack.enter_async_context(open_cluster(settings)))
            changes = await _with_cluster(settings, options, cluster, patience)
    if options.check and changes:
        raise typer.Exit(1)


async def _with_cluster(settings: Settings, options: SetupOptions, cluster: KubeCluster, patience: "_Patience") -> bool:
    """Return True if a change was made, or with `check` would be."""
    known, check, take = kinds(), options.check, options.take_crds
    definitions = Definitions(
        cluster, chosen(known, settings.kinds), settings.namespace, known=known, check=check, take=take
    )
    remedy = "grant it to the user of `muster setup`, in a ClusterRole"
    await patience(lambda: must_allow(cluster, rights(known), remedy))
    if options.release:
        identity = "" if options.take_scope else (await patience(lambda: _log(settings, options, check=True))).identity
        typer.echo(await patience(lambda: definitions.release(identity, forced=options.take_scope)))
        return True

    async def free() -> SetUp:
        # The log is read at each try: another set-up may make it, and claim for it, meanwhile.
        found = await _log(settings, options, check=True)
        if not options.take_scope:
            await definitions.must_be_free(found.identity)
        return found

    # Checked before the log is made: services of one namespace may not read claims, and wait for the log instead.
    found = await patience(free)
    done = found if options.check else await patience(lambda: _log(settings, options, check=False))
    changes = _tell_log(done, check=options.check)
    return await patience(lambda: definitions.apply(done.identity, done.url, take_scope=options.take_scope)) or changes


async def _log(settings: Settings, options: SetupOptions, *, check: bool) -> SetUp:
    with administrators_alone(settings):
        return await set_up_log(
            settings.nats_url,
            replicas=options.replicas,
            max_bytes=options.max_bytes,
            archive_bytes=options.archive_bytes,
            subscribers=sizes_of(options.subscribers, options.subscriber or ()),
            patience=CONNECT_SECONDS,
            check=check,
            **settings.nats_login,
        )


def _tell_log(done: SetUp, *, check: bool) -> bool:
    grown = {sentence.partition(":")[0] for sentence in done.grown}
    for stream in dict.fromkeys((*(str(config["name"]) for config in CONFIGS), *done.created)):
        if stream in done.created:
            typer.echo(f"stream {stream} {'would be ' * check}created")
        elif stream not in grown:
            typer.echo(f"stream {stream} unchanged")
    for sentence in done.grown:
        typer.echo(f"stream {sentence}{', once it is set up' * check}")
    for sentence in done.kept:
        typer.echo(f"stream {sentence}", err=True)
    for sentence in done.differences:
        typer.echo(f"stream {sentence}; left alone", err=True)
    if done.identity:
        typer.echo(f"log {done.identity} is set up")
    return bool(done.created or done.grown)


class _Patience:
    """Retries work until the timeout, and prints why."""

    def __init__(self, seconds: float, fixable: Collection[str]) -> None:
        """`fixable` are the reasons of refusals that are retried, too."""
        self._seconds = seconds
        self._fixable = fixable
        self._until = asyncio.get_running_loop().time() + (seconds or float("inf"))
        self._said = ""

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except Trouble as trouble:
                if isinstance(trouble, Refused) and trouble.reason not in self._fixable:
                    raise
                if asyncio.get_running_loop().time() >= self._until:
                    typer.secho(f"muster: waited {self._seconds:g} s: {trouble}", err=True)
                    raise typer.Exit(WAITED_TOO_LONG) from trouble
                if str(trouble) != self._said:
                    self._said = str(trouble)
                    typer.echo(f"waiting: {trouble}", err=True)
            await asyncio.sleep(BETWEEN_TRIES_SECONDS)
