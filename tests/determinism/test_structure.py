"""What follows from a log cannot depend on the order of a set: neither the types of the core nor its code allow it.

The types are those that a job, an event, an effect or a timer is made of.  The code is that of the modules that import
rules call pure.
"""

import ast
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import services.scaler.core.effects
import services.scheduler.core.effects
import services.status.core.effects
from shared.job.events.catalog import AUTHORS
from shared.job.sorted_set import SortedSet
from shared.job.state import Job
from shared.job.steps import Effect
from shared.job.timers import Timer
from tests.determinism.sets import annotated, handed_on, iterations, keys

ROOT = Path(__file__).parents[2]

VALUES = (str, int, float, bool, bytes, NoneType)
ORDERED = (tuple, dict, Mapping, SortedSet)
"""Collections with one order in every process: as written, as inserted, or by value."""


def reached(kind: Any, where: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Every type that a value of `kind` is made of and that is neither a plain value nor ordered, with its place."""
    origin = get_origin(kind)
    if isinstance(kind, NewType):
        yield from reached(kind.__supertype__, where, seen)
    elif origin is Literal or kind in VALUES or kind is Ellipsis:
        return
    elif origin in (Union, UnionType) or origin in ORDERED:
        for inner in get_args(kind):
            yield from reached(inner, where, seen)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in seen:
            seen.add(kind)
            for field, inner in get_type_hints(kind).items():
                if field in kind.__struct_fields__:
                    yield from reached(inner, f"{kind.__name__}.{field}", seen)
    else:
        yield where, kind


def effects(kind: type[Effect] = Effect) -> list[type[Effect]]:
    return [each for known in kind.__subclasses__() for each in (known, *effects(known)) if each.__module__ in EFFECTS]


EFFECTS = [
    part.__name__
    for part in (services.scaler.core.effects, services.scheduler.core.effects, services.status.core.effects)
]


@pytest.mark.parametrize("kind", [Job, Timer, *AUTHORS, *effects()], ids=lambda kind: kind.__name__)
def test_every_collection_has_one_order_in_every_process(kind: type):
    assert not [*reached(kind, kind.__name__, set())]


def test_every_effect_of_the_services_is_looked_at():
    assert {kind.__module__ for kind in effects()} == {*EFFECTS}


class Inner(msgspec.Struct):
    names: Mapping[str, frozenset[str]]


class Outer(msgspec.Struct):
    inner: tuple[Inner | None, ...]
    plain: SortedSet[int]


Anything = TypeVar("Anything")


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        pytest.param(Outer, [("Inner.names", frozenset[str])], id="a set deep within"),
        pytest.param(set[int], [("here", set[int])], id="a set"),
        pytest.param(Collection[int], [("here", Collection[int])], id="what may be a set"),
        pytest.param(list[int], [("here", list[int])], id="what may be changed in place"),
        pytest.param(Any, [("here", Any)], id="anything"),
        pytest.param(tuple[int, ...] | None, [], id="a tuple"),
    ],
)
def test_a_type_without_an_order_is_found(kind: Any, found: list[tuple[str, Any]]):
    assert [*reached(kind, "here", set())] == found


def pure_folders() -> list[Path]:
    """The folders that the import rule calls pure; a name in the rule may hold a `*`."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = (contract for contract in contracts if contract["name"].startswith("The core is pure"))
    return [path for module in pure["source_modules"] for path in sorted(ROOT.glob(module.replace(".", "/")))]


def pure_modules() -> dict[Path, ast.Module]:
    """The modules of these folders, and those of ours that they import, which the rule covers too."""
    found: dict[Path, ast.Module] = {}
    todo = [file for folder in pure_folders() for file in sorted(folder.rglob("*.py"))]
    while todo:
        file = todo.pop(0)
        if file.relative_to(ROOT) not in found:
            tree = found[file.relative_to(ROOT)] = ast.parse(file.read_text())
            todo += [known for node in ast.walk(tree) for known in files_of(node)]
    return found


def files_of(node: ast.AST) -> Iterator[Path]:
    """The files of ours that a statement imports."""
    if isinstance(node, ast.ImportFrom) and node.module:
        module = ROOT / node.module.replace(".", "/")
        for path in (module, *(module / alias.name for alias in node.names)):
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


PURE = pure_modules()


def test_the_folders_of_the_import_rule_are_those_that_say_they_are_pure():
    says = [file.parent for top in ("services", "shared", "muster") for file in (ROOT / top).rglob("__init__.py")]
    says = [
        folder
        for folder in says
        if re.search("  Pure[.;]", ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "")
    ]
    assert sorted(pure_folders()) == sorted(folder for folder in says if folder.parent not in says)


def test_no_pure_module_goes_through_a_set():
    known = annotated(PURE)
    found = [f"{path}:{line}: {text}" for path, tree in PURE.items() for line, text in iterations(tree, known)]
    assert not found, "\n".join(found)


TIES = {
    ("shared/job/policies/quota.py", "sorted by lambda one: one[0]"): "the numbers of a job's Workloads differ",
    ("shared/telling/shown.py", "sorted by lambda history: history.job.key"): "no two histories are of one job",
    ("shared/telling/causes/chains.py", "max by lambda request: request.order"): "no two requests have one order",
    (
        "shared/telling/causes/chains.py",
        "sorted by lambda link: -link.sequence",
    ): "links go from the last state back",
    ("shared/telling/causes/links.py", "max by lambda link: link.sequence"): "the last one given",
    ("shared/job/ledger.py", "sorted by lambda slot: slot.attempt"): "of one place there is one slot in an attempt",
    ("services/scheduler/core/slots.py", "sorted by lambda pod: pod.deleting"): "pods are in the order first seen",
    ("services/watcher/core/cache.py", "max by newest_checkpoint"): "the later of two pods with one step",
    ("services/watcher/core/disruption.py", "min by NOTICE_SECONDS.__getitem__"): "the first of the node's taints",
    ("shared/job/policies/nodes.py", "sorted by _newest"): "no two groups of pods have a role, a node and an event",
    ("shared/job/policies/nodes.py", "sorted by lambda pod: pod.slot"): "pods are in the order first seen",
    ("shared/job/waiting.py", "min by lambda pod: pod.slot"): "pods are in the order first seen",
    ("services/watcher/core/pace.py", "min by counts.__getitem__"): "the first line, as they came or were told of",
    ("services/watcher/core/requests.py", "sorted by turn"): "a tuple that ends with a version, which one change has",
    ("shared/frameworks/statuses.py", "max by lambda known: known.since.sequence"): "the last condition",
    ("shared/job/waiting.py", "max by lambda each: each[0].sequence"): "the first loss in the order of the pods",
    (
        "shared/job/waiting.py",
        "min by lambda refusal: effects.index(refusal.effect)",
    ): "the first refusal of an effect, as they came",
    (
        "shared/telling/causes/outlook.py",
        "min by lambda each: _end(causes, each)",
    ): "the first timer in the order of `next_due`",
    (
        "shared/frameworks/statuses.py",
        "max by lambda slot: places[slot].sequence",
    ): "the first slot of the event",
    ("shared/frameworks/statuses.py", "max by lambda slot: lost[slot].at.sequence"): "the lowest slot",
    ("shared/job/policies/capacity.py", "max by lambda known: known.accepted"): "no two are accepted by one event",
}
"""Every comparison by a key that is no tuple, and why it has one outcome: what is compared is no set, as above."""


def test_every_comparison_by_a_key_says_why_it_has_one_outcome():
    found = {(str(path), text) for path, tree in PURE.items() for _, text in keys(tree)}
    assert found == TIES.keys()


HANDED_ON = {
    ("shared/telling/shown.py", "_devices"): "it looks up the number of pods of each role",
    ("services/watcher/core/heads.py", "spans"): "it sorts what it gets",
    ("services/watcher/core/takeover.py", "spans"): "it sorts what it gets",
    ("shared/frameworks/replicated.py", "self._role"): "it takes a frozenset, and is read as all others",
    ("shared/frameworks/replicated.py", "check_variables"): "it takes a frozenset, and asks it for members alone",
    ("shared/frameworks/templates.py", "_check_container"): "it takes a set, and is read as all others",
    ("shared/job/sorted_set.py", "type(self)"): "it is the sorted set itself",
    ("shared/job/policies/gangs.py", "gang.slots.isdisjoint"): "it asks for members alone",
}
"""Every call that gets a set, and why the set's order is lost there."""


def test_every_set_that_is_handed_on_says_why_its_order_is_lost():
    known = annotated(PURE)
    assert {(str(path), text) for path, tree in PURE.items() for _, text in handed_on(tree, known)} == HANDED_ON.keys()


def test_a_set_that_is_handed_on_is_found():
    tree = ast.parse("def f(names: set[str]): return g(names, 1), h(more={*names}), sorted(names), g(1)")
    assert [*handed_on(tree, annotated({Path("here.py"): tree}))] == [(1, "g"), (1, "h")]


@pytest.mark.parametrize(
    "code",
    [
        "for name in {'a', 'b'}: print(name)",
        "names = {name for name in given}\nfound = [name for name in names]",
        "def f(names: set[str]): return list(names)",
        "def f(names: frozenset[str] | None): return ', '.join(names)",
        "def names() -> set[str]: ...\ndef g(): return tuple(names())",
        "class Job:\n    slots: frozenset[int]\ndef f(job): return {slot: 0 for slot in job.slots | more}",
        "class Job:\n    @property\n    def slots(self) -> frozenset[int]: ...\ndef f(job): yield from job.slots",
        "class Job:\n    def slots(self) -> frozenset[int]: ...\ndef f(job): return next(iter(job.slots()))",
        "def f(now, before): return [uid for uid in now.keys() - before]",
        "def f(names): return sorted(set(names), key=len)",
        "def f(names): return max(name for name in {*names} if name) if names else [*frozenset(names)]",
        "def f(names): return set(names).pop()",
        "def f(found: list[str], names): found += {name for name in names}",
        "def f(found: list[str], names: set[str]): found.extend(names)",
        "def f(found: list[str], names: set[str]): found[:0] = names",
        "def f(now): a, b = set(now), 1\n    return [a for a in a]".replace("def f(now): a", "def f(now):\n    a"),
    ],
)
def test_code_that_depends_on_the_order_of_a_set_is_found(code: str):
    tree = ast.parse(code)
    assert [*iterations(tree, annotated({Path("here.py"): tree}))]


@pytest.mark.parametrize(
    "code",
    [
        "def f(names: set[str]): return sorted(names)",
        "def f(names: set[str]): return any(name for name in names)",
        "def f(names: set[str]): return {name.lower() for name in names}",
        "def f(names: set[str]): return SortedSet(name.lower() for name in names)",
        "def f(names: set[str]): return len({*names, 'more'})",
        "def f(names: set[str], name): return name in [*names]",
        "def f(names: list[str]): return [name for name in names]",
        "def f(known): return [key for key in known.keys()]",
        "names = {'a'}\ndef f(names: list[str]): return [name for name in names]",
    ],
)
def test_code_in_which_the_order_of_a_set_is_lost_is_let_through(code: str):
    tree = ast.parse(code)
    assert not [*iterations(tree, annotated({Path("here.py"): tree}))]
