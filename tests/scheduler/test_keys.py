"""The ssh keys of an attempt: which Secret has them, when it is made and deleted, and what waits for it."""

import pytest

from services.scheduler.core import keys
from services.scheduler.core.effects import CreateSecret, DeleteSecret
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobRestarted, SecretGone, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobRestarting, JobSucceeded, JobSuspended
from shared.job.events.watcher import ChildrenObserved, JobAdopted, JobDeleting, JobGone, PodsGone, TimePassed
from shared.job.fold import closed
from shared.job.naming import Uid, secret_name
from shared.job.spec import LAUNCHER, WORKER
from shared.job.steps import Record
from shared.job.views import Slots
from tests.kit.builders import (
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    launcher,
    observed,
    pods,
    secret,
    service,
    worker,
    workers,
)
from tests.kit.histories import KEY, a_history
from tests.kit.stories import given, scheduler

CREATE = CreateSecret(0, secret_name(KEY, 0))
DELETE = DeleteSecret(0, secret_name(KEY, 0), Uid("keys-0"))
OF_ALL = Slots(0, WORKER, ((0, 1),)), Slots(0, LAUNCHER, ((0, 0),))
ENDED = [JobRestarting(reason="TrainingJobRestarting"), SlotsReleased(slots=OF_ALL, reason="Restarting")]
ALL_GONE = PodsGone(uids=(Uid("pod-0"), Uid("pod-1"), Uid("pod-launcher")))


def a_job_with(**spec: str) -> list[AnyEvent]:
    return [observed(a_spec(**spec)), JobCreated(reason="TrainingJobCreated")]


def there(*events: AnyEvent) -> bool:
    return keys.ready(a_history(events).job)


def named(*events: AnyEvent) -> str:
    return keys.secret(a_history(events).job)


def test_a_job_that_is_taken_on_gets_one_secret_before_its_first_pod():
    taken_on = [observed(a_spec()), JobCreated(reason="TrainingJobCreated")]
    given(*taken_on).then(keys.missing, CREATE)
    given(*a_created_job()).then(keys.missing, CREATE)
    assert not there(*a_created_job())
    given(*a_created_job(), secret()).then_nothing(keys.missing)
    assert there(*a_created_job(), secret())


def test_the_name_of_a_secret_has_the_uid_of_its_job_and_the_attempt():
    assert secret_name(KEY, 3) == f"{KEY.name}-ssh-{KEY.uid}-3"


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


def test_what_was_refused_is_tried_again_after_its_back_off():
    refused = [*a_created_job(), EffectRefused(effect="CreateSecret", reason="QuotaExceeded")]
    given(*refused).then_nothing(keys.missing)
    assert not there(*refused)
    given(*refused, TimePassed(anchor=len(refused), timer="BackOff:CreateSecret")).then(keys.missing, CREATE)


def test_a_secret_that_was_made_ends_the_back_off():
    refused = EffectRefused(effect="CreateSecret", reason="QuotaExceeded")
    assert "CreateSecret" not in a_history([*a_created_job(), refused, secret()]).job.efforts.refusals


def test_what_is_refused_for_good_is_not_tried_again():
    refused = EffectRefused(effect="CreateSecret", reason="Invalid", permanent=True)
    given(*a_created_job(), refused).then_nothing(keys.missing)


class TestAnAttemptThatIsOver:
    def test_keeps_its_secret_while_a_pod_of_it_is_left(self):
        given(*a_running_job(), *ENDED).then_nothing(keys.spent)

    def test_loses_its_secret_with_its_last_pod(self):
        given(*a_running_job(), *ENDED, ALL_GONE).then(keys.spent, DELETE)
        given(*a_running_job(), *ENDED, ALL_GONE, SecretGone(attempt=0)).then_nothing(keys.spent)

    def test_has_pods_that_ended_and_need_no_secret(self):
        over = [
            *a_running_job(clean="None"),
            pods(
                *(worker(index, version=30, phase="Succeeded", exits=exited(0)) for index in (0, 1)),
                launcher(version=30, phase="Succeeded", exits=exited(0)),
            ),
            JobSucceeded(reason="TrainingJobSucceeded"),
        ]
        given(*over).then(scheduler, DELETE)

    def test_of_a_job_that_is_suspended_before_its_first_slots_goes_on_later(self):
        early = [*a_job_with(), secret(), JobSuspended(reason="Suspended")]
        given(*early).then_nothing(keys.spent)

    def test_is_followed_by_one_with_other_keys(self):
        again = [*a_running_job(), *ENDED, ALL_GONE, JobRestarted(attempt=1)]
        given(*again).then(
            scheduler,
            Record(SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted")),
            CreateSecret(1, secret_name(KEY, 1)),
            DELETE,
        )
        assert named(*again) == secret_name(KEY, 1)


class TestAJobThatIsGone:
    def test_is_closed_once_its_secrets_are_deleted(self):
        gone = [*a_created_job(), secret(), secret(1), JobGone()]
        given(*gone).then(scheduler, DELETE, DeleteSecret(1, secret_name(KEY, 1), Uid("keys-1")))
        assert not closed(a_history(gone).job)
        assert closed(a_history([*gone, SecretGone(attempt=0), SecretGone(attempt=1)]).job)

    def test_leaves_the_secrets_that_are_orphaned(self):
        gone = [*a_created_job(), secret(), JobDeleting(version=9, orphan=True), JobGone()]
        given(*gone).then_nothing(scheduler)
        assert closed(a_history(gone).job)


def test_in_a_restored_store_the_secret_is_made_again_if_it_is_lost():
    restored = ChildrenObserved(children=service().children, epoch=1)
    given(*a_running_job(), restored).then(keys.missing, CREATE)


class TestTheSecretOfAnotherOperator:
    TAKEN_OVER = (
        observed(a_spec()),
        pods(worker(0), worker(1)),
        JobAdopted(source="AnotherOperator", slots=(workers(0, 1),), next_index=2, start_time="2029-01-01T00:00:00Z"),
    )

    def test_serves_the_attempt_that_it_began_and_is_made_only_if_it_is_missing(self):
        given(*self.TAKEN_OVER).then(keys.missing, CreateSecret(0, KEY.name))
        assert named(*self.TAKEN_OVER, secret()) == KEY.name
