"""`muster archive`: what waits and why, whether histories are what their seals say, histories as files, forgetting."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec
import typer

from muster.asking import open_log
from muster.history import must_be_administrator
from muster.terminal import fail, say
from shared.errors import Refused
from shared.eventlog import Stored, inspection
from shared.eventlog.account import ARCHIVE, ARCHIVER
from shared.eventlog.inspection import of_stream, size
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.parts import Part, Seal, seal_of
from shared.eventlog.subject import Subject, archived_under, seals
from shared.job.naming import JobKey, archived_as, history_filters, key_archived, key_of
from shared.job.text import counted
from shared.process.settings import Settings
from shared.telling.reading import fold_to_end, line_of
from shared.telling.sealed import Copy, batches_of, check_of_log, forgotten, kept, newest_of
from shared.telling.targets import Asked, must_be_names

AT_ONCE = 32
"""Seals that are looked at together."""
MOST_EXPLAINED = 20
"""The most histories that wait of which the reason is told."""


class Waiting(msgspec.Struct, frozen=True):
    """A sealed history whose events are in the log."""

    key: JobKey
    sequence: int
    since: str
    seal: Seal


async def status(settings: Settings, namespace: str) -> None:
    """Print how full the archive is, and which sealed histories wait for it."""
    async with open_log(settings) as log:
        there, waiting = await inspection.stream(log, ARCHIVE), await found_waiting(log, namespace)
        holders = [each.holder for each in (await inspection.holdings(log))[0] if each.key.startswith(ARCHIVER)]
        if there is None:
            say("there is no archive: run `muster setup`")
        else:
            room = of_stream(there)
            most = f" of at most {size(room.most)}" if room.most else ""
            say(f"archive: {counted(there.state.messages, 'message')}, {size(room.used)}{most}")
        say(f"archiver: {', '.join(holders) or 'none works'}")
        since = f", the oldest since {waiting[0].since[:19]}" if waiting else ""
        say(f"sealed, and still in the log: {len(waiting)}{since}")
        for each in waiting[:MOST_EXPLAINED]:
            say(f"  {each.key}  {each.key.uid}  {await _why(log, each, working=bool(there and holders))}")


async def found_waiting(log: JetStreamEventLog, namespace: str = "") -> list[Waiting]:
    """The sealed histories whose events are in the log, the oldest first."""
    sealed: list[Waiting] = []

    def note(stored: Stored) -> None:
        key, seal = key_of(Subject.parse(stored.subject)), seal_of(stored.body)
        sealed.append(Waiting(key, stored.sequence, stored.logged, seal))

    await fold_to_end(log, note, (seals(namespace or "*"),))
    places = asyncio.Semaphore(AT_ONCE)

    async def first(each: Waiting) -> int:
        async with places:
            return await log.first(history_filters(each.key))

    begins = await asyncio.gather(*map(first, sealed))
    return [each for each, begin in zip(sealed, begins, strict=True) if 0 < begin < each.sequence]


async def _why(log: JetStreamEventLog, waiting: Waiting, *, working: bool) -> str:
    subject = archived_as(waiting.key)
    if fault := (await kept(log.archive, subject, waiting.seal)).fault:
        return f"the archive differs from the seal: {fault}"
    check = await check_of_log(log, waiting.key, waiting.sequence)
    if fault := check.fault(waiting.seal):
        return f"the log differs from the seal: {fault}"
    return "its turn comes" if working else "waits for an archiver"


async def verify(settings: Settings, asked: Asked | None, namespace: str) -> None:
    """Fold every history of the archive, or of one name, and compare it with its seal; exit code 1 if one differs."""
    copies: dict[tuple[str, Seal], Copy] = {}
    wrong, right = _Wrong(), 0
    async with open_log(settings) as log, aclosing(log.archive.parts(_filter(asked, namespace), 0, wrong.add)) as parts:
        async for part in parts:
            at = part.subject, part.seal
            copy = copies.setdefault(at, Copy(*at))
            copy.add(part)
            if (fault := copy.fault) is not None:
                if fault:
                    wrong.add(f"{part.subject}: {fault}")
                right += not fault
                del copies[at]
    for copy in copies.values():
        wrong.add(f"{copy.subject}: parts of it are missing")
    if asked is not None and not right + wrong.number:
        raise Refused(_unknown(asked, namespace), reason="NotFound")
    say(f"histories of the archive that are what their seals say: {right}, different: {wrong.number}")
    if wrong.number:
        raise typer.Exit(1)


class _Wrong:
    """What is no history, or another than its seal says: it is told, and hides none of the others."""

    def __init__(self) -> None:
        self.number = 0

    def add(self, what: object) -> None:
        self.number += 1
        say(str(what), err=True)


async def export(settings: Settings, asked: Asked | None, namespace: str, uid: str, folder: Path | None) -> None:
    """Print the lines of a history, or write each history that can be read into a file of its own."""
    async with open_log(settings) as log:
        if folder is None:
            assert asked is not None, "the command has a job or a folder"
            newest = await _named(log, asked, namespace, uid)
            if newest.forgotten:
                raise forgotten(newest)
            async with aclosing(batches_of(log.archive, newest, newest.subject)) as batches:
                async for batch in batches:
                    for stored in batch:
                        say(line_of(stored), exact=True)
            return
        written, wrong = 0, _Wrong()
        async with aclosing(_whole(log, _filter(asked, namespace, uid), wrong)) as histories:
            async for subject, lines in histories:
                key = key_archived(subject)
                must_be_names(key.namespace, key.name, key.uid)
                # A name of two dots, which Kubernetes gives to none, stays below the folder.
                place = folder / key.namespace.replace(".", "_") / key.name
                await asyncio.to_thread(_write, place, f"{key.uid}.jsonl", lines)
                written += 1
        # No failure: what is damaged stays so, and would keep the rest from being copied each night.
        say(f"{counted(written, 'file')} in {folder}" + (f", {wrong.number} left out" if wrong.number else ""))


async def _whole(log: JetStreamEventLog, subject: str, wrong: _Wrong) -> AsyncGenerator[tuple[str, bytes], None]:
    """Each history under a filter, with its lines."""
    # A restored log may have sealed a job again before all parts of its first copy were there.
    known: dict[tuple[str, Seal], list[Part]] = {}
    async with aclosing(log.archive.parts(subject, 0, wrong.add)) as parts:
        async for part in parts:
            if part.forgotten:
                continue
            known.setdefault((part.subject, part.seal), []).append(part)
            if part.number == part.of:
                there = known.pop((part.subject, part.seal))
                if [each.number for each in there] != [*range(1, part.of + 1)]:
                    wrong.add(f"{part.subject}: parts of it are missing")
                    continue
                lines = (line for each in there for line in each.lines)
                try:
                    history = b"".join(b"%s\n" % line for line in lines)
                except ValueError as damaged:
                    wrong.add(f"{part.subject}: {damaged}")
                else:
                    yield part.subject, history


def _write(folder: Path, name: str, lines: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{name}.new"
    with new.open("wb") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / name)


async def forget(settings: Settings, asked: Asked, namespace: str, uid: str, reason: str) -> None:
    """Remove a history from the archive, as its administrator; its hash and the reason stay."""
    must_be_administrator(settings, "forgets a history")
    async with open_log(settings) as log:
        newest = await _named(log, asked, namespace, uid)
        seal = await log.archive.forget(newest.subject, reason)
        if seal is None:
            raise fail(f"{namespace}/{asked.name} was forgotten already: {newest.forgotten}")
        say(f"{newest.subject}: removed; what stays is its hash {seal.hash[:16]}... and the reason")


def _unknown(asked: Asked, namespace: str) -> str:
    return f"the archive has no {asked.kind} {namespace}/{asked.name}"


async def _named(log: JetStreamEventLog, asked: Asked, namespace: str, uid: str) -> Part:
    if asked.is_request:
        raise fail("only a job has a history; name the job")
    found = await newest_of(log, asked, namespace, uid or "*")
    if found is None:
        raise Refused(_unknown(asked, namespace), reason="NotFound")
    return found


def _filter(asked: Asked | None, namespace: str, uid: str = "") -> str:
    name = asked.name if asked is not None else ""
    must_be_names(namespace, name, uid)
    return archived_under(namespace or "*", name or "*", uid or "*")
