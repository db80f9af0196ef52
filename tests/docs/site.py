"""The documentation as a site: `python -m tests.docs.site FOLDER [ARCHIVE]` builds all pages with Zensical, strictly.

It knows pages below one folder; ours link to examples and manifests beside it, so that all are put into one first.
The archive is what Muster's page serves, under a policy that allows no script within a page.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from html import unescape
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "deploy", "devcluster")
SHOWN = (".md", ".css", ".svg", ".png", ".json", ".yaml", ".py", ".toml", ".go", ".txt")
"""The files of these folders that pages show or link to."""


def build(into: Path, root: Path = ROOT) -> None:
    """Write the site.  Raises `SystemExit` with its words for a page or a link that is not in order."""
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        gathered(root, pages)
        configuration = Path(folder) / "mkdocs.yml"
        settings = (root / "mkdocs.yml").read_text()
        # A page without a place stands in the last one.
        others = [f"docs/{page.name}" for page in sorted((root / "docs").glob("*.md"))]
        others = [f"      - {page}\n" for page in others if "nav:" in settings and page not in settings]
        configuration.write_text(f"docs_dir: pages\nsite_dir: made\n{settings}{''.join(others)}")
        made = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "-f", configuration],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if made.returncode:
            # Each character of a line comes in a colour of its own.
            raise SystemExit(re.sub(r"\x1b\[[\d;]*m", "", made.stdout))
        for page in (Path(folder) / "made").rglob("*.html"):
            page.write_text(without_inline(page.read_text(), page.parent, Path(folder) / "made"))
        shutil.rmtree(into, ignore_errors=True)
        shutil.move(Path(folder) / "made", into)


def gathered(root: Path, pages: Path) -> None:
    found = [*root.glob("*.md"), root / "LICENSE"]
    found += (root / "tests").rglob("*.md")
    found += [file for name in FOLDERS for file in (root / name).rglob("*") if file.suffix in SHOWN or not file.suffix]
    for file in found:
        if not file.is_file():
            continue
        to = pages / file.relative_to(root)
        to.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            to.write_text(for_markdown(file.read_text()))
        else:
            shutil.copy(file, to)


def for_markdown(text: str) -> str:
    """A page as Python's Markdown reads it: a list needs an empty line above."""
    return re.sub(r"^((?![-*|#>]|\d+\.|  ).+)\n(?=(?:[-*]|\d+\.) )", r"\1\n\n", text, flags=re.MULTILINE)


def without_inline(html: str, folder: Path, site: Path) -> str:
    """The page with its scripts in files of their own."""

    def moved(script: re.Match[str]) -> str:
        file = site / "assets" / "javascripts" / f"{sha256(script[1].encode()).hexdigest()[:16]}.js"
        file.write_text(script[1])
        return f'<script src="{os.path.relpath(file, folder)}"></script>'

    return re.sub(r"<script>(.*?)</script>", moved, html, flags=re.DOTALL)


def pack(site: Path, archive: Path) -> None:
    """Write what links lead to from the first page, and what these pages load; each time the same bytes."""
    linked, found = [site / "index.html", site / "search.json"], set[Path]()
    linked += [*site.rglob("search.*.js"), *site.rglob("LICENSE")]
    while linked:
        if (file := linked.pop()) in found:
            continue
        found.add(file)
        if file.suffix == ".html":
            linked += links_of(file, site)
    unfinished = archive.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(found):
            # A file's own time would be in it.
            name = zipfile.ZipInfo(file.relative_to(site).as_posix())
            packed.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    # A page that is served reads on in the old one.
    unfinished.replace(archive)


def links_of(page: Path, site: Path) -> list[Path]:
    """The files of the site that a page loads or links to."""
    links = re.findall(r'(?:href|src)="?([^"\s>?#]+)', page.read_text())
    files = [Path(os.path.normpath(page.parent / unquote(unescape(link)))) for link in links if ":" not in link]
    files = [file / "index.html" if file.is_dir() else file for file in files]
    return [file for file in files if file.is_file() and file.is_relative_to(site)]


if __name__ == "__main__":
    into = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    build(into)
    for name in sys.argv[2:]:
        pack(into.resolve(), Path(name))
