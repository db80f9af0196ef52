"""Effects in flight: a decision does not repeat at once what runs, settles, cools down or backs off."""

from itertools import pairwise
from math import inf
from typing import ClassVar

import pytest

from shared.job.steps import Effect
from shared.runtime.queue import (
    COOL_DOWN,
    FIRST_RETRY_SECONDS,
    LONGEST_COOL_DOWN_SECONDS,
    LONGEST_RETRY_SECONDS,
    SHORTEST_COOL_DOWN_SECONDS,
    InFlight,
    Item,
    failed,
    refused,
    succeeded,
)


class Paint(Effect, frozen=True):
    wall: str
    colour: str = "white"

    @property
    def target(self) -> str:
        return self.wall


class Once(Paint, frozen=True):
    settle: ClassVar[float] = inf


WEST, EAST = Paint("west"), Paint("east")
BLUE = Paint("west", "blue")


def due(effects: InFlight, *wanted: Effect, now: float = 0.0, sequence: int = 1) -> list[Effect]:
    return [item.effect for item in effects.due(list(wanted), now, sequence)]


def begun(effects: InFlight, effect: Effect, now: float = 0.0, sequence: int = 1) -> Item:
    (item,) = effects.due([effect], now, sequence)
    return item


def test_what_is_wanted_is_begun_once():
    effects = InFlight()
    assert due(effects, WEST, EAST) == [WEST, EAST]
    assert due(effects, WEST, EAST) == []


def test_of_two_effects_on_one_target_the_later_counts():
    assert due(InFlight(), WEST, BLUE) == [BLUE]


def test_a_target_is_changed_by_one_at_a_time():
    effects = InFlight()
    begun(effects, WEST)
    assert due(effects, BLUE) == []


class Slow(Paint, frozen=True):
    settle: ClassVar[float] = inf
    rests: ClassVar[bool] = True

    def urgent(self, last: Effect) -> bool:
        return self.colour == "black"


def test_a_target_cools_down_the_longer_the_longer_its_change_took():
    effects = InFlight()
    assert succeeded(begun(effects, Slow("west"), now=10.0), 10.1) == pytest.approx(0.1 * COOL_DOWN)
    assert due(effects, Slow("west", "blue"), now=10.59) == []
    assert due(effects, Slow("west", "red"), now=10.61) == [Slow("west", "red")]


def test_a_cool_down_after_a_quick_change_is_short():
    assert succeeded(begun(InFlight(), Slow("west"), now=10.0), 10.001) == SHORTEST_COOL_DOWN_SECONDS


def test_an_urgent_effect_waits_for_no_cool_down():
    effects = InFlight()
    succeeded(begun(effects, Slow("west"), now=10.0), 10.4)
    assert due(effects, Slow("west", "black"), now=10.4) == [Slow("west", "black")]


def test_no_cool_down_is_longer_than_a_person_waits():
    effects = InFlight()
    assert succeeded(begun(effects, Slow("west"), now=10.0), 40.0) == LONGEST_COOL_DOWN_SECONDS


def test_other_targets_do_not_cool_down():
    effects = InFlight()
    assert succeeded(begun(effects, WEST, now=10.0), 10.4) == 0.0
    assert due(effects, BLUE, now=10.4) == [BLUE]


def test_after_success_the_same_is_repeated_only_when_its_outcome_should_have_been_seen():
    effects = InFlight()
    item = begun(effects, WEST)
    succeeded(item, 10.0)
    assert not item.running
    assert due(effects, WEST, now=14.9) == []
    assert due(effects, WEST, now=15.0) == [WEST]


def test_after_success_another_effect_need_not_wait():
    effects = InFlight()
    succeeded(begun(effects, WEST), 10.0)
    assert due(effects, BLUE, now=10.0) == [BLUE]


def test_what_settles_for_ever_is_not_repeated():
    effects = InFlight()
    succeeded(begun(effects, Once("west")), 10.0)
    assert due(effects, Once("west"), now=10.0**9) == []
    assert due(effects, Once("west", "blue"), now=11.0) == [Once("west", "blue")]


def test_what_is_no_longer_wanted_is_forgotten():
    effects = InFlight()
    succeeded(begun(effects, Once("west")), 10.0)
    assert due(effects, EAST, now=10.0) == [EAST]
    assert due(effects, Once("west"), EAST, now=10.0) == [Once("west")]


def test_what_is_running_is_not_forgotten_when_it_is_wanted_no_more():
    effects = InFlight()
    begun(effects, WEST)
    assert due(effects) == []
    assert due(effects, WEST) == [], "two at a time on one target"


def test_after_a_failure_any_effect_on_that_target_waits():
    effects = InFlight()
    delay = failed(begun(effects, WEST), 10.0, 0.5, None)
    assert due(effects, WEST, now=10.0 + delay - 0.01) == []
    assert due(effects, BLUE, now=10.0 + delay - 0.01) == []
    assert due(effects, BLUE, now=10.0 + delay) == [BLUE]


def test_waits_grow_from_failure_to_failure_and_have_an_end():
    effects, now, delays = InFlight(), 0.0, []
    for _ in range(30):
        delays.append(failed(begun(effects, WEST, now), now, 0.5, None))
        now += delays[-1]
    assert delays[0] == pytest.approx(FIRST_RETRY_SECONDS)
    assert all(later >= sooner for sooner, later in pairwise(delays))
    assert delays[-1] == pytest.approx(LONGEST_RETRY_SECONDS)


def test_a_changed_effect_does_not_start_the_waits_over():
    effects = InFlight()
    first = failed(begun(effects, WEST), 0.0, 0.5, None)
    assert failed(begun(effects, BLUE, 10.0), 10.0, 0.5, None) > first


def test_success_starts_them_over():
    effects = InFlight()
    for now in (0.0, 10.0, 20.0):
        failed(begun(effects, WEST, now), now, 0.5, None)
    succeeded(begun(effects, WEST, 30.0), 30.0)
    assert failed(begun(effects, WEST, 40.0), 40.0, 0.5, None) == pytest.approx(FIRST_RETRY_SECONDS)


@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_chance_spreads_the_retries(jitter: float, factor: float):
    assert failed(Item(WEST), 0.0, jitter, None) == pytest.approx(FIRST_RETRY_SECONDS * factor)


def test_an_answer_that_names_a_delay_gets_it():
    assert failed(Item(WEST), 0.0, 0.5, 7.0) == 7.0
    assert failed(Item(WEST, tries=16), 0.0, 0.5, 7.0) == LONGEST_RETRY_SECONDS


def test_a_refused_effect_waits_until_its_refusal_was_read():
    effects = InFlight()
    refused(begun(effects, WEST, sequence=5), 0.0, 9)
    assert due(effects, WEST, now=10.0**6, sequence=8) == []
    assert due(effects, WEST, now=10.0**6, sequence=9) == [WEST]


def test_a_decider_that_insists_is_slowed_down():
    # The log is not flooded with the same refusal when, say, a role lacks a permission for a day.
    effects, now, delays = InFlight(), 0.0, []
    for _ in range(12):
        delays.append(refused(begun(effects, WEST, now, sequence=9), now, 9))
        assert due(effects, WEST, now=now + delays[-1] - 0.01, sequence=99) == []
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_another_effect_may_fare_better_and_is_tried_once_the_refusal_was_read():
    effects = InFlight()
    refused(begun(effects, WEST), 0.0, 9)
    assert due(effects, BLUE, now=0.0, sequence=8) == []
    assert due(effects, BLUE, now=0.0, sequence=9) == [BLUE]


def test_a_decider_that_waited_by_itself_begins_anew():
    effects = InFlight()
    refused(begun(effects, WEST), 0.0, 9)
    assert due(effects, now=0.1, sequence=9) == []
    assert due(effects, WEST, now=1.0, sequence=10) == [WEST]
