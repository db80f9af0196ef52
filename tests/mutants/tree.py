"""A copy of this tree in which one mutant after the other is planted, and the processes that run from it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PARTS = ("shared", "services", "muster", "devcluster", "crds", "deploy", "docs", "examples", "tests", "pyproject.toml")

CHECK = "import services, shared, tests; print(services.__file__, shared.__file__, tests.__file__, sep='\\n')"


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    lines: list[str]
    """What it printed, without empty lines."""


class Tree:
    """The copy, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / part, folder / part)
        # The virtual environment has this tree installed: only the first two put the copy before it.
        # pytest cuts what a failed test says to the width of the terminal, which is COLUMNS.
        own = {"PYTHONPATH": f"{folder}:{folder / 'devcluster'}", "PYTHONSAFEPATH": "1", "COLUMNS": "200"}
        self._environment = os.environ | own
        ended = self.run("-m", "compileall", "-q", ".", seconds=300)
        assert ended is not None, "the copy is not compiled"
        # From now on no process writes byte code: that of a mutant would outlive it.
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"
        ended = self.run("-c", CHECK, seconds=60)
        assert ended is not None, "a process of the copy does not end"
        assert [Path(line).is_relative_to(folder) for line in ended.lines] == [True] * 3, ended.lines

    def read(self, name: str) -> str:
        return (self._folder / name).read_text()

    @contextmanager
    def planted(self, texts: Mapping[str, str]) -> Iterator[None]:
        """Replace these files, and restore them afterwards."""
        known = {name: (self.read(name), (self._folder / name).stat()) for name in texts}
        try:
            for name, text in texts.items():
                (self._folder / name).write_text(text)
            yield
        finally:
            for name, (text, stat) in known.items():
                (self._folder / name).write_text(text)
                # The byte code of the original counts again.
                os.utime(self._folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(self, *words: str, seconds: float) -> Ended | None:
        """Run a Python of the copy; None if it did not end in time.  An interruption ends it too."""
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:
                    # Its session has also what it started.
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            out.seek(0)
            return Ended(code, [line.rstrip() for line in out if line.strip()])
