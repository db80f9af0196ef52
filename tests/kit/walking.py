"""Pages walked as they stand: the `console` blocks of a document, each command with the output that it shows.

In shown output `...` stands for whatever there is in a line, and alone for any number of lines; how many blanks there
are between two words does not count.
"""

import re
from dataclasses import dataclass
from pathlib import Path

PROMPT = "$ "
ANY = "..."

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    command: str
    shown: tuple[str, ...]
    """The lines below it; none when the page does not care."""


def steps(page: Path, section: str = "") -> list[Step]:
    """All commands of all blocks, in order; with `section` of what stands below that heading alone."""
    text = page.read_text()
    if section:
        _, heading, text = text.partition(f"# {section}\n")
        assert heading, f"{page.name} has no section {section!r}"
        text = re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    found: list[Step] = []
    for block in _BLOCK.findall(text):
        # A backslash at the end goes on in the next line, as in a shell.
        lines = re.sub(r" *\\\n *", " ", block).splitlines()
        assert lines[0].startswith(PROMPT), f"{page.name}: a console block begins with {lines[0]!r}"
        for line in lines:
            if line.startswith(PROMPT):
                found.append(Step(line.removeprefix(PROMPT), ()))
            else:
                found[-1] = Step(found[-1].command, (*found[-1].shown, line))
    return found


def agrees(shown: tuple[str, ...], output: str) -> bool:
    """Whether a command wrote what the page shows."""
    wanted = "".join(_pattern(line) for line in shown)
    return re.fullmatch(wanted, "".join(f"{' '.join(line.split())}\n" for line in output.splitlines())) is not None


def _pattern(line: str) -> str:
    if line.strip() == ANY:
        return r"(?:.*\n)*"
    return ".*".join(re.escape(part) for part in " ".join(line.split()).split(ANY)) + "\n"
