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
`muster why`. `make pages` writes this page from `shared/job/reasons.py`.

`<kind>` is the kind of the job; in quotation marks stands the message, with places for values.
*Final*: neither time nor another try changes it; a person has to.
Reasons that are not listed come with a sentence: of a spec (`NoContainers`, `InvalidValue`) with the field, of the
kube-scheduler, the kubelet and the API server with their message.

{parts}
"""


def page() -> str:
    """`docs/reasons.md`."""
    return PAGE.format(parts="\n\n".join("\n".join(_part(title, CATALOGUE[title])) for title in CATALOGUE))


def _part(title: str, reasons: Mapping[str, Reason]) -> Iterator[str]:
    yield f"## {title}\n"
    for word, reason in reasons.items():
        yield f"- `{_places(word)}`: {_meaning(reason)}{' (*final*)' if reason.final else ''}"


def _meaning(reason: Reason) -> str:
    # Outside of code a browser would take a place for a tag.
    told = re.sub(r"<\w+>", r"`\g<0>`", _places(reason.told))
    return reason.sentence + (f": “{told}”" if told else "")


def _places(text: str) -> str:
    """Places for values as people write them."""
    return re.sub(r"{(\w+)}", r"<\1>", text)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "reasons.md").write_text(page())


if __name__ == "__main__":
    main()
