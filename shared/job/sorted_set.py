"""The only set type in a job's state: it iterates in ascending order in every process.  Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar


class Ordered(Protocol):
    """A value with a total order: numbers, strings, slots, and tuples of these."""

    def __lt__(self, other: Any, /) -> bool: ...


T_co = TypeVar("T_co", bound=Ordered, covariant=True)


class SortedSet(frozenset[T_co]):
    """A frozenset in ascending order; it is sorted when it is first iterated.

    Every operation that makes a set makes a `SortedSet`.  Operators take any iterable, and return the set itself if no
    value changes.
    """

    __slots__ = ("_ascending",)
    _ascending: tuple[T_co, ...]

    def __iter__(self) -> Iterator[T_co]:
        try:
            return iter(self._ascending)
        except AttributeError:
            self._ascending = tuple(sorted(super().__iter__()))
            return iter(self._ascending)

    def union(self, *others: Iterable[Any]) -> Self:
        return self._become(super().union(*others))

    def intersection(self, *others: Iterable[Any]) -> Self:
        return self._become(super().intersection(*others))

    def difference(self, *others: Iterable[Any]) -> Self:
        return self._become(super().difference(*others))

    def symmetric_difference(self, other: Iterable[Any]) -> Self:
        return type(self)(super().symmetric_difference(other))

    def copy(self) -> Self:
        return self

    def __or__(self, other: Iterable[Any]) -> Self:
        return self._become(frozenset.union(self, other))

    def __and__(self, other: Iterable[Any]) -> Self:
        return self._become(frozenset.intersection(self, other))

    def __sub__(self, other: Iterable[Any]) -> Self:
        return self._become(frozenset.difference(self, other))

    # Of `frozenset | SortedSet`, Python asks the right side first if it has these.
    __xor__ = __rxor__ = symmetric_difference
    __ror__ = __or__
    __rand__ = __and__

    def __rsub__(self, other: Iterable[Any]) -> Self:
        return type(self)(frozenset(other) - frozenset(self))

    def __repr__(self) -> str:
        return f"SortedSet({list(self)})"

    def _become(self, values: frozenset[Any]) -> Self:
        """A set of these values, which have all of this set's or are part of them."""
        return self if len(values) == len(self) else type(self)(values)
