"""Wishes: what is under way, so that a wake-up does not repeat it at once."""

from itertools import pairwise
from math import inf
from typing import ClassVar

import pytest

from shared.job.steps import Effect
from shared.runtime.effects import (
    FIRST_RETRY_SECONDS,
    LEAST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    LONGEST_RETRY_SECONDS,
    REST,
    Wish,
    Wishes,
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


def due(wishes: Wishes, *wanted: Effect, now: float = 0.0, sequence: int = 1) -> list[Effect]:
    return [wish.effect for wish in wishes.due(list(wanted), now, sequence)]


def begun(wishes: Wishes, effect: Effect, now: float = 0.0, sequence: int = 1) -> Wish:
    (wish,) = wishes.due([effect], now, sequence)
    return wish


def test_what_is_wanted_is_begun_once():
    wishes = Wishes()
    assert due(wishes, WEST, EAST) == [WEST, EAST]
    assert due(wishes, WEST, EAST) == []


def test_of_two_wishes_on_one_target_the_later_counts():
    assert due(Wishes(), WEST, BLUE) == [BLUE]


def test_a_target_is_changed_by_one_at_a_time():
    wishes = Wishes()
    begun(wishes, WEST)
    assert due(wishes, BLUE) == []


class Slow(Paint, frozen=True):
    settle: ClassVar[float] = inf
    rests: ClassVar[bool] = True

    def urgent(self, last: Effect) -> bool:
        return self.colour == "black"


def test_a_target_that_rests_is_left_alone_the_longer_the_longer_its_change_took():
    wishes = Wishes()
    assert succeeded(begun(wishes, Slow("west"), now=10.0), 10.1) == pytest.approx(0.1 * REST)
    assert due(wishes, Slow("west", "blue"), now=10.59) == []
    assert due(wishes, Slow("west", "red"), now=10.61) == [Slow("west", "red")]


def test_a_rest_after_a_quick_change_is_short():
    assert succeeded(begun(Wishes(), Slow("west"), now=10.0), 10.001) == LEAST_REST_SECONDS


def test_what_is_urgent_does_not_wait():
    wishes = Wishes()
    succeeded(begun(wishes, Slow("west"), now=10.0), 10.4)
    assert due(wishes, Slow("west", "black"), now=10.4) == [Slow("west", "black")]


def test_no_rest_is_longer_than_a_person_waits():
    wishes = Wishes()
    assert succeeded(begun(wishes, Slow("west"), now=10.0), 40.0) == LONGEST_REST_SECONDS


def test_other_targets_do_not_rest():
    wishes = Wishes()
    assert succeeded(begun(wishes, WEST, now=10.0), 10.4) == 0.0
    assert due(wishes, BLUE, now=10.4) == [BLUE]


def test_after_success_the_same_is_repeated_only_when_its_outcome_should_have_been_seen():
    wishes = Wishes()
    wish = begun(wishes, WEST)
    succeeded(wish, 10.0)
    assert not wish.running
    assert due(wishes, WEST, now=14.9) == []
    assert due(wishes, WEST, now=15.0) == [WEST]


def test_after_success_another_wish_need_not_wait():
    wishes = Wishes()
    succeeded(begun(wishes, WEST), 10.0)
    assert due(wishes, BLUE, now=10.0) == [BLUE]


def test_what_settles_for_ever_is_not_repeated():
    wishes = Wishes()
    succeeded(begun(wishes, Once("west")), 10.0)
    assert due(wishes, Once("west"), now=10.0**9) == []
    assert due(wishes, Once("west", "blue"), now=11.0) == [Once("west", "blue")]


def test_what_is_no_longer_wanted_is_forgotten():
    wishes = Wishes()
    succeeded(begun(wishes, Once("west")), 10.0)
    assert due(wishes, EAST, now=10.0) == [EAST]
    assert due(wishes, Once("west"), EAST, now=10.0) == [Once("west")]


def test_what_is_running_is_not_forgotten_when_nobody_wants_it_any_more():
    wishes = Wishes()
    begun(wishes, WEST)
    assert due(wishes) == []
    assert due(wishes, WEST) == [], "two at a time on one target"


def test_after_a_failure_any_wish_on_that_target_waits():
    wishes = Wishes()
    delay = failed(begun(wishes, WEST), 10.0, 0.5, None)
    assert due(wishes, WEST, now=10.0 + delay - 0.01) == []
    assert due(wishes, BLUE, now=10.0 + delay - 0.01) == []
    assert due(wishes, BLUE, now=10.0 + delay) == [BLUE]


def test_waits_grow_from_failure_to_failure_and_have_an_end():
    wishes, now, delays = Wishes(), 0.0, []
    for _ in range(30):
        delays.append(failed(begun(wishes, WEST, now), now, 0.5, None))
        now += delays[-1]
    assert delays[0] == pytest.approx(FIRST_RETRY_SECONDS)
    assert all(later >= sooner for sooner, later in pairwise(delays))
    assert delays[-1] == pytest.approx(LONGEST_RETRY_SECONDS)


def test_a_changed_wish_does_not_start_the_waits_over():
    wishes = Wishes()
    first = failed(begun(wishes, WEST), 0.0, 0.5, None)
    assert failed(begun(wishes, BLUE, 10.0), 10.0, 0.5, None) > first


def test_success_starts_them_over():
    wishes = Wishes()
    for now in (0.0, 10.0, 20.0):
        failed(begun(wishes, WEST, now), now, 0.5, None)
    succeeded(begun(wishes, WEST, 30.0), 30.0)
    assert failed(begun(wishes, WEST, 40.0), 40.0, 0.5, None) == pytest.approx(FIRST_RETRY_SECONDS)


@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_chance_keeps_them_apart(jitter: float, factor: float):
    assert failed(Wish(WEST), 0.0, jitter, None) == pytest.approx(FIRST_RETRY_SECONDS * factor)


def test_who_asks_for_patience_gets_it():
    assert failed(Wish(WEST), 0.0, 0.5, 7.0) == 7.0
    assert failed(Wish(WEST, tries=16), 0.0, 0.5, 7.0) == LONGEST_RETRY_SECONDS


def test_a_refused_wish_waits_until_its_refusal_was_read():
    wishes = Wishes()
    refused(begun(wishes, WEST, sequence=5), 0.0, 9)
    assert due(wishes, WEST, now=10.0**6, sequence=8) == []
    assert due(wishes, WEST, now=10.0**6, sequence=9) == [WEST]


def test_a_decider_that_insists_is_slowed_down():
    # The log is not flooded with the same refusal when, say, a role lacks a permission for a day.
    wishes, now, delays = Wishes(), 0.0, []
    for _ in range(12):
        delays.append(refused(begun(wishes, WEST, now, sequence=9), now, 9))
        assert due(wishes, WEST, now=now + delays[-1] - 0.01, sequence=99) == []
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_another_wish_may_fare_better_and_is_tried_once_the_refusal_was_read():
    wishes = Wishes()
    refused(begun(wishes, WEST), 0.0, 9)
    assert due(wishes, BLUE, now=0.0, sequence=8) == []
    assert due(wishes, BLUE, now=0.0, sequence=9) == [BLUE]


def test_a_decider_that_waited_by_itself_begins_anew():
    wishes = Wishes()
    refused(begun(wishes, WEST), 0.0, 9)
    assert due(wishes, now=0.1, sequence=9) == []
    assert due(wishes, WEST, now=1.0, sequence=10) == [WEST]
