"""The site is made strictly, searches, and loads nothing from another host; a page or link that is wrong stops it."""

import json
import re
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.docs.site import ROOT, build, pack

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


def test_what_is_packed_has_no_script_within_a_page_and_each_file_that_pages_link_to(site: Path, tmp_path: Path):
    archives = [tmp_path / name for name in ("one.zip", "another.zip")]
    for archive in archives:
        pack(site, archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with ZipFile(archives[0]) as packed:
        files = {name: packed.read(name).decode(errors="replace") for name in packed.namelist()}
    assert {f"docs/{page.stem}/index.html" for page in (ROOT / "docs").glob("*.md") if page.stem != "index"} <= {*files}
    assert [
        name for name, text in files.items() if name.endswith(".html") and re.search("<script>|onclick=", text)
    ] == []
    assert any(re.search("javascripts/workers/search.*js$", name) for name in files)
    assert "assets/javascripts/LICENSE" in files, "of what the generator brings"
    assert not any(name.startswith("devcluster/devcluster/") for name in files), "no page leads there"


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
