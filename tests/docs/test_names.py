"""Names on any page that can be looked up: commands and their options, targets of make, files, metrics, settings, the
chart's values.  Pages about one thing have tests of their own beside this one.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from muster.commands import application
from shared.frameworks.kinds import BUILT_IN
from tests.docs.test_metrics_page import ALL
from tests.docs.test_settings_page import ON_THE_PAGE

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
TARGETS = {*re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
VALUES = yaml.safe_load((ROOT / "deploy/helm/muster/values.yaml").read_text())
OF_A_READER = ("deploy/kustomize/overlays/mine/kustomization.yaml",)
"""Files that a page tells its reader to make."""

OF_OTHERS = {
    *("NodeAffinity", "OutOfcpu", "UnexpectedAdmissionError", "NamespaceDeletionDiscoveryFailure", "ReadWriteMany"),
    *("ClusterIssuer", "PrometheusRule", "PodMonitor", "MultiKueue", "JobSets", "BuiltinTrainer"),
    *("ElasticJobsViaWorkloadSlices", "ReplicaSpecs"),
    *("OrderedConsumer", "SubscribeSync"),
}
"""Words of Kubernetes, NATS and other projects that our code does not have."""

GROUP = get_command(application())
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands

on_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def code(page: Path) -> list[str]:
    """What a page sets in code within its sentences."""
    return [found.replace(r"\|", "|") for found in re.findall(r"`([^`\n]+)`", prose(page))]


@on_each_page
def test_commands_and_options_are_there(page: Path):
    for words in code(page):
        line = re.split(r" [|>;&]+ ", words.removeprefix("kubectl "))[0]
        if not line.startswith("muster ") or "…" in line:
            continue
        _, name, *rest = line.split()
        if name.startswith("-"):
            assert name in options(GROUP), words
            continue
        command = COMMANDS[name]
        if isinstance(command, TyperGroup) and rest and rest[0] in command.commands:
            command = command.commands[rest[0]]
        asked = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert asked <= options(command), words


def options(command: Any) -> set[str]:
    assert isinstance(command, TyperCommand | TyperGroup), command
    return {"--help", "--install-completion", "--show-completion"} | {
        word for each in command.params for word in (*each.opts, *each.secondary_opts)
    }


@on_each_page
def test_targets_of_make_are_there(page: Path):
    assert {*re.findall(r"`make ([a-z0-9-]+)", page.read_text())} <= TARGETS


@on_each_page
def test_files_are_there(page: Path):
    named = (word for word in code(page) if re.fullmatch(r"(?:[\w.{},*-]+/)+([\w{},*-]+\.[\w{},*]+)?", word))
    ours = (file for word in named if word.partition("/")[0] in FOLDERS for file in spelt_out(word))
    assert [file for file in ours if file not in OF_A_READER and not [*ROOT.glob(file.rstrip("/"))]] == []


FOLDERS = {folder.name for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".")}


def spelt_out(pattern: str) -> Iterator[str]:
    """`a/{b,c}.py` are `a/b.py` and `a/c.py`."""
    found = re.search(r"\{([^}]*)\}", pattern)
    if not found:
        yield pattern
        return
    for each in found[1].split(","):
        yield from spelt_out(pattern[: found.start()] + each + pattern[found.end() :])


@on_each_page
def test_metrics_are_there(page: Path):
    named = {name for name in re.findall(r"\bmuster_[a-z_]+\b", page.read_text()) if not name.endswith("_")}
    assert {name.removesuffix("_bucket") for name in named} <= ALL.keys()


@on_each_page
def test_settings_are_there(page: Path):
    """Those of the services and commands; a test reads some of its own."""
    named = {*re.findall(r"\b(?:MUSTER|NATS)_[A-Z_]*[A-Z]\b(?!_)", page.read_text())}
    unknown = {name for name in named if not {name, name.removeprefix("MUSTER_")} & ON_THE_PAGE}
    assert [name for name in unknown if not any(f'"{name}"' in text for text in sources())] == []


@cache
def sources() -> list[str]:
    return [file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))]


@on_each_page
def test_tests_are_there(page: Path):
    named = {name for words in code(page) for name in re.findall(r"\btest_\w+[a-z0-9]\b(?!_)", words)}
    known = "".join(sources())
    files = {file.stem for file in (ROOT / "tests").rglob("*.py")}
    assert [name for name in named - files if f"def {name}(" not in known] == []


@on_each_page
def test_reasons_kinds_and_types_of_events_are_words_of_the_code(page: Path):
    # An example of an event on `events.md`, which is written from the code, has the reason of any job.
    named = {word for words in code(page) if words[0] != "{" for word in re.findall(CAMEL, words)}
    kinds = "|".join(framework.resource.kind for framework in BUILT_IN)
    ours = {re.sub(f"^(?:{kinds})(?=[A-Z])", "{kind}", word) for word in named - OF_OTHERS}
    known = product()
    assert [word for word in ours if word not in known and word.removeprefix("{kind}") not in known] == []


@cache
def product() -> frozenset[str]:
    """All words of the code that runs, and those after a job's kind."""
    texts = (file.read_text() for folder in CODE for file in (ROOT / folder).rglob("*.py"))
    return frozenset(word for text in texts for word in re.findall(r"(?:\{kind\})?[A-Za-z]\w+", text))


CAMEL = r"\b(?:[A-Z][a-z]+){2,}\b"
CODE = ("services", "shared", "muster", "devcluster")


@on_each_page
def test_values_of_the_chart_are_there(page: Path):
    given = re.findall(r"--set(?:-string|-file|-json)?[ =]([a-zA-Z][\w.]*)", page.read_text())
    told = [word for word in code(page) if re.fullmatch(r"[a-z]\w*(\.\w+)+", word) and word.split(".")[0] in VALUES]
    names = [name for name in (*given, *told) if not name.endswith(".dev")]
    assert [name for name in names if not is_a_value(name.split("."))] == []


def is_a_value(path: list[str]) -> bool:
    """An empty mapping and an absent value take whatever a person writes there."""
    found: Any = VALUES
    for name in path:
        if not isinstance(found, dict) or not found:
            return not isinstance(found, str | int | bool)
        if name not in found:
            return False
        found = found[name]
    return True
