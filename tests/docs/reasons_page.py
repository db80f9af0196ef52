"""The page of all reasons, made from the catalogue.

Pure, but for `make pages`, which writes `docs/reasons.md`.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shared.job.reasons import CATALOGUE, Reason

PAGE = """\
# Reasons

Every condition, Kubernetes Event and decision has a reason: the same word in the status, the log, the metrics and
`muster why`. `make pages` writes this page. `<kind>` is the kind of the job.
**Bold**: only a person can change it.
Reasons not listed, such as `NoContainers` of a spec, come with an explanation.

{parts}
"""


def page() -> str:
    """`docs/reasons.md`."""
    return PAGE.format(parts="\n\n".join("\n".join(_part(title, CATALOGUE[title])) for title in CATALOGUE))


def _part(title: str, reasons: Mapping[str, Reason]) -> Iterator[str]:
    yield f"## {title}\n"
    lines: dict[str, list[str]] = {}
    for word, reason in reasons.items():
        name = f"`{_places(word)}`"
        lines.setdefault(reason.sentence, []).append(f"**{name}**" if reason.final else name)
    yield from (f"- {', '.join(names)}: {sentence}" for sentence, names in lines.items())


def _places(text: str) -> str:
    """Places for values as people write them."""
    return re.sub(r"{(\w+)}", r"<\1>", text)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "reasons.md").write_text(page())


if __name__ == "__main__":
    main()
