"""Sorted sets are sets, in ascending order whatever made them."""

import copy
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.job.sorted_set import SortedSet
from tests.determinism.processes import ROOT, SEEDS

NUMBERS = st.lists(st.integers(-9, 9))
KEEPING = ("__or__", "__and__", "__sub__")
"""Operations that return the set itself if its values stay the same."""
OPERATIONS = (*KEEPING, "__xor__", "union", "intersection", "difference", "symmetric_difference")
OPERATORS = (operator.or_, operator.and_, operator.sub, operator.xor)


def is_ascending(found: object, values: Collection[int]) -> bool:
    assert isinstance(found, SortedSet)
    assert [*found] == list(found) == [*tuple(found)] == [*dict.fromkeys(found)] == sorted(values)
    return found == values and hash(found) == hash(frozenset(values))


@pytest.mark.parametrize("operation", OPERATIONS)
@given(mine=NUMBERS, other=NUMBERS)
def test_the_result_is_that_of_a_set_in_ascending_order(operation: str, mine: list[int], other: list[int]):
    expected = getattr(set(mine), operation)(set(other))
    for others in (other, set(other), SortedSet(other), dict.fromkeys(other), iter(other)):
        assert is_ascending(getattr(SortedSet(mine), operation)(others), expected)


@pytest.mark.parametrize("of_two", OPERATORS)
@given(mine=NUMBERS, other=NUMBERS)
def test_a_frozenset_and_a_sorted_set_make_a_sorted_set(
    of_two: Callable[[Any, Any], Any], mine: list[int], other: list[int]
):
    assert is_ascending(of_two(frozenset(other), SortedSet(mine)), of_two(set(other), set(mine)))


@pytest.mark.parametrize("operation", KEEPING)
@given(mine=NUMBERS, other=NUMBERS)
def test_a_set_that_stays_the_same_is_not_copied(operation: str, mine: list[int], other: list[int]):
    before = SortedSet(mine)
    found = getattr(before, operation)(other)
    assert (found is before) == (found == before)


@given(numbers=NUMBERS)
def test_several_iterables_are_joined_or_taken_away_at_once(numbers: list[int]):
    assert is_ascending(SortedSet(numbers).union([10], {11, 12}), {*numbers, 10, 11, 12})
    assert is_ascending(SortedSet(numbers).difference([1], {2, 3}), {*numbers} - {1, 2, 3})
    assert is_ascending(SortedSet(numbers).intersection([1, 2], {2, 3}), {*numbers} & {2})
    assert is_ascending(SortedSet(numbers).union(), {*numbers})


@pytest.mark.parametrize("iterated", [False, True])
@given(numbers=NUMBERS)
def test_a_copy_is_a_sorted_set(iterated: bool, numbers: list[int]):
    before = SortedSet(numbers)
    if iterated:
        assert list(before) == sorted({*numbers})
    pickled = pickle.loads(pickle.dumps(before))  # noqa: S301
    for found in (before.copy(), copy.copy(before), copy.deepcopy(before), pickled):
        assert is_ascending(found, {*numbers})


NAMES = ("evaluator", "chief", "worker", "ps", "launcher", "master", "server", "scheduler")


PROGRAM = f"""
import msgspec, pickle
from shared.job.sorted_set import SortedSet

one = SortedSet({NAMES})
pickled = pickle.loads(pickle.dumps(one))
for found in (one, one | {{"x"}}, one ^ {{"ps"}}, frozenset({{"y"}}) | one, one.union(["z"]), one.copy(), pickled):
    print(type(found).__name__, *found, ",".join(found), *map(str, found), msgspec.json.encode(found), repr(found))
"""


def test_strings_have_one_order_in_every_process():
    said = set()
    for seed in SEEDS:
        environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", PROGRAM]
        said.add(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)
    (lines,) = said
    assert all(line.startswith("SortedSet chief evaluator ") for line in lines.splitlines())


def test_the_encoder_of_documents_keeps_the_order():
    assert msgspec.json.decode(msgspec.json.encode(SortedSet(NAMES))) == sorted(NAMES)
    assert msgspec.to_builtins(SortedSet(NAMES), builtin_types=()) == sorted(NAMES)
