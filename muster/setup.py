"""`muster setup`: the log, the definitions and the claim of the scope, one line for each; and `muster subscriber`.

The rules about changes are in `shared.eventlog.streams` for streams, `muster.crds` for definitions and
`shared.cluster.scope` for claims.

The place of a subscriber's copy is the copies' server of `muster run` and of the demo, whose users are in a folder of
this machine, or another one, to which its administrator adds the account first (the chart, `permissions.py`).
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer

from muster.asking import CONNECT_SECONDS, open_cluster, open_log
from muster.commands.installing import SetupOptions
from muster.definitions import Definitions
from muster.following import WAITED_TOO_LONG
from shared.cluster.examination import must_allow
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Trouble
from shared.eventlog.account import ADMIN, STREAM, Copy
from shared.eventlog.server import address, changed_users, copies_of, local
from shared.eventlog.setup import SetUp
from shared.eventlog.setup import set_up as set_up_log
from shared.eventlog.streams import CONFIGS
from shared.eventlog.subscribers import fed_copies, found_copy, remove_copy
from shared.installation.permissions import set_up as rights
from shared.installation.plugins import chosen, kinds
from shared.process.settings import Settings

BETWEEN_TRIES_SECONDS = 1.0

FIXED_BY_OTHERS = frozenset(
    {
        "BadKubeconfig",
        "Denied",
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
    return await _set_up_log(
        settings,
        check=check,
        replicas=options.replicas,
        max_bytes=options.max_bytes,
        archive_bytes=options.archive_bytes,
        subscribers=sizes_of(options.subscribers, options.subscriber or ()),
    )


async def _set_up_log(settings: Settings, *, check: bool, **wanted: Any) -> SetUp:
    with administrators_alone(settings):
        return await set_up_log(
            settings.nats_url, patience=CONNECT_SECONDS, check=check, **wanted, **settings.nats_login
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


SMALLEST = 2**20


def sizes_of(everything: int | None, namespaces: Iterable[str]) -> dict[Copy, int]:
    """The sizes of copies: of all events, and of each `NAMESPACE=BYTES`.  Raises `Refused` for another spelling."""
    sizes = {} if everything is None else {Copy(): everything}
    for each in namespaces:
        namespace, _, size = each.partition("=")
        if not (size.isascii() and size.isdigit()) or int(size) < SMALLEST:
            words = f"{each[:80]!r} is not NAMESPACE=BYTES, with at least {SMALLEST} bytes"
            raise Refused(words, reason="Invalid")
        sizes[Copy.of(namespace)] = int(size)
    return sizes


async def add_subscriber(settings: Settings, folder: Path | None, namespace: str, max_bytes: int) -> None:
    """Make the copy of a namespace, or give it another size, and print how its user connects."""
    copy, password, new = Copy.of(namespace), "", False
    settings = as_administrator(settings, folder)
    if folder is not None:
        async with changed_users(copies_of(folder)) as users:
            new = copy.user not in users
            password = users.setdefault(copy.user, secrets.token_urlsafe(18))
    try:
        # Without a log there is nothing to copy, and only `muster setup` makes one.
        await _made(settings, copy, max_bytes, check=True)
        done = await _made(settings, copy, max_bytes, check=False)
    except Refused:
        if folder is not None and new:
            async with changed_users(copies_of(folder)) as users:
                users.pop(copy.user, None)
        raise
    typer.echo(f"# stream {copy.name} {'created' if copy.name in done.created else 'is there'}")
    for sentence in done.grown:
        typer.echo(f"# stream {sentence}")
    if folder is not None:
        typer.echo(f"export NATS_URL={address(copies_of(folder))}")
    else:
        typer.echo("# NATS_URL is that of the copies' server")
    typer.echo(f"export NATS_USER={copy.user}")
    typer.echo(f"export NATS_PASSWORD={password}" if password else "# its password is what the server was given")
    typer.echo(f"# nats sub '*.{namespace}.>' --stream={STREAM} --all")


@contextmanager
def administrators_alone(settings: Settings, what: str = "set up the log") -> Iterator[None]:
    """Say who may do this where NATS only says which subject was refused."""
    try:
        yield
    except Refused as refusal:
        if refusal.reason != "Forbidden":
            raise
        words = (
            f"{what}: NATS_USER={settings.nats_user or ''} may not ({refusal}); give {ADMIN} and its password, "
            "or name the folder of a server that `muster run` or `muster demo` runs here with --data"
        )
        raise Refused(words, reason="Forbidden") from refusal


async def remove_subscriber(settings: Settings, folder: Path | None, namespace: str) -> None:
    """Remove the copy of a namespace and its consumers, and at a server of this machine its user."""
    copy = Copy.of(namespace)
    settings = as_administrator(settings, folder)
    async with open_log(settings) as log:
        with administrators_alone(settings, "remove a subscriber"):
            known = copy in await fed_copies(log.connection)
            await remove_copy(log.connection, copy)
    if folder is not None:
        async with changed_users(copies_of(folder)) as users:
            users.pop(copy.user, None)
    typer.echo(f"stream {copy.name} {'removed' if known else 'was not there'}")


async def show_subscribers(settings: Settings, folder: Path | None) -> None:
    """Print the copies, one line for each."""
    settings = as_administrator(settings, folder)
    async with open_log(settings) as log:
        with administrators_alone(settings, "list subscribers"):
            copies = await fed_copies(log.connection)
        for copy in sorted(copies):
            try:
                found = await found_copy(log.connection, copy)
            except Refused as refusal:
                typer.echo(f"{copy.user}: {refusal}")
                continue
            if found is not None:
                state, size = found.state, found.config["max_bytes"]
                has = f"{state.messages} events in {state.bytes} of {size} bytes, {state.consumer_count} consumers"
                typer.echo(f"{copy.user}: {has}")


async def _made(settings: Settings, copy: Copy, max_bytes: int, *, check: bool) -> SetUp:
    done = await _set_up_log(settings, check=check, subscribers={copy: max_bytes})
    if check and STREAM in done.created:
        raise Refused(f"make the stream {copy.name}: there is no log yet; run `muster setup`", reason="NotSetUp")
    return done


def as_administrator(settings: Settings, folder: Path | None) -> Settings:
    """The settings for the log's server of this folder, if one is given."""
    if folder is None:
        return settings
    url, password = local(folder)
    return settings.model_copy(update={"nats_url": url, "nats_user": ADMIN, "nats_password": password})
