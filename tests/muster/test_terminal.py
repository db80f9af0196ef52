"""Control characters that others wrote reach no terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from muster.terminal import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m", id="colours"),
        pytest.param("\x9b31m", "\\u009b31m", id="the same in one byte of another set"),
        pytest.param("\x1b]0;title\x07", "\\u001b]0;title\\u0007", id="the title of a window"),
        pytest.param("gone\rhere", "gone\\u000dhere", id="back to the beginning of the line"),
        pytest.param("a\u202eb", "a\\u202eb", id="text turned around"),
        pytest.param("a\u061cb", "a\\u061cb", id="the mark of another direction"),
        pytest.param("zwei\tWörter\n", "zwei\tWörter\n", id="tabs, line ends and letters stay"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str):
    assert harmless(text) == shown


def test_json_keeps_its_meaning():
    value = {"message": "\x7f\x9b31m \u202e"}
    text = json.dumps(value, ensure_ascii=False)
    assert harmless(text) != text
    assert json.loads(harmless(text)) == value


@pytest.mark.parametrize(("terminal", "said"), [(True, b"\\u009b31m"), (False, "\x9b31m".encode())])
def test_what_has_to_be_exact_is_escaped_at_a_terminal_alone(terminal: bool, said: bytes):
    program = [sys.executable, "-c", "from muster.terminal import say; say('\\x9b31m', exact=True)"]
    if not terminal:
        assert subprocess.run(program, capture_output=True, check=True).stdout.strip() == said
        return
    ours, theirs = pty.openpty()
    try:
        subprocess.run(program, stdout=theirs, check=True)
        assert os.read(ours, 100).strip() == said
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("setting", "coloured"),
    [
        pytest.param({}, True, id="a terminal"),
        pytest.param({"NO_COLOR": "1"}, False, id="a person who wants none"),
        pytest.param({"NO_COLOR": ""}, True, id="an empty variable says nothing"),
        pytest.param({"TERM": "dumb"}, False, id="a terminal without colours"),
    ],
)
def test_colours_are_for_terminals_and_people_who_want_them(setting: dict[str, str], coloured: bool):
    program = [sys.executable, "-c", "from muster.terminal import has_colours; print(has_colours())"]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    ours, theirs = pty.openpty()
    try:
        subprocess.run(program, stdout=theirs, check=True, env=environment | setting)
        assert os.read(ours, 100).strip() == str(coloured).encode()
    finally:
        os.close(ours)
        os.close(theirs)
    piped = subprocess.run(program, capture_output=True, check=True, env=environment | setting)
    assert piped.stdout.strip() == b"False"


def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "muster", "schema"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, b"muster: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", [1, 2])
def test_with_a_stream_closed_a_command_does_its_work(closed: int):
    # A socket that takes the stream's number makes libuv abort; the port is one where nothing listens.
    program = ["sh", "-c", f"exec {sys.executable} -m muster get {closed}>&-"]
    ended = subprocess.run(
        program, capture_output=True, check=False, env={**os.environ, "NATS_URL": "nats://127.0.0.1:1"}
    )
    said = b"" if closed == 2 else b"muster: connect to nats://127.0.0.1:1"
    assert (ended.returncode, ended.stderr[: len(said) or None]) == (1, said)
    jobs = [
        sys.executable,
        "-c",
        "import sys; sys.stdout = None; from muster.terminal import *; print(width(), has_colours())",
    ]
    assert subprocess.run(jobs, check=False).returncode == 0
