"""What was not listed is not missed: a watcher that has yet to see pods, children or requests takes none away."""

import pytest

from shared.job.events.watcher import JobObserved
from tests.kit.builders import a_running_job, scaling_out
from tests.watcher.watching import Watching, a_resource


def just_started(*, epoch: int = 0) -> Watching:
    """A new watcher that listed the jobs and nothing else yet; the log knows pods, children and a request."""
    watching = Watching(*a_running_job(workers=2), *scaling_out(2))
    watching.listed(0)
    watching.cache.scalable.version = 1_000
    watching.cache.epoch = epoch
    watching.show(a_resource(version=1))
    return watching


@pytest.mark.parametrize("listing", [0, 1, 2, 3, 4])
def test_of_what_was_not_listed_nothing_is_gone(listing: int):
    watching = just_started()
    whole = [*watching.cache.jobs.values(), *watching.cache.runtimes.values()]
    others = [known for known in watching.cache.listings() if all(known is not each for each in whole)]
    for known in others:
        known.version = 1_000
    others[listing].version = 0
    watching.answer(there=True)
    said = [type(fact).__name__ for fact in watching.seen()]
    everything = ["LauncherLost", "PodsGone", *["ChildGone"] * 2, "ScaleRequestGone"]
    missing = [["ScaleRequestGone"]] * 2 + [["LauncherLost", "PodsGone"]] + [["ChildGone"]] * 2
    for kind in missing[listing]:
        everything.remove(kind)
    assert said == everything


def test_nor_in_a_restored_store_whose_versions_say_nothing():
    watching = just_started(epoch=1)
    (fact,) = watching.seen()
    assert isinstance(fact, JobObserved)
    watching.settle()
    assert watching.seen() == []
    assert watching.job().launcher is not None
    assert len(watching.job().pods.views) == 3
