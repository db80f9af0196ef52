"""Links between the pages: each leads to a file that is there, and to a heading that it has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/**/*.md", "devcluster/**/*.md")
    for page in sorted(ROOT.glob(pattern))
]


def links(page: Path) -> list[str]:
    """Those within the repository; a URL has a scheme."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in re.findall(r"\[[^]]*\]\(([^)]+)\)", text) if ":" not in link]


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path):
    for link in links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


def test_every_page_of_the_documentation_is_reached_from_the_first_one():
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached or not page.is_file() or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [page.parent / link.partition("#")[0] for link in links(page)]
    pages = {page.resolve() for page in (ROOT / "docs").glob("*.md")}
    assert pages - reached == set()
