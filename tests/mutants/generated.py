"""Mutants of the policies, made from their syntax trees.

Each condition is negated, each comparison and each `and` or `or` becomes its opposite, each returned value is lost.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = "shared/job/policies"
POLICIES = tuple(sorted(f"{FOLDER}/{file.name}" for file in (ROOT / FOLDER).glob("*.py") if file.name != "__init__.py"))

_OWN = {
    "capacity": ("tests/service/test_capacity.py",),
    "gangs": ("tests/scheduler/test_gangs.py", "tests/service/test_gangs.py"),
    "nodes": (
        "tests/scaler/test_notice.py",
        "tests/scheduler/test_lost_nodes.py",
        "tests/status/test_launcher_wait.py",
    ),
    "quota": ("tests/scheduler/test_queueing.py",),
    "replacement": ("tests/job/test_replacement.py", "tests/job/test_numbering.py"),
    "retries": ("tests/job/test_exit_codes.py", "tests/job/test_backoff.py", "tests/status/test_attempts.py"),
    "stalls": ("tests/service/test_stalls.py",),
    "verdict": (
        *(f"tests/job/test_{name}.py" for name in ("verdict", "outcome")),
        "tests/scheduler/test_cleanup.py",
    ),
}
"""The tests of each policy."""

STORIES: Mapping[str, tuple[str, ...]] = {
    policy: (
        *_OWN[Path(policy).stem],
        "tests/job",
        "tests/status",
        "tests/scheduler",
        "tests/scaler/test_groups.py",
    )
    for policy in POLICIES
}
"""By policy, its own tests, then those of all who ask it."""

_OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

_EMPTY = {"bool": "False", "int": "0", "str": "''", "dict": "{}", "list": "[]", "tuple": "()"}
"""By the sort of a function's value, one that says nothing; None for every other sort."""

_Change = tuple[str, int, Callable[[], Callable[[], None]]]
"""What is changed and in which line; the call makes the change and returns the call that takes it back."""


def mutants_of(file: str, source: str) -> Iterator[tuple[str, str]]:
    """The name of each mutant, with file and line, and its source; no source comes twice."""
    tree = ast.parse(source)
    known = {ast.unparse(tree)}
    for what, line, change in _changes(tree):
        undo = change()
        text = ast.unparse(tree)
        undo()
        if text not in known:
            known.add(text)
            yield f"{file}:{line}: {what}", f"{text}\n"


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                yield from _lost_values(node)
            case ast.If() | ast.IfExp() | ast.While():
                yield _negated(node, "test", node.test)
            case ast.match_case(guard=ast.expr() as guard):
                yield _negated(node, "guard", guard)
            case ast.comprehension():
                for place, condition in enumerate(node.ifs):
                    yield _negated(node.ifs, place, condition)
            case ast.Compare():
                for place, operator in enumerate(node.ops):
                    opposite = _OPPOSITES[type(operator)]()
                    what = f"`{ast.unparse(node)}` is flipped"
                    yield what, node.lineno, _replacing(node.ops, place, opposite)
            case ast.BoolOp():
                other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                yield f"`{ast.unparse(node)}` is flipped", node.lineno, _replacing(node, "op", other)
            case _:
                pass


def _negated(parent: ast.AST | list[ast.expr], place: str | int, condition: ast.expr) -> _Change:
    what = f"the condition `{ast.unparse(condition)}` is negated"
    return what, condition.lineno, _replacing(parent, place, ast.UnaryOp(ast.Not(), condition))


def _lost_values(function: ast.FunctionDef) -> Iterator[_Change]:
    annotation = ast.unparse(function.returns) if function.returns is not None else ""
    empty = "None" if "| None" in annotation else _EMPTY.get(annotation.partition("[")[0], "None")
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            what = f"`{function.name}` returns {empty} and not `{ast.unparse(node.value)}`"
            yield what, node.lineno, _replacing(node, "value", ast.parse(empty, mode="eval").body)


def _replacing(parent: ast.AST | list, place: str | int, new: ast.AST) -> Callable[[], Callable[[], None]]:
    def change() -> Callable[[], None]:
        before = parent[place] if isinstance(parent, list) else getattr(parent, str(place))
        _put(parent, place, new)
        return lambda: _put(parent, place, before)

    return change


def _put(parent: ast.AST | list, place: str | int, new: object) -> None:
    if isinstance(parent, list):
        parent[place] = new
    else:
        setattr(parent, str(place), new)
