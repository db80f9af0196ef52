"""Jobs that a LIST lacks: one is asked for, very many are not believed gone."""

import pytest

from services.watcher.vanished import may_be_gone, too_many
from tests.kit.builders import a_running_job
from tests.watcher.sightings import Watching, a_sight


@pytest.mark.parametrize(
    ("missing", "known", "doubted"),
    [
        pytest.param(10, 10, False, id="ten may go at once, even if that is all"),
        pytest.param(11, 12, True, id="more are too many of a few"),
        pytest.param(200, 1_000, False, id="a fifth of many may go"),
        pytest.param(201, 1_000, True, id="but no more"),
    ],
)
def test_too_many(missing, known, doubted):
    assert too_many(missing, known) is doubted


def test_a_job_that_no_list_shows_any_more_may_be_gone():
    watching = Watching(*a_running_job(workers=2))
    watching.show(a_sight(version=1))
    watching.show(None)
    assert may_be_gone(watching.job(), watching.world)


def test_one_that_its_own_get_did_not_find_is_not_asked_for_again():
    watching = Watching(*a_running_job(workers=2))
    watching.show(a_sight(version=1))
    watching.show(None)
    watching.world.confirmed_gone.add(watching.job().key)
    assert not may_be_gone(watching.job(), watching.world)


def test_before_the_first_list_nothing_is_missing():
    watching = Watching(*a_running_job(workers=2))
    watching.world.scalable.version = 0
    assert not may_be_gone(watching.job(), watching.world)
