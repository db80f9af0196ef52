"""Logs that earlier releases wrote, and what those releases made of them.

A file `<release>.jsonl.xz` has one recording a line: a whole log of that release's services, every status document that
they owed at each event, and what the API server held at the end.  A line is never changed: a field that a later release
shows otherwise is named in a decision record.
"""

import lzma
from pathlib import Path

import msgspec

from shared.eventlog import Stored
from shared.telling.saved import event_of


class Recording(msgspec.Struct):
    """A log, and what the release that wrote it made of it."""

    name: str
    log: list[msgspec.Raw]
    """Events as `muster history --json` wrote them."""
    documents: list[str]
    """Each once."""
    published: list[tuple[int, str, str, int]]
    """The sequence of an event, kind and uid of an object, and the place of its document after that event."""
    shown: list[tuple[str, str]]
    """By uid of a job: the status that the API server held when the recording ended, with its head."""

    def events(self) -> list[Stored]:
        return [event_of(bytes(line)) for line in self.log]


def recordings(release: str) -> list[Recording]:
    lines = lzma.decompress((Path(__file__).parent / f"{release}.jsonl.xz").read_bytes()).splitlines()
    return [msgspec.json.decode(line, type=Recording) for line in lines]
