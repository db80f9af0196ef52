"""The table of `examples/README.md`, and what stands on top of each manifest."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTHING = "-"


class Example(NamedTuple):
    """A row."""

    file: str
    shows: str
    needs: str
    comes_to: str
    tried_by: str

    @property
    def text(self) -> str:
        return (EXAMPLES / self.file).read_text()

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self.text)
        return found

    @property
    def commands(self) -> list[str]:
        """The commands in the comment on top, in order."""
        return re.findall(r"^#   (.*)$", self.text, re.MULTILINE)


_ROW = re.compile(r"^\| `([^`]+)` \| (.*) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
TABLE = [Example(*cells) for cells in _ROW.findall((EXAMPLES / "README.md").read_text())]
READY = [example for example in TABLE if example.needs == NOTHING]
