"""Sorted sets are sets, in ascending order whatever made them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.job.sorted_set import SortedSet

NUMBERS = st.lists(st.integers(-9, 9))
OPERATIONS = ("__or__", "__and__", "__sub__")


@pytest.mark.parametrize("operation", OPERATIONS)
@given(mine=NUMBERS, other=NUMBERS)
def test_the_result_is_that_of_a_set_in_ascending_order(operation: str, mine: list[int], other: list[int]):
    expected = getattr(set(mine), operation)(set(other))
    for others in (other, set(other), SortedSet(other), dict.fromkeys(other), iter(other)):
        found = getattr(SortedSet(mine), operation)(others)
        assert isinstance(found, SortedSet)
        assert [*found] == list(found) == [*tuple(found)] == [*dict.fromkeys(found)] == sorted(expected)
        assert found == expected


@pytest.mark.parametrize("operation", OPERATIONS)
@given(mine=NUMBERS, other=NUMBERS)
def test_a_set_that_stays_the_same_is_not_copied(operation: str, mine: list[int], other: list[int]):
    before = SortedSet(mine)
    found = getattr(before, operation)(other)
    assert (found is before) == (found == before)
