"""Who changed a job: a client is named only if it is certain."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from services.watcher.core.actors import MOST_CHANGES, attributed, since, writes
from services.watcher.core.observed import ObservedJob
from services.watcher.core.views import observed_job, observed_request
from shared.frameworks.training_job import TRAININGJOB
from shared.job.events.watcher import JobObserved
from shared.job.naming import RESTART
from shared.job.spec import RuntimeUsed
from shared.job.views import Actor
from tests.frameworks.documents import changed, custom, training_job
from tests.watcher.objects import a_request
from tests.watcher.watching import Watching

EDIT, SCALE, ROBOT = Actor("kubectl-edit", "Update"), Actor("kubectl", "Update", "scale"), Actor("robot", "Apply")
WORKERS = "spec.etReplicaSpecs.worker.replicas"


def entry(actor: Actor, second: int, *fields: str) -> dict[str, Any]:
    """As kube-apiserver 1.34 writes it."""
    return {
        "manager": actor.manager,
        "operation": actor.operation,
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "time": f"2030-01-01T00:00:{second:02}Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{field}": {"f:within": {}} for field in fields},
    } | ({"subresource": actor.subresource} if actor.subresource else {})


def a_job(version: int, workers: int, *entries: Mapping[str, Any], generation: int = 1) -> ObservedJob:
    document = changed(training_job(), WORKERS, workers)
    meta = {"resourceVersion": str(version), "generation": generation, "managedFields": [*entries]}
    return observed_job(TRAININGJOB, custom(document | {"metadata": document["metadata"] | meta}))


def after(*states: ObservedJob, listed: bool = False) -> ObservedJob:
    """The last state, if the first was listed and the watch showed the others, or a list each."""
    job = attributed(states[0], None, listed=True)
    for state in states[1:]:
        job = attributed(state, job, listed=listed)
    return job


STATUS = entry(Actor("muster-status", "Update", "status"), 59, "status")
CREATED = a_job(1, 2, entry(EDIT, 1, "spec", "metadata"), STATUS)


def test_a_job_is_its_creators():
    assert since(0, after(CREATED).changes) == (EDIT,)


def test_a_job_that_two_clients_wrote_before_it_was_seen_is_nobodys():
    seen = a_job(2, 2, entry(EDIT, 1, "spec"), entry(SCALE, 2, "spec"))
    assert since(0, after(seen).changes) == ()


def test_who_writes_labels_has_no_part_in_it():
    seen = a_job(2, 2, entry(EDIT, 1, "spec"), entry(ROBOT, 2, "metadata"))
    assert since(0, after(seen).changes) == (EDIT,)


def test_a_change_is_of_the_client_with_a_new_time():
    scaled = a_job(2, 3, entry(EDIT, 1, "spec"), entry(SCALE, 2, "spec"), STATUS)
    assert since(1, after(CREATED, scaled).changes) == (SCALE,)


def test_what_was_taken_over_by_force_is_the_takers():
    taken = a_job(2, 3, entry(EDIT, 1, "metadata"), entry(ROBOT, 1, "spec"))
    assert since(1, after(CREATED, taken).changes) == (ROBOT,)


def test_changes_that_are_recorded_together_have_all_their_writers():
    scaled = a_job(2, 3, entry(EDIT, 1, "spec"), entry(SCALE, 2, "spec"))
    again = a_job(3, 4, entry(EDIT, 1, "spec"), entry(SCALE, 2, "spec"), entry(ROBOT, 3, "spec"))
    both = after(CREATED, scaled, again).changes
    assert since(1, both) == (SCALE, ROBOT)
    assert since(2, both) == (ROBOT,)


def test_a_second_write_within_a_second_is_nobodys_and_neither_is_one_that_only_removes_a_field():
    scaled = a_job(2, 3, entry(EDIT, 1, "spec"), entry(SCALE, 2, "spec"))
    again = a_job(3, 4, entry(EDIT, 1, "spec"), entry(SCALE, 2, "spec"))
    assert since(1, after(CREATED, scaled, again).changes) == ()
    # The only client with fields of the spec may not be the one that removed one of them.
    assert since(1, after(CREATED, a_job(2, 3, entry(EDIT, 1, "spec", "metadata"), STATUS)).changes) == ()


def test_a_job_that_was_edited_before_it_was_seen_is_nobodys():
    assert since(0, after(a_job(9, 2, entry(EDIT, 1, "spec"), generation=2)).changes) == ()


def test_a_job_that_was_recorded_and_edited_while_the_watcher_was_down_is_not_its_creators():
    # An annotation leaves the generation as it is.
    edited = a_job(9, 3, entry(EDIT, 1, "spec", "metadata"), entry(ROBOT, 2, "metadata"))
    assert since(0, after(edited).changes) == (EDIT,)
    assert since(1, after(edited).changes) == ()
    assert writes(1, after(edited).changes) == ()


def test_a_restart_that_was_asked_for_before_the_job_was_seen_is_not_its_creators():
    document = changed(training_job(), WORKERS, 2)
    meta = {
        "resourceVersion": "9",
        "generation": 1,
        "annotations": {RESTART: "now"},
        "managedFields": [entry(EDIT, 1, "spec", "metadata"), entry(ROBOT, 2, "metadata")],
    }
    seen = observed_job(TRAININGJOB, custom(document | {"metadata": document["metadata"] | meta}))
    assert writes(0, after(seen).changes) == since(0, after(seen).changes) == ()
    # The watch shows each write: this is how the job was created.
    assert writes(0, attributed(seen, None, listed=False).changes) == (0,)


def test_the_writes_of_changes_are_named_by_their_versions():
    scaled = a_job(4, 3, entry(EDIT, 1, "spec"), generation=2)
    again = a_job(6, 4, entry(EDIT, 1, "spec"), generation=3)
    # A second write within a second is nobody's, and has a version all the same.
    changes = after(CREATED, scaled, again).changes
    assert writes(0, changes) == (0, 4, 6)
    assert writes(1, changes) == (4, 6)


def test_who_changes_labels_is_named():
    before = a_job(1, 2, entry(EDIT, 1, "spec", "metadata"))
    now = a_job(2, 2, entry(EDIT, 1, "spec", "metadata"), entry(ROBOT, 2, "metadata"))
    assert since(1, after(before, with_label(now, "b")).changes) == (ROBOT,)


def with_label(job: ObservedJob, team: str) -> ObservedJob:
    return msgspec.structs.replace(job, observed=msgspec.structs.replace(job.observed, labels=(("team", team),)))


def test_a_program_that_writes_labels_for_ever_is_one_writer_and_hides_none_of_an_edit():
    labels = [with_label(a_job(2 + n, 2, entry(ROBOT, 2 + n, "metadata")), str(n)) for n in range(2 * MOST_CHANGES)]
    edited = a_job(90, 3, entry(EDIT, 59, "spec"), entry(ROBOT, 1 + 2 * MOST_CHANGES, "metadata"), generation=2)
    changes = after(a_job(1, 2), *labels, with_label(edited, "last")).changes
    assert [change.actor for change in changes if change.version > 1] == [ROBOT, EDIT]
    assert [change.of_labels for change in changes if change.version > 1] == [True, False]
    assert since(1, changes) == (ROBOT, EDIT)


def test_labels_written_twice_a_second_hide_none_of_an_edit_either():
    seen = [a_job(2 + n, 2, entry(ROBOT, 2 + n // 2, "metadata")) for n in range(2 * MOST_CHANGES)]
    labels = [with_label(each, str(number)) for number, each in enumerate(seen)]
    edited = a_job(90, 3, entry(EDIT, 59, "spec"), entry(ROBOT, 1 + MOST_CHANGES, "metadata"), generation=2)
    first, *found, edit = after(a_job(1, 2), *labels, edited).changes
    assert (first.write, edit.actor) == (0, EDIT)
    assert [(change.actor, change.of_labels) for change in found] == [(ROBOT, True), (None, True)]


def test_a_write_that_no_watch_showed_has_no_version():
    scaled = a_job(4, 3, entry(EDIT, 1, "spec"), generation=2)
    assert writes(1, after(CREATED, scaled, listed=True).changes) == ()
    assert writes(0, after(scaled).changes) == ()
    # The runtime of a job may change its wishes, and that is no write of the job.
    assert writes(1, after(CREATED, a_job(1, 3, entry(EDIT, 1, "spec"))).changes) == ()


def test_a_write_that_comes_with_another_runtime_is_not_blamed_for_what_the_runtime_changed():
    used = RuntimeUsed(kind="TrainingRuntime", name="torch", uid="r", generation=1, digest="a")
    before, labelled = (
        msgspec.structs.replace(job, runtime=runtime)
        for job, runtime in (
            (CREATED, used),
            (
                a_job(2, 3, entry(EDIT, 1, "spec", "metadata"), entry(ROBOT, 2, "metadata")),
                msgspec.structs.replace(used, generation=2, digest="b"),
            ),
        )
    )
    changes = after(before, labelled).changes
    assert (since(1, changes), writes(1, changes)) == ((), ())
    same = after(before, msgspec.structs.replace(labelled, runtime=used)).changes
    assert (since(1, same), writes(1, same)) == ((ROBOT,), (2,))


def test_what_a_list_shows_is_nobodys():
    # kubectl scaled, and somebody else wrote a label: the list shows both as one.
    scaled = a_job(3, 3, entry(EDIT, 3, "spec", "metadata"), entry(SCALE, 1, "spec"))
    assert since(1, after(CREATED, scaled, listed=True).changes) == ()


def test_a_write_that_changes_no_wish_is_none():
    labelled = a_job(2, 2, entry(EDIT, 1, "spec"), entry(ROBOT, 2, "metadata"))
    assert after(CREATED, labelled).changes == after(CREATED).changes


def test_of_too_many_changes_the_oldest_writers_are_not_known():
    states = [a_job(version, 2 + version % 2, entry(ROBOT, version, "spec")) for version in range(1, MOST_CHANGES + 3)]
    changes = after(*states).changes
    assert len(changes) == MOST_CHANGES
    assert since(0, changes) == ()
    assert since(10, changes) == (ROBOT,)


def test_the_record_of_a_job_and_of_a_request_names_them():
    watching = Watching()
    watching.show(after(CREATED))
    (fact,) = watching.settle()
    assert isinstance(fact, JobObserved)
    assert (fact.by, fact.writes) == ((EDIT,), (0,))
    request = a_request(managedFields=[entry(ROBOT, 1, "spec"), entry(SCALE, 2, "metadata")])
    assert observed_request("ScaleOut", request).by == ROBOT


@pytest.mark.parametrize("fields", [None, [], [{}], [{"manager": "x", "time": None, "fieldsV1": {}}]])
def test_managed_fields_that_a_client_cleared_name_nobody(fields: Any):
    document = training_job()
    seen = observed_job(TRAININGJOB, custom(document | {"metadata": document["metadata"] | {"managedFields": fields}}))
    assert since(0, after(seen).changes) == ()
