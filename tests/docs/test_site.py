"""The site is made strictly, searches, and loads nothing from another host; a page or link that is wrong stops it."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.site import ROOT, build

MOST_WORDS = 27_600


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "made"
    build(folder)
    return folder


def test_every_page_is_found_by_search(site: Path):
    found = json.loads((site / "search.json").read_text())
    known = {item["location"].partition("#")[0].rstrip("/") for item in found["items"]}
    assert {f"docs/{page.stem}" for page in (ROOT / "docs").glob("*.md") if page.stem != "index"} <= known


def test_nothing_is_loaded_from_another_host(site: Path):
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="?(https?:[^" >]*)', page.read_text())
        assert loaded == [], page


@pytest.mark.parametrize("fault", ["[away](nowhere.md)", "[away](page.md#no-such-heading)"])
def test_a_link_that_leads_nowhere_stops_it(tmp_path: Path, fault: str):
    for name in ("mkdocs.yml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"# A page\n\n{fault}\n")
    named = re.sub(r"^nav:.*", "", (ROOT / "mkdocs.yml").read_text(), flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(named)
    with pytest.raises(SystemExit, match=r"page\.md"):
        build(tmp_path / "made", tmp_path)


def test_the_documentation_stays_short():
    """The words of the pages without the bars of tables: a long page is not read to its end."""
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    words = {page.name: len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda each: -each[1])
