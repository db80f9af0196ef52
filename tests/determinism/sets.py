"""Where source code depends on the order of a set: found in its syntax tree, with what annotations say of types.

A set is a literal, a comprehension, `set(...)`, `frozenset(...)`, what set operators make of one or of `.keys()`, and a
name, an attribute or a call that the code annotates as one.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeGuard

UNORDERED = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
MAKE_SETS = {"set", "frozenset"}
METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
ANY_ORDER = {"set", "frozenset", "SortedSet", "any", "all", "len", "sorted", "min", "max", "sum", "Counter", "bool"}
"""Calls whose answer is the same in whatever order they meet the values; of these `ORDER_BY_KEY` not with a key."""
ORDER_BY_KEY = {"sorted", "min", "max"}


class Known(NamedTuple):
    """What modules annotate as sets."""

    functions: frozenset[str]
    methods: frozenset[str]
    attributes: frozenset[str]
    """Properties are among them."""
    constants: frozenset[str]
    modules: frozenset[str]
    """The last names of the modules: of `module.function()`, the first word."""


def annotated(trees: Mapping[Path, ast.Module]) -> Known:
    functions, methods, attributes, constants = set[str](), set[str](), set[str](), set[str]()
    for tree in trees.values():
        functions |= {one.name for one in tree.body if isinstance(one, FUNCTIONS) and _is_unordered(one.returns)}
        constants |= {_called(one.target) for one in tree.body if _is_declared(one)}
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            attributes |= {_called(one.target) for one in scope.body if _is_declared(one)}
            for one in scope.body:
                if isinstance(one, FUNCTIONS):
                    own = (
                        node for node in ast.walk(one) if _is_declared(node) and isinstance(node.target, ast.Attribute)
                    )
                    attributes |= {_called(node.target) for node in own}
                    if _is_unordered(one.returns):
                        (attributes if one.decorator_list else methods).add(one.name)
    modules = frozenset(path.stem for path in trees)
    # Of a mapping they are ordered, and which of the two it is no syntax tree says.
    methods -= {"keys", "items"}
    return Known(*map(frozenset, (functions, methods, attributes, constants)), modules)


def _is_declared(node: ast.AST) -> TypeGuard[ast.AnnAssign]:
    return isinstance(node, ast.AnnAssign) and _is_unordered(node.annotation)


def iterations(tree: ast.Module, known: Known) -> Iterator[tuple[int, str]]:
    """Line and text of each expression that is a set and is used in its order."""
    for scope in ast.walk(tree):
        if isinstance(scope, (*FUNCTIONS, ast.Module)):
            yield from _Scope(scope, known).iterations()


def handed_on(tree: ast.Module, known: Known) -> Iterator[tuple[int, str]]:
    """Line and function of each call that gets a set, but for those that take any order."""
    for scope in ast.walk(tree):
        if isinstance(scope, (*FUNCTIONS, ast.Module)):
            yield from _Scope(scope, known).handed_on()


def keys(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text, `max by KEY`, of each `key=` of `min`, `max` and `sorted`, but for those that make a tuple."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) in {*ORDER_BY_KEY, "sort"}:
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg == "key" and not (isinstance(value, ast.Lambda) and isinstance(value.body, ast.Tuple)):
                    yield node.lineno, f"{_called(node.func)} by {ast.unparse(value)}"


class _Scope:
    """A function, or what a module does itself, with the names that are sets there."""

    def __init__(self, scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module, known: Known) -> None:
        self._known = known
        self._nodes = [*_own(scope)]
        self._sets: set[str] = set()
        if not isinstance(scope, ast.Module):
            given = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
            self._sets |= {argument.arg for argument in given if _is_unordered(argument.annotation)}
            self._shadowed = {argument.arg for argument in given} - self._sets
        else:
            self._shadowed = set()
        before = -1
        while before != len(self._sets):
            before = len(self._sets)
            for node in self._nodes:
                self._assigned(node)

    def _assigned(self, node: ast.AST) -> None:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                if self._is_set(value):
                    self._sets.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=False)
                self._sets |= {_called(name) for name, value in pairs if self._is_set(value)}
            case ast.AnnAssign(target=target, annotation=annotation) if _is_unordered(annotation):
                self._sets.add(_called(target))

    def iterations(self) -> Iterator[tuple[int, str]]:
        harmless = {id(inner) for node in self._nodes for inner in _in_any_order(node)}
        for node in self._nodes:
            for used in _used_in_order(node):
                if id(node) not in harmless and id(used) not in harmless and self._is_set(used):
                    yield used.lineno, ast.unparse(node)[:120]

    def handed_on(self) -> Iterator[tuple[int, str]]:
        for node in self._nodes:
            if isinstance(node, ast.Call) and _called(node.func) not in ANY_ORDER:
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                if any(map(self._is_set, given)):
                    yield node.lineno, ast.unparse(node.func)

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id=name)) if name in MAKE_SETS:
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in METHODS and self._is_set(value):
                return True
            case ast.Call(func=ast.Name(id=name)):
                return name in self._known.functions
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if module in self._known.modules:
                return name in self._known.functions
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in self._known.methods
            case ast.BinOp(left=left, op=op):
                return isinstance(op, OPERATORS) and (self._is_set(left) or _is_keys(left))
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_set(body) or self._is_set(orelse)
            case ast.BoolOp(values=values):
                return any(self._is_set(value) for value in values)
            case ast.Subscript(value=ast.Dict(values=values)):
                return any(self._is_set(value) for value in values)
            case ast.Name(id=name):
                return name in self._sets or (name in self._known.constants and name not in self._shadowed)
            case ast.Attribute(attr=name):
                return name in self._known.attributes
            case _:
                return False


def _used_in_order(node: ast.AST) -> Iterator[ast.expr]:
    """What a piece of code goes through from the first to the last."""
    match node:
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) | ast.YieldFrom(value=iterated):
            yield iterated
        case (
            ast.AugAssign(op=ast.Add(), value=added)
            | ast.Assign(targets=[ast.Subscript(slice=ast.Slice())], value=added)
        ):
            yield added
        case ast.ListComp(generators=generators) | ast.GeneratorExp(generators=generators):
            yield from (generator.iter for generator in generators)
        case ast.DictComp(generators=generators):
            yield from (generator.iter for generator in generators)
        case ast.Call(args=given):
            if _called(node.func) not in ANY_ORDER or _by_key(node):
                # A set that is handed on as a whole is looked at where it arrives.
                takes = {
                    "list",
                    "tuple",
                    "iter",
                    "enumerate",
                    "zip",
                    "map",
                    "filter",
                    "extend",
                    "fromkeys",
                    "join",
                    "dict",
                    "chain",
                }
                if _called(node.func) in takes | ORDER_BY_KEY:
                    yield from given
            if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not given:
                yield node.func.value
        case ast.Starred(value=value):
            yield value


def _in_any_order(node: ast.AST) -> Iterator[ast.AST]:
    """The comprehensions and stars whose order is lost at once: in a set, or in a call that takes any order."""
    match node:
        case ast.Set(elts=elements):
            yield from elements
        case ast.Compare(
            ops=[ast.In() | ast.NotIn()], comparators=[ast.List(elts=elements) | ast.Tuple(elts=elements)]
        ):
            yield from elements
        case ast.Call(func=function, args=given):
            if _called(function) in ANY_ORDER and not _by_key(node):
                yield from given
                for argument in given:
                    if isinstance(argument, ast.List | ast.Tuple):
                        yield from argument.elts


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in a scope, but for the functions in it: they are scopes of their own."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from _own(child)


def _is_unordered(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.BinOp(left=left, right=right):
            return _is_unordered(left) or _is_unordered(right)
        case ast.Subscript(value=value, slice=inner):
            return _called(value) in UNORDERED or (_called(value) in {"ClassVar", "Final"} and _is_unordered(inner))
        case ast.Name() | ast.Attribute():
            return _called(annotation) in UNORDERED
        case _:
            return False


def _by_key(call: ast.Call) -> bool:
    return _called(call.func) in ORDER_BY_KEY and any(keyword.arg == "key" for keyword in call.keywords)


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _called(node.func) in {"keys", "items"} and not node.args


def _called(node: ast.AST) -> str:
    """The last name of an expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
