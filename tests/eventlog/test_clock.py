"""The log server's clock: never ahead of it, and as it is since its newest answer."""

from shared.eventlog.connection import ServerClock


def test_it_is_unknown_before_the_first_answer():
    assert ServerClock().now(5.0) is None


def test_between_answers_it_goes_on_as_the_monotonic_clock_does():
    clock = ServerClock()
    clock.note(1_000.0, monotonic=50.0)
    assert clock.now(50.0) == 1_000.0
    assert clock.now(57.5) == 1_007.5


def test_a_clock_that_is_set_is_followed_either_way():
    clock = ServerClock()
    clock.note(1_000.0, monotonic=50.0)
    clock.note(8_200.0, monotonic=51.0)
    assert clock.now(51.0) == 8_200.0
    clock.note(1_002.0, monotonic=52.0)
    assert clock.now(53.0) == 1_003.0
