"""`muster subscriber`: readers of one namespace's events, and what they have.

The place is the copies' server of `muster run` and of the demo, whose users are in a folder of this machine, or another
one, to which its administrator adds the account first (the chart, `permissions.py`).  The rest is the same in both.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from muster.asking import CONNECT_SECONDS, open_log
from shared.errors import Refused
from shared.eventlog.account import ADMIN, STREAM, Copy
from shared.eventlog.server import address, changed_users, copies_of, local
from shared.eventlog.setup import SetUp, set_up
from shared.eventlog.subscribers import fed_copies, found_copy, remove_copy
from shared.process.settings import Settings

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


async def add(settings: Settings, folder: Path | None, namespace: str, max_bytes: int) -> None:
    """Make the copy of a namespace, or give it another size, and print how its user connects."""
    copy, password, new = Copy.of(namespace), "", False
    if folder is not None:
        settings = as_administrator(settings, folder)
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
def administrators_alone(settings: Settings) -> Iterator[None]:
    """Say who may change the log where NATS only says which subject was refused."""
    try:
        yield
    except Refused as refusal:
        if refusal.reason != "Forbidden":
            raise
        words = (
            f"set up the log: NATS_USER={settings.nats_user or ''} may not ({refusal}); give {ADMIN} and its password, "
            "or name the folder of a server that `muster run` or `muster demo` runs here with --data"
        )
        raise Refused(words, reason="Forbidden") from refusal


async def remove(settings: Settings, folder: Path | None, namespace: str) -> None:
    """Remove the copy of a namespace and its consumers, and at a server of this machine its user."""
    copy = Copy.of(namespace)
    if folder is not None:
        settings = as_administrator(settings, folder)
    async with open_log(settings) as log:
        known = copy in await fed_copies(log.connection)
        await remove_copy(log.connection, copy)
    if folder is not None:
        async with changed_users(copies_of(folder)) as users:
            users.pop(copy.user, None)
    typer.echo(f"stream {copy.name} {'removed' if known else 'was not there'}")


async def show(settings: Settings, folder: Path | None) -> None:
    """Print the copies, one line for each."""
    if folder is not None:
        settings = as_administrator(settings, folder)
    async with open_log(settings) as log:
        for copy in sorted(await fed_copies(log.connection)):
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
    with administrators_alone(settings):
        done = await set_up(
            settings.nats_url,
            subscribers={copy: max_bytes},
            patience=CONNECT_SECONDS,
            check=check,
            **settings.nats_login,
        )
    if check and STREAM in done.created:
        raise Refused(f"make the stream {copy.name}: there is no log yet; run `muster setup`", reason="NotSetUp")
    return done


def as_administrator(settings: Settings, folder: Path) -> Settings:
    url, password = local(folder)
    return settings.model_copy(update={"nats_url": url, "nats_user": ADMIN, "nats_password": password})
