"""`docs/glossary.md`: its words are those of the code, each with one meaning."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^- (\*\*.*?): (.*)$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
WORDS = [word for first, _ in ROWS for word in re.findall(r"\*\*([^*]+)\*\*", first)]
PACKAGES = ("services", "shared", "muster", "devcluster")


def spelt_out(text: str) -> str:
    """Names as words: `ScaleRequestGone` and `scale_request_gone` are `scale request gone`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return " ".join(re.findall(r"[a-z]+", apart.lower()))


CODE = " ".join(spelt_out(file.read_text()) for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))


def occurs(word: str) -> bool:
    """As a name or in a text; the last word may have an ending, as `hold` in `holding`."""
    return re.search(rf"\b{spelt_out(word)}(s|d|ed|r|ing)?\b", CODE) is not None


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_glossary_is_one_of_the_code(word: str):
    assert occurs(word)


def test_a_word_that_the_code_does_not_have_is_found_out():
    assert not occurs("flux capacitor")


def test_a_word_has_one_meaning():
    assert sorted(WORDS) == sorted({*WORDS})
    assert all(meaning for _, meaning in ROWS)
