"""The only set type in a job's state: it iterates in ascending order in every process.  Pure."""

from collections.abc import Iterable, Iterator, Set
from typing import Any, Protocol, TypeVar


class Ordered(Protocol):
    """A value with a total order: numbers, strings, slots, and tuples of these."""

    def __lt__(self, other: Any, /) -> bool: ...


T_co = TypeVar("T_co", bound=Ordered, covariant=True)


class SortedSet(Set[T_co]):
    """An immutable set in ascending order, equal to any set with the same values."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[T_co] = ()) -> None:
        self._values = dict.fromkeys(sorted(values))

    def __contains__(self, value: object) -> bool:
        return value in self._values

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash()

    def __or__(self, other: Iterable[Any]) -> "SortedSet[T_co]":
        new = [value for value in other if value not in self._values]
        return SortedSet([*self._values, *new]) if new else self

    def __and__(self, other: Iterable[Any]) -> "SortedSet[T_co]":
        kept = other if isinstance(other, Set) else {*other}
        return SortedSet(value for value in self._values if value in kept)

    def __sub__(self, other: Iterable[Any]) -> "SortedSet[T_co]":
        gone = other if isinstance(other, Set) else {*other}
        if not any(value in self._values for value in gone):
            return self
        return SortedSet(value for value in self._values if value not in gone)

    def __repr__(self) -> str:
        return f"SortedSet({list(self._values)})"
