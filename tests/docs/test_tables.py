"""Tables of runs: they stand between their marks in a page, and a page without marks is one line before the run."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from tests.kit.tables import END, Place

BEGIN = "<!-- The table of `make ha` begins -->"


def put(into: Path, table: str) -> None:
    parser = ArgumentParser()
    place = Place(parser, "ha")
    place.of(parser.parse_args(["--into", str(into)]))(table)


def test_a_table_replaces_the_one_of_an_earlier_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param("missing.md", "No such file or directory", id="a file that is not there"),
        pytest.param("", "Is a directory", id="a folder"),
        pytest.param("bare.md", BEGIN, id="a page without the marks"),
    ],
)
def test_a_page_that_cannot_take_the_table_is_one_line(
    tmp_path: Path, page: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare.md").write_text("no marks\n")
    with pytest.raises(SystemExit) as ended:
        put(tmp_path / page, "new")
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
