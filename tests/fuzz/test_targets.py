"""Each reader on what it once could not read, on recorded inputs, and on changes of them."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import FOUND, found, seeds
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, Target

each_target = pytest.mark.parametrize("name", TARGETS)


def inputs_once_found() -> Iterator[object]:
    for name in TARGETS:
        yield from (pytest.param(TARGETS[name], file.read_bytes(), id=f"{name}/{file.name}") for file in found(name))


@pytest.mark.parametrize(("target", "data"), [*inputs_once_found()])
def test_an_input_that_was_found_is_read_or_refused(target: Target, data: bytes):
    target.try_on(data)


def test_every_input_that_was_found_belongs_to_a_target():
    assert {folder.name for folder in FOUND.iterdir()} <= TARGETS.keys()


@each_target
def test_recorded_inputs_are_read(name: str):
    read = [TARGETS[name].try_on(data) for data in seeds(name)]
    assert any(read), "a target that refuses all of its corpus tests only its refusals"


@each_target
@given(data=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_read_or_refused(name: str, data: bytes):
    TARGETS[name].try_on(data)


@each_target
@given(seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_a_changed_input_is_read_or_refused(name: str, seed: int):
    chance, corpus = Random(seed), seeds(name)
    data = chance.choice(corpus)
    for _ in range(chance.randint(1, 4)):
        data = mutated(data, chance, corpus)
    TARGETS[name].try_on(data)
