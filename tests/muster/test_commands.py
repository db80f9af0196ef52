"""The command line as a program: names, usage, exit codes, and what Ctrl-C says."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster import binaries
from muster.commands import COMMANDS
from shared.release import this_release
from tests.kit.commands import run
from tests.muster.conftest import Say


def plugin(folder: Path) -> Path:
    """The console script as an installation writes it."""
    script = folder / "kubectl-muster"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom muster.__main__ import main\n\nsys.exit(main())\n")
    script.chmod(0o755)
    return script


async def test_kubectl_finds_it_and_its_usage_is_kubectls(tmp_path: Path):
    try:
        kubectl = str(binaries.kubectl())
    except binaries.MissingProgram as missing:
        pytest.skip(f"kubectl looks for its plug-ins itself: {missing}")
    plugin(tmp_path)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd()), "COLUMNS": "100"}
    listed = await run(kubectl, "plugin", "list", environment=environment)
    assert str(tmp_path / "kubectl-muster") in listed.out
    usage = await run(kubectl, "muster", "suspend", "--help", environment=environment)
    assert usage.code == 0, usage.complaint
    assert "kubectl muster suspend" in usage.out
    refused = await run(kubectl, "muster", "suspend", "--no-such-option", environment=environment)
    assert refused.code == 2
    assert "kubectl muster suspend" in refused.complaint


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.__name__))
def test_help_shows_every_word_of_a_command(command: Callable[..., None], say: Say):
    # In brackets, a word would be taken for a style and left out.
    told = " ".join((command.__doc__ or "").split())
    shown = " ".join(say(command.__name__.replace("_", "-").removesuffix("-"), "--help").out.split())
    assert told in shown


async def test_help_loads_no_library_that_only_commands_need():
    program = "import sys, typer.main as t; from muster.commands import application as of; t.get_command(of()); "
    ended = await run(sys.executable, "-c", program + "print(*sys.modules)")
    roots = {name.partition(".")[0] for name in ended.out.split()}
    assert "muster" in roots
    assert roots.isdisjoint({"aiohttp", "nats", "pydantic", "msgspec"})


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["no-such-command"], id="an unknown command"),
        pytest.param(["get", "--watch=maybe"], id="a value for a flag"),
        pytest.param(["get", "-n"], id="an option without its value"),
        pytest.param(["get", "resnet", "-A"], id="options that exclude each other"),
        pytest.param(["subscriber", "add"], id="a command of a group without its argument"),
        pytest.param(["subscriber", "ad", "team-a"], id="an unknown command of a group"),
        pytest.param(["suspend"], id="no job"),
        pytest.param(["restart", "resnet", "--timeout", "-1"], id="less than no time"),
        pytest.param(["scale", "resnet"], id="no size"),
        pytest.param(["scale", "resnet", "--to", "0"], id="no worker"),
        pytest.param(["why", "pod/resnet"], id="an unknown kind"),
        pytest.param(["resume", "trainingjob/"], id="no name"),
        pytest.param(["history", "pod/resnet"], id="the history of an unknown kind"),
        pytest.param(["history", "accept"], id="a loss without a job"),
        pytest.param(["replay"], id="nothing to replay"),
    ],
)
def test_wrong_usage_is_one_line_and_two(words: list[str], say: Say):
    ended = say(*words)
    assert (ended.code, ended.out) == (2, "")
    assert re.fullmatch(r"muster: .{5,}; see muster( [a-z]+){0,2} --help\n", ended.complaint)


def test_an_unknown_option_is_named_with_the_help_of_its_command(say: Say):
    ended = say("get", "--frob")
    assert ended == (2, "", "muster: No such option: --frob; see muster get --help\n")


def test_a_verification_is_told_where_the_commands_are_that_verify(say: Say):
    told = "`muster replay --verify` compares the log, `muster archive verify` the archive"
    assert say("verify") == (2, "", f"muster: No such command 'verify': {told}; see muster --help\n")


def test_an_option_before_the_command_as_kubectl_takes_it_is_told_where_it_belongs(say: Say):
    ended = say("-n", "team-a", "why", "resnet")
    assert ended == (2, "", "muster: No such option: -n; write it after the command; see muster --help\n")


def test_a_value_that_is_no_choice_is_told_with_the_choices(say: Say):
    ended = say("get", "-o", "xml")
    choices = "'xml' is not one of 'table', 'wide', 'json', 'yaml'"
    assert ended.complaint == f"muster: Invalid value for '--output' / '-o': {choices}; see muster get --help\n"


@pytest.mark.parametrize("words", [[], ["subscriber"]])
def test_without_any_arguments_the_help_is_printed(words: list[str], say: Say):
    ended = say(*words)
    assert (ended.code, ended.complaint) == (2, "")
    assert "Usage: muster" in ended.out


@pytest.mark.parametrize("command", ["", *(command.__name__.replace("_", "-") for command in COMMANDS)])
def test_the_help_names_no_type_of_ours(command: str, say: Say):
    words = [command] if command else []
    ended = say(*words, "--help")
    assert ended.code == 0
    assert set(re.findall(r"<(\w+)>", ended.out)) <= {"str", "int", "float", "bool", "path"}


def test_the_version_is_that_of_the_installed_package(say: Say):
    ended = say("--version")
    assert ended == (0, f"muster {this_release()}\n", "")


async def test_a_shell_completes_commands():
    typed = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster su", "COMP_CWORD": "1"}
    ended = await run(sys.executable, "-m", "muster", environment=typed)
    assert ended.out.split() == ["suspend", "subscriber"]


async def test_the_plug_in_offers_no_completion_that_kubectl_would_not_find(tmp_path: Path):
    usage = await run(str(plugin(tmp_path)), "--help", environment={"PYTHONPATH": str(Path.cwd())})
    assert usage.code == 0, usage.complaint
    assert "completion" not in usage.out
    usage = await run(sys.executable, "-m", "muster", "--help")
    assert "--show-completion" in usage.out


async def test_ctrl_c_before_anything_was_asked_says_nothing(tmp_path: Path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    ended = await run(sys.executable, "-m", "muster", "suspend", "resnet", environment={"PYTHONPATH": str(tmp_path)})
    assert ended == (130, "", "")
