"""The documentation as a site: `python -m tests.docs.site FOLDER` builds all pages with Zensical, strictly.

It knows pages below one folder; ours link to examples and manifests beside it, so that all are put into one first.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "deploy", "devcluster")
SHOWN = (".md", ".svg", ".png", ".json", ".yaml", ".py", ".toml", ".go", ".txt")
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


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
