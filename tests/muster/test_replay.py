"""`muster replay FILE`: a saved history comes back as it was, and anything else is one line."""

import json
from pathlib import Path

import msgspec
import pytest
import typer

from muster.replay import from_file, saved
from shared.telling.reading import event_of, line_of
from tests.kit.builders import a_running_job
from tests.kit.histories import log_of


def lines() -> list[str]:
    """A history as `muster history --json` writes it."""
    return [line_of(record) for record in log_of(a_running_job())]


def test_a_saved_event_has_its_body_as_json():
    (first, *_) = lines()
    body = json.loads(first)["body"]
    assert (body["type"], body["spec"]["roles"][0]["name"]) == ("JobObserved", "launcher")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"a": 1,   "b":"\xc3\xa9"}', id="with spaces that count"),
        pytest.param(b'{"a":\n1}', id="over two lines"),
        pytest.param(b" {}", id="with a space before it"),
        pytest.param(b"hello", id="no JSON"),
        pytest.param(b'"text"', id="a string"),
        pytest.param(b'{"a":', id="cut"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_body_comes_back_byte_for_byte(body: bytes):
    record = msgspec.structs.replace(log_of(a_running_job())[0], body=body)
    line = line_of(record)
    assert "\n" not in line
    assert event_of(line.encode()) == record


def test_a_saved_history_is_folded_to_the_same_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "history"
    file.write_text("\n".join(lines()))
    from_file(file)
    assert capsys.readouterr().out.splitlines()[-1].endswith("-> Running")


def test_a_history_that_was_changed_is_held_and_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, *others = lines()
    file = tmp_path / "history"
    file.write_text("\n".join([first.replace(":00", ":01", 1), *others]))
    with pytest.raises(typer.Exit) as end:
        from_file(file)
    assert end.value.exit_code == 1
    assert "HELD" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("hello", "line 1", id="no JSON"),
        pytest.param("[1]", "line 1", id="JSON of another shape"),
        pytest.param('{"sequence": 1}', "line 1", id="fields are missing"),
        pytest.param(
            '{"sequence":1,"subject":"x","event_id":"e","time":"t","body":5}', "line 1", id="a body that is no text"
        ),
        pytest.param(
            '{"sequence":1,"subject":"x","event_id":"e","time":"t","body":"{}"}', "line 1", id="a subject of others"
        ),
        pytest.param("", "is empty", id="nothing"),
        # A fold leaves out what it has folded, so that such a line could say anything.
        pytest.param("\n".join([*lines()[:2], lines()[1].replace(":00", ":01", 1)]), "line 3", id="a sequence again"),
    ],
)
def test_what_is_no_history_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
):
    file = tmp_path / "history"
    file.write_text(text)
    with pytest.raises(typer.Exit):
        saved(file)
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit):
        saved(tmp_path / "none")
    assert "cannot be read" in capsys.readouterr().err
