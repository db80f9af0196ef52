"""Histories folded by several processes, each with a hash seed and perhaps a Python of its own, and compared."""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SEEDS = tuple(range(8))
AROUND = 120
"""Characters of what differs that are shown on each side."""


class Process(NamedTuple):
    """A Python and the seed of its hashes."""

    python: Path
    seed: int

    def __str__(self) -> str:
        return f"{self.python} with PYTHONHASHSEED={self.seed}"

    def fold(self, *words: str, into: Path) -> None:
        """Run `tests.determinism.fold`; its output is in a file afterwards."""
        environment = os.environ | {"PYTHONHASHSEED": str(self.seed), "PYTHONPATH": str(ROOT)}
        with into.open("wb") as out:
            ended = subprocess.run(
                [str(self.python), "-m", "tests.determinism.fold", *words],
                env=environment,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert not ended.returncode, f"{self}: {ended.stderr.decode()[-2_000:]}"


class Outcome(NamedTuple):
    """What processes made of histories."""

    histories: int
    prefixes: int
    differences: list[str]
    """For people; empty when all processes say the same."""


def whole(files: Iterable[Path]) -> list[Path]:
    """The files without those whose history another file begins with: its prefixes are folded there."""
    ends: dict[bytes, Path] = {}
    begun: set[bytes] = set()
    for file in sorted(files):
        digest = b""
        for line in file.read_bytes().splitlines():
            begun.add(digest)
            digest = sha256(digest + line).digest()
        ends.setdefault(digest, file)
    return [file for digest, file in ends.items() if digest not in begun]


def compare(files: Sequence[Path], processes: Sequence[Process], folder: Path) -> Outcome:
    """Fold `files` in every one of `processes`; `folder` is for what they say."""
    listing = folder / "listing"
    listing.write_text("".join(f"{file}\n" for file in files))
    said = [folder / f"said-{number}" for number in range(len(processes))]
    begun = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        ends = [
            threads.submit(process.fold, str(listing), into=into) for process, into in zip(processes, said, strict=True)
        ]
        for number, end in enumerate(as_completed(ends), 1):
            end.result()
            print(f"{number} of {len(processes)} processes have folded ({time.monotonic() - begun:.0f} s)", flush=True)
    first, *others = said
    prefixes = len(first.read_text().splitlines())
    pairs = zip(processes[1:], others, strict=True)
    differences = [
        _told(found, folder) for process, other in pairs for found in _first(processes[0], first, process, other)
    ]
    return Outcome(len(files), prefixes, differences)


class _Difference(NamedTuple):
    file: str
    sequence: str
    one: Process
    other: Process


def _first(one: Process, said: Path, other: Process, said_too: Path) -> Iterator[_Difference]:
    """The first line that is not the same, if there is one."""
    with said.open() as mine, said_too.open() as theirs:
        for line, its in zip_longest(mine, theirs, fillvalue=""):
            if line != its:
                file, sequence, *_ = (line or its).split()
                yield _Difference(file, sequence, one, other)
                return


def _told(found: _Difference, folder: Path) -> str:
    """Where two processes differ, with what each of them has there."""
    texts = []
    for process in (found.one, found.other):
        into = folder / "detail"
        process.fold(found.file, "--at", found.sequence, into=into)
        texts.append(into.read_text())
    one, other = texts
    same = next((at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), len(one))
    begin, end = max(same - AROUND, 0), same + AROUND
    where = f"{found.file} differs after event {found.sequence}"
    return f"{where}\n{found.one}:\n  {one[begin:end]}\n{found.other}:\n  {other[begin:end]}"
