"""`docs/settings.md`: written from the code, and complete."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.process.settings import Settings
from tests.docs.settings_page import OTHERS, page

ROOT = Path(__file__).parents[2]
PACKAGES = ("services", "shared", "muster", "devcluster/devcluster")
WRITTEN = (ROOT / "docs" / "settings.md").read_text()
ON_THE_PAGE = {
    name for head in re.findall(r"^- ((?:`[A-Z_]+`,? )+)", WRITTEN, re.MULTILINE) for name in head.split("`")[1::2]
}
BOTH_SPELLINGS = ON_THE_PAGE | {f"MUSTER_{name}" for name in ON_THE_PAGE}
OURS = re.compile(r"\b(?:MUSTER|NATS)_[A-Z][A-Z_]*\b")


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def read_variables(file: Path) -> Iterator[str]:
    """Names that the code of a file looks up in `os.environ`."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get"), args=[name, *_]):
                yield value(file, name)
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=name, ctx=ast.Load()):
                yield value(file, name)
            case ast.keyword(arg="envvar", value=name):
                # An option of the command line.
                yield value(file, name)


def value(file: Path, name: ast.expr) -> str:
    """The text of a literal or of a constant of the module."""
    if isinstance(name, ast.Constant):
        return str(name.value)
    assert isinstance(name, ast.Name), f"{file}: write the variable as a text or as a constant of the module"
    module = (
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removeprefix("devcluster.").removesuffix(".__init__")
    )
    return str(getattr(importlib.import_module(module), name.id))


def test_the_page_is_the_one_that_the_code_writes():
    assert page() == WRITTEN, "run `make pages` and review the diff"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_variable_that_is_read_is_on_the_page(package: str):
    read = {name for file in sorted((ROOT / package).rglob("*.py")) for name in read_variables(file)}
    assert read - ON_THE_PAGE == set()


def test_every_variable_of_ours_that_the_code_names_is_on_the_page():
    named = {name for file in sources() for name in OURS.findall(file.read_text())}
    assert {"MUSTER_TAKE_OVER", "NATS_URL"} <= named
    assert named - BOTH_SPELLINGS == set()


def test_every_variable_that_the_chart_sets_is_on_the_page():
    set_by_chart = {*OURS.findall((ROOT / "deploy/helm/muster/templates/_helpers.tpl").read_text())}
    assert "MUSTER_DISRUPTION_TAINTS" in set_by_chart
    assert set_by_chart - BOTH_SPELLINGS == set()


def test_a_variable_beside_the_settings_is_one_that_the_code_reads():
    read = {name for file in sources() for name in read_variables(file)}
    assert {name for name, *_ in OTHERS} - read == set()


def test_of_two_spellings_the_shorter_one_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUSTER_NATS_URL", "nats://longer:4222")
    assert Settings().nats_url == "nats://longer:4222"
    monkeypatch.setenv("NATS_URL", "nats://shorter:4222")
    assert Settings().nats_url == "nats://shorter:4222"


@pytest.mark.parametrize("spelling", ["90", "PT1M30S"])
def test_seconds_are_written_as_a_number_or_as_a_duration(spelling: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUSTER_DRAIN", spelling)
    assert Settings().drain.total_seconds() == 90
