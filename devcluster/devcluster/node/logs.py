"""Logs of containers: written in the format of container runtimes, and read as `kubectl logs` asks.

A line is `<time> <stdout|stderr> <F|P> <text>`; P marks a partial line, whose newline the container did not write.
The logs of the present and of the previous run of a container are kept.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

LONGEST_LINE = 16384
CHUNK = 65536


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of a request for a log."""

    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None
    """The most bytes to send."""


class Log:
    """The log of one run of a container."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o640)
        self._open: dict[int, tuple[str, bytes]] = {}
        """The stream's name and its unfinished line, by the descriptor of the pipe."""
        self._changed = asyncio.Event()
        self.ended = asyncio.Event()

    def pipe(self, name: str) -> int:
        """The writable end of a new pipe whose content becomes this log; the caller closes it."""
        readable, writable = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(readable, False)
        self._open[readable] = name, b""
        asyncio.get_running_loop().add_reader(readable, self._read, readable)
        return writable

    def _read(self, pipe: int) -> None:
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return
        name, rest = self._open[pipe]
        *lines, rest = (rest + data).split(b"\n")
        if not data or len(rest) > LONGEST_LINE:
            self._write(name, lines, rest)
            rest = b""
        elif lines:
            self._write(name, lines, b"")
        self._open[pipe] = name, rest
        if not data:
            self._close(pipe)

    def _write(self, name: str, lines: list[bytes], part: bytes) -> None:
        begin = f"{datetime.now(UTC).isoformat(timespec='microseconds').replace('+00:00', 'Z')} {name}".encode()
        whole = [b"%s F %s\n" % (begin, line) for line in lines]
        if part:
            whole.append(b"%s P %s\n" % (begin, part))
        os.write(self._file, b"".join(whole))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _close(self, pipe: int) -> None:
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)
        del self._open[pipe]
        if not self._open and not self.ended.is_set():
            os.close(self._file)
            self.ended.set()
            self._wake()

    def close(self) -> None:
        """Stop reading, even if a process still has a pipe open."""
        for pipe in [*self._open]:
            self._close(pipe)

    def end(self, lines: int) -> bytes:
        """The last lines of what was written so far."""
        written = _lines(self.path.read_bytes())
        return b"".join(_chosen(written, Wanted(tail=lines)))

    async def read(self, wanted: Wanted) -> AsyncIterator[bytes]:
        sent = 0
        with self.path.open("rb") as file:
            chosen = list(_chosen(_lines(file.read()), wanted))
            while True:
                for line in chosen:
                    text = line[: None if wanted.limit is None else wanted.limit - sent]
                    sent += len(text)
                    if text:
                        yield text
                    if wanted.limit is not None and sent >= wanted.limit:
                        return
                changed, ended = self._changed, self.ended.is_set()
                new = _lines(file.read())
                if not new and (ended or not wanted.follow):
                    return
                if not new:
                    await changed.wait()
                chosen = [_shown(line, wanted) for line in new]


def _lines(written: bytes) -> list[bytes]:
    """The stored lines; a carriage return, as ssh writes it, is part of one."""
    return [line + b"\n" for line in written.split(b"\n")[:-1]]


def _chosen(lines: list[bytes], wanted: Wanted) -> Iterator[bytes]:
    if wanted.tail is not None:
        lines = lines[len(lines) - _last(lines, wanted.tail) :]
    for line in lines:
        if wanted.since is None or _time(line) >= wanted.since:
            yield _shown(line, wanted)


def _last(lines: list[bytes], tail: int) -> int:
    """The number of stored lines that make the container's last `tail` lines."""
    count, whole = 0, 0
    for line in reversed(lines):
        whole += _kind(line) == b"F" or count == 0
        if whole > tail:
            break
        count += 1
    return count


def _kind(line: bytes) -> bytes:
    return line.split(b" ", 3)[2]


def _time(line: bytes) -> datetime:
    return datetime.fromisoformat(line.split(b" ", 1)[0].decode())


def _shown(line: bytes, wanted: Wanted) -> bytes:
    time, _, kind, text = line.split(b" ", 3)
    text = text if kind == b"F" else text[:-1]
    return b"%s %s" % (time, text) if wanted.timestamps else text


class Logs:
    """The logs of one container's present and previous run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.present: Log | None = None
        self.previous: Log | None = None
        self._runs = 0

    def begin(self) -> Log:
        if self.previous:
            with contextlib.suppress(FileNotFoundError):
                self.previous.path.unlink()
        self.previous = self.present
        self.present = Log(self._folder / f"{self._runs}.log")
        self._runs += 1
        return self.present

    def close(self) -> None:
        for log in (self.present, self.previous):
            if log:
                log.close()
