"""The scripts and the style of the page: files of this package, as they are."""

from pathlib import Path

TYPES = {"page.js": "text/javascript", "draw.js": "text/javascript", "page.css": "text/css"}
"""The files below `static`, with their types."""


def asset(name: str) -> str:
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")
