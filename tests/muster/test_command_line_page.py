"""`docs/command-line.md`: every command that it shows is one, with the options and exit codes that it names."""

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from muster.commands import application
from tests.golden.compare import FOLDER

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = [
    re.split(r" [|>] ", line.removeprefix("kubectl "))[0]
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith(("muster ", "kubectl muster "))
]


GROUP = get_command(application())
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands


@pytest.mark.parametrize("line", SHOWN)
def test_what_the_page_shows_can_be_typed(line: str):
    _, name, *words = shlex.split(line)
    COMMANDS[name].make_context(name, words).close()


def test_the_page_shows_every_command():
    assert {shlex.split(line)[1] for line in SHOWN} == set(COMMANDS)


def test_the_page_names_every_exit_code():
    documented = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert documented == re.findall(r"\d+(?= [a-zA-Z])", GROUP.epilog or "")


def test_the_chain_on_the_page_is_one_that_comes_out():
    golden = (FOLDER / "why" / "waits_for_an_image.yaml").read_text().partition("\n")[2]
    lines = [line[2:] if line.startswith("  ") else line for line in golden.splitlines()]
    assert "\n".join(lines) + "\n" in BLOCKS
