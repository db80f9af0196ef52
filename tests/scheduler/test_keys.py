"""The key pair of a job: who needs one, when it is made, and what waits for it."""

import pytest

from services.scheduler.core import keys
from services.scheduler.core.effects import CreateSecret
from shared.job.events.catalog import AnyEvent
from shared.job.events.refused import EffectRefused
from shared.job.events.status import JobCreated
from shared.job.events.watcher import ChildGone, ChildrenObserved, TimePassed
from shared.job.naming import Uid
from shared.job.views import ChildView
from tests.kit.builders import a_created_job, a_running_job, a_spec, observed, secret
from tests.kit.histories import KEY, a_history
from tests.kit.stories import given

GONE = ChildGone(kind="Secret", name=KEY.name, uid=Uid("keys"))


def a_job_with(**spec: str) -> list[AnyEvent]:
    return [observed(a_spec(**spec)), JobCreated(reason="TrainingJobCreated")]


def there(*events: AnyEvent) -> bool:
    return keys.ready(a_history(events).job)


def test_a_job_that_is_taken_on_gets_a_pair_before_its_first_pod():
    taken_on = [observed(a_spec()), JobCreated(reason="TrainingJobCreated")]
    given(*taken_on).then(keys.missing, CreateSecret())
    given(*a_created_job()).then(keys.missing, CreateSecret())
    assert not there(*a_created_job())


def test_a_pair_that_was_seen_is_not_made_again():
    given(*a_created_job(), secret()).then_nothing(keys.missing)
    assert there(*a_created_job(), secret())


def test_a_secret_that_vanished_is_made_again_and_waited_for():
    given(*a_running_job(), GONE).then(keys.missing, CreateSecret())
    assert not there(*a_running_job(), GONE)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"ssh_secret": "my-keys"}, id="the user brings one"),
        pytest.param({"ssh_secret": KEY.name}, id="the user brings one of the job's name"),
        pytest.param({"attach_mode": "kubexec"}, id="no pod attaches by ssh"),
    ],
)
def test_nothing_is_made_and_nothing_waited_for_when(spec: dict[str, str]):
    given(*a_job_with(**spec)).then_nothing(keys.missing)
    assert there(*a_job_with(**spec))


def test_another_object_of_that_name_is_no_pair():
    service = ChildView(kind="Service", name=KEY.name, uid=Uid("svc"), version=5, ours=True)
    assert not there(*a_created_job(), ChildrenObserved(children=(service,)))


def test_a_name_that_is_taken_is_waited_for():
    taken = [*a_created_job(), EffectRefused(effect="CreateSecret", reason="NameConflict")]
    given(*taken).then_nothing(keys.missing)
    assert not there(*taken)
    given(*taken, TimePassed(anchor=len(taken), timer="BackOff:CreateSecret")).then(keys.missing, CreateSecret())


def test_what_is_refused_for_good_is_not_tried_again():
    refused = EffectRefused(effect="CreateSecret", reason="Invalid", permanent=True)
    given(*a_created_job(), refused).then_nothing(keys.missing)


def test_of_a_job_that_runs_what_was_refused_for_good_is_tried_again():
    refused = EffectRefused(effect="CreateSecret", reason="Invalid", permanent=True)
    story = [*a_running_job(), GONE, refused]
    given(*story).then_nothing(keys.missing)
    given(*story, TimePassed(anchor=len(story), timer="BackOff:CreateSecret")).then(keys.missing, CreateSecret())
