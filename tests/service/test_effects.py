"""Effects in flight: a decision does not repeat at once what runs, settles, waits for its time or backs off."""

from itertools import pairwise
from math import inf
from typing import ClassVar

import pytest

from shared.job.steps import Effect
from shared.runtime.queue import (
    FIRST_RETRY_AFTER_CONFLICT_SECONDS,
    FIRST_RETRY_SECONDS,
    LATEST_SECONDS,
    LONGEST_RETRY_SECONDS,
    SHARE,
    SOONEST_SECONDS,
    InFlight,
    Item,
    Leisure,
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
    effects = InFlight(Leisure())
    assert due(effects, WEST, EAST) == [WEST, EAST]
    assert due(effects, WEST, EAST) == []


class Tile(Paint, frozen=True):
    bulk: ClassVar[bool] = True
    slot: str = ""


@pytest.mark.parametrize(
    ("wanted", "many"),
    [
        pytest.param([Tile("west")], False, id="one"),
        pytest.param([Tile("west"), WEST], False, id="one, and something else"),
        pytest.param([Tile("west", slot="a"), Tile("east", slot="a")], False, id="two of one slot"),
        pytest.param([Tile("west"), Tile("east")], True, id="two"),
    ],
)
def test_what_is_wanted_for_several_at_once_is_bulk_work(wanted: list[Effect], many: bool):
    items = InFlight(Leisure()).due(wanted, 0.0, 1)
    assert any(item.bulk for item in items) == many


def test_a_later_try_of_one_of_many_is_still_one_of_them():
    effects = InFlight(Leisure())
    items = effects.due([Tile("west"), Tile("east")], 0.0, 1)
    succeeded(items[1], 0.1)
    failed(items[0], 0.1, 0.5, None)
    (again,) = effects.due([Tile("west")], 100.0, 1)
    assert again.bulk
    succeeded(again, 100.1)
    (anew,) = effects.due([Tile("west")], 200.0, 1)
    assert not anew.bulk


def test_a_decision_that_comes_first_lets_nothing_be_forgotten():
    effects = InFlight(Leisure())
    succeeded(begun(effects, Once("west")), 1.0)
    assert effects.due([], 1.0, 1, all_of_them=False) == []
    assert due(effects, Once("west"), now=2.0) == []
    assert due(effects, now=3.0) == []
    assert due(effects, Once("west"), now=4.0) == [Once("west")]


def test_of_two_effects_on_one_target_the_later_counts():
    assert due(InFlight(Leisure()), WEST, BLUE) == [BLUE]


def test_a_target_is_changed_by_one_at_a_time():
    effects = InFlight(Leisure())
    begun(effects, WEST)
    assert due(effects, BLUE) == []


class Stone(Paint, frozen=True):
    @property
    def lasting(self) -> bool:
        return True


def test_what_lasts_is_not_made_again_as_soon_as_it_vanishes():
    effects, stone = InFlight(Leisure()), Stone("west", "grey")
    succeeded(begun(effects, stone, now=10.0), 10.0)
    assert due(effects, now=10.1) == []
    assert due(effects, stone, now=10.2) == []
    assert due(effects, stone, now=10.0 + stone.settle) == [stone]


def test_a_refusal_of_what_would_last_is_forgotten_once_nobody_wants_it():
    effects, stone = InFlight(Leisure()), Stone("west", "grey")
    refused(begun(effects, stone, now=10.0), 10.0, 5)
    assert due(effects, now=10.1) == []
    assert due(effects, stone, now=10.2, sequence=6) == [stone]


def test_what_lasted_is_forgotten_and_made_again_at_once():
    effects, stone = InFlight(Leisure()), Stone("west", "grey")
    succeeded(begun(effects, stone, now=10.0), 10.0)
    assert due(effects, now=10.0 + stone.settle) == []
    assert len(effects) == 0
    assert due(effects, stone, now=16.0) == [stone]


class Shade(Paint, frozen=True):
    """Nobody acts upon another shade; black is no shade."""

    settle: ClassVar[float] = inf

    def can_wait(self, last: Effect) -> bool:
        return self.colour != "black"


LIGHT, DARK, BLACK = Shade("west", "light"), Shade("west", "dark"), Shade("west", "black")


def test_what_can_wait_is_begun_in_its_time_and_once():
    effects = InFlight(Leisure())
    succeeded(begun(effects, LIGHT, now=10.0), 10.1)
    assert due(effects, DARK, now=10.2) == []
    assert effects.next_due() == 10.2 + SOONEST_SECONDS
    assert due(effects, DARK, now=10.3) == []
    assert due(effects, DARK, now=10.2 + SOONEST_SECONDS) == [DARK]


@pytest.mark.parametrize(
    ("then", "begins"), [(BLACK, [BLACK]), (LIGHT, [])], ids=["by what cannot wait", "by what is as it was"]
)
def test_a_wait_is_ended(then: Shade, begins: list[Effect]):
    effects = InFlight(Leisure())
    succeeded(begun(effects, LIGHT, now=10.0), 10.1)
    assert due(effects, DARK, now=10.2) == []
    assert due(effects, then, now=10.3) == begins
    assert effects.next_due() == inf


def test_what_follows_a_failure_does_not_wait_for_leisure():
    effects = InFlight(Leisure())
    after = failed(begun(effects, LIGHT), 0.0, 0.5, None)
    assert due(effects, DARK, now=after) == [DARK]


def test_the_targets_of_all_jobs_share_the_leisure_of_a_slow_api_server():
    leisure = Leisure()
    for _ in range(100):
        leisure.observe(0.4)
    first, second, third = (leisure.place(10.0) for _ in range(3))
    assert second - first == third - second == pytest.approx(0.4 / SHARE, rel=0.001)
    last = [leisure.place(10.0) for _ in range(100)][-1]
    assert last == 10.0 + LATEST_SECONDS
    for _ in range(100):
        leisure.observe(0.0)
    assert leisure.place(last) == pytest.approx(last + SOONEST_SECONDS)


def test_a_conflict_is_no_overload():
    assert failed(begun(InFlight(Leisure()), WEST), 0.0, 0.5, None, conflict=True) == FIRST_RETRY_AFTER_CONFLICT_SECONDS


def test_after_success_the_same_is_repeated_only_when_its_outcome_should_have_been_seen():
    effects = InFlight(Leisure())
    item = begun(effects, WEST)
    succeeded(item, 10.0)
    assert not item.running
    assert due(effects, WEST, now=14.9) == []
    assert due(effects, WEST, now=15.0) == [WEST]


def test_after_success_another_effect_need_not_wait():
    effects = InFlight(Leisure())
    succeeded(begun(effects, WEST), 10.0)
    assert due(effects, BLUE, now=10.0) == [BLUE]


def test_what_settles_for_ever_is_not_repeated():
    effects = InFlight(Leisure())
    succeeded(begun(effects, Once("west")), 10.0)
    assert due(effects, Once("west"), now=10.0**9) == []
    assert due(effects, Once("west", "blue"), now=11.0) == [Once("west", "blue")]


def test_what_is_no_longer_wanted_is_forgotten():
    effects = InFlight(Leisure())
    succeeded(begun(effects, Once("west")), 10.0)
    assert due(effects, EAST, now=10.0) == [EAST]
    assert due(effects, Once("west"), EAST, now=10.0) == [Once("west")]


def test_what_is_running_is_not_forgotten_when_it_is_wanted_no_more():
    effects = InFlight(Leisure())
    begun(effects, WEST)
    assert due(effects) == []
    assert due(effects, WEST) == [], "two at a time on one target"


@pytest.mark.parametrize(
    ("waits", "decisions", "unwanted"),
    [
        pytest.param(WEST, [[WEST]], False, id="it still is"),
        pytest.param(WEST, [[]], True, id="it is wanted no more"),
        pytest.param(WEST, [[], [WEST]], False, id="it is wanted again"),
        pytest.param(WEST, [[], [BLUE]], True, id="something else is made of its target later"),
        pytest.param(WEST, [[BLUE]], False, id="its target changes in between"),
        pytest.param(Once("west"), [[]], False, id="what is said once is said, also when more came after it"),
    ],
)
def test_what_waits_for_its_turn_knows_whether_it_is_wanted(
    waits: Effect, decisions: list[list[Effect]], unwanted: bool
):
    effects = InFlight(Leisure())
    item = begun(effects, waits)
    for wanted in decisions:
        effects.due([], 0.0, 1, all_of_them=False)
        assert due(effects, *wanted) == []
    assert item.unwanted == unwanted


def test_after_a_failure_any_effect_on_that_target_waits():
    effects = InFlight(Leisure())
    delay = failed(begun(effects, WEST), 10.0, 0.5, None)
    assert due(effects, WEST, now=10.0 + delay - 0.01) == []
    assert due(effects, BLUE, now=10.0 + delay - 0.01) == []
    assert due(effects, BLUE, now=10.0 + delay) == [BLUE]


def test_waits_grow_from_failure_to_failure_and_have_an_end():
    effects, now, delays = InFlight(Leisure()), 0.0, []
    for _ in range(30):
        delays.append(failed(begun(effects, WEST, now), now, 0.5, None))
        now += delays[-1]
    assert delays[0] == pytest.approx(FIRST_RETRY_SECONDS)
    assert all(later >= sooner for sooner, later in pairwise(delays))
    assert delays[-1] == pytest.approx(LONGEST_RETRY_SECONDS)


def test_a_changed_effect_does_not_start_the_waits_over():
    effects = InFlight(Leisure())
    first = failed(begun(effects, WEST), 0.0, 0.5, None)
    assert failed(begun(effects, BLUE, 10.0), 10.0, 0.5, None) > first


def test_success_starts_them_over():
    effects = InFlight(Leisure())
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
    effects = InFlight(Leisure())
    refused(begun(effects, WEST, sequence=5), 0.0, 9)
    assert due(effects, WEST, now=10.0**6, sequence=8) == []
    assert due(effects, WEST, now=10.0**6, sequence=9) == [WEST]


def test_a_decider_that_insists_is_slowed_down():
    # The log is not flooded with the same refusal when, say, a role lacks a permission for a day.
    effects, now, delays = InFlight(Leisure()), 0.0, []
    for _ in range(12):
        delays.append(refused(begun(effects, WEST, now, sequence=9), now, 9))
        assert due(effects, WEST, now=now + delays[-1] - 0.01, sequence=99) == []
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]


def test_another_effect_may_fare_better_and_is_tried_once_the_refusal_was_read():
    effects = InFlight(Leisure())
    refused(begun(effects, WEST), 0.0, 9)
    assert due(effects, BLUE, now=0.0, sequence=8) == []
    assert due(effects, BLUE, now=0.0, sequence=9) == [BLUE]


def test_a_decider_that_waited_by_itself_begins_anew():
    effects = InFlight(Leisure())
    refused(begun(effects, WEST), 0.0, 9)
    assert due(effects, now=0.1, sequence=9) == []
    assert due(effects, WEST, now=1.0, sequence=10) == [WEST]


class Document(Paint, frozen=True):
    settle: ClassVar[float] = inf
    latest: ClassVar[float] = 12.0

    def can_wait(self, last: Effect) -> bool:
        return True


FIRST, SECOND, THIRD = (Document("west", colour) for colour in ("white", "grey", "black"))


def test_a_target_is_late_once_its_change_takes_longer_than_it_may():
    effects = InFlight(Leisure())
    item = begun(effects, FIRST)
    assert effects.late(12.0) == []
    assert effects.late(13.0) == [13.0]
    succeeded(item, 14.0)
    assert effects.late(100.0) == []


def test_a_target_whose_effect_fails_is_late_since_it_was_to_be_changed_first():
    effects = InFlight(Leisure())
    failed(begun(effects, FIRST), 1.0, 0.5, None)
    failed(begun(effects, SECOND, now=8.0), 9.0, 0.5, None)
    assert effects.late(13.0) == [13.0]


@pytest.mark.parametrize(
    ("then", "late"), [(THIRD, [12.5]), (FIRST, [])], ids=["since its first wish", "never, if it is taken back"]
)
def test_a_change_that_waits_is_late(then: Document, late: list[float]):
    effects = InFlight(Leisure())
    succeeded(begun(effects, FIRST), 0.0)
    assert due(effects, SECOND, now=50.0) == []
    assert due(effects, then, now=50.1) == []
    assert effects.late(62.5) == late


def test_what_may_take_any_time_is_never_late():
    effects = InFlight(Leisure())
    begun(effects, WEST)
    assert effects.late(1e6) == []
