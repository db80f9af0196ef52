"""The judge of whole runs: what differs in their ends is told, but for what differs between undisturbed runs."""

from typing import Any

import pytest

from tests.perturbation.ends import State, differences, end_state, learned

NAMESPACE = "perturbed-7"


def a_job(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "resnet", "namespace": NAMESPACE, "uid": "uid-1"}, **more}


def a_pod(*, owner: str = "uid-1", ip: str = "10.0.0.1") -> dict[str, Any]:
    metadata = {"name": "resnet-worker-0", "namespace": NAMESPACE, "uid": "uid-2"}
    return {"metadata": {**metadata, "ownerReferences": [{"uid": owner}]}, "status": {"podIP": ip}}


def told(*reasons: str, controller: str = "muster.dev/status") -> list[tuple[str, dict[str, Any]]]:
    """Kubernetes Events of the job, in the order of their times."""
    return [
        (
            "Event",
            {
                "metadata": {"name": f"resnet.uid-1.{number}", "uid": f"event-{number}"},
                "type": "Normal",
                "reason": reason,
                "message": "so it is",
                "involvedObject": {"kind": "TrainingJob", "name": "resnet", "uid": "uid-1"},
                "reportingComponent": controller,
                "eventTime": f"2030-01-01T00:00:0{number}Z",
            },
        )
        for number, reason in enumerate(reasons)
    ]


A_SECRET = {"metadata": {"name": "resnet", "namespace": NAMESPACE, "uid": "uid-3"}}


def an_end(*objects: tuple[str, dict[str, Any]]) -> State:
    return end_state(objects, NAMESPACE)


REFERENCE = an_end(("TrainingJob", a_job(status={"phase": "Running"})), ("Pod", a_pod()))


@pytest.mark.parametrize(
    ("end", "words"),
    [
        pytest.param(an_end(("TrainingJob", a_job(status={"phase": "Running"}))), "is missing", id="a pod is missing"),
        pytest.param(
            an_end(("TrainingJob", a_job(status={"phase": "Running"})), ("Pod", a_pod()), ("Secret", A_SECRET)),
            "one too many",
            id="an object too many",
        ),
        pytest.param(
            an_end(("TrainingJob", a_job(status={"phase": "Failed"})), ("Pod", a_pod())),
            "status.phase: 'Failed', expected 'Running'",
            id="another phase",
        ),
        pytest.param(
            an_end(("TrainingJob", a_job(status={"phase": "Running"})), ("Pod", a_pod(owner="uid-9"))),
            "ownerReferences.0.uid: 'uid-9', expected '<TrainingJob resnet>'",
            id="an owner that is not there",
        ),
        pytest.param(an_end(("TrainingJob", a_job()), ("Pod", a_pod())), "None, expected 'Running'", id="no status"),
    ],
)
def test_another_end_is_told(end: State, words: str):
    (found,) = differences([REFERENCE], end, frozenset())
    assert words in found


def test_a_value_that_differs_between_undisturbed_runs_is_masked_and_no_other():
    other = an_end(("TrainingJob", a_job(status={"phase": "Running"})), ("Pod", a_pod(ip="10.0.0.2")))
    masked = learned(REFERENCE, other)
    assert masked == {("Pod", "status.podIP")}
    assert differences([REFERENCE], other, masked) == []
    worse = an_end(("TrainingJob", a_job(status={"phase": "Failed"})), ("Pod", a_pod(ip="10.0.0.3")))
    assert len(differences([REFERENCE], worse, masked)) == 1


def test_what_is_masked_in_one_place_of_a_list_is_masked_in_all():
    one = an_end(("Pod", {**a_pod(), "status": {"conditions": [{"at": 1, "type": "Ready"}, {"at": 1}]}}))
    other = an_end(("Pod", {**a_pod(), "status": {"conditions": [{"at": 2, "type": "Ready"}, {"at": 1}]}}))
    assert learned(one, other) == {("Pod", "status.conditions.*.at")}


def test_a_run_may_end_as_any_of_the_undisturbed_ones():
    other = an_end(("TrainingJob", a_job(status={"phase": "Running"})))
    assert differences([REFERENCE, other], other, frozenset()) == []
    mixed = an_end(("TrainingJob", a_job(status={"phase": "Failed"})))
    assert len(differences([REFERENCE, other], mixed, frozenset())) == 1


def test_two_lives_of_one_name_end_alike():
    again = {"name": "resnet", "namespace": "perturbed-8", "uid": "uid-5"}
    labels = {"labels": {"job": "uid-5"}, "annotations": {"at": "resnet.perturbed-8.svc"}}
    before = a_job()
    before["metadata"] |= {"labels": {"job": "uid-1"}, "annotations": {"at": "resnet.perturbed-7.svc"}}
    end = end_state([("TrainingJob", {"metadata": {**again, **labels}})], "perturbed-8")
    assert end == an_end(("TrainingJob", before))


def test_a_kubernetes_event_that_another_one_followed_may_be_missing_and_no_other_may():
    job = ("TrainingJob", a_job())
    expected = an_end(job, *told("Created", "Running", "Restarting", "Running"))
    for fine in (["Created", "Restarting", "Running"], ["Running", "Running"], ["Running"]):
        assert differences([expected], an_end(job, *told(*fine)), frozenset()) == []
    for wrong in (["Created", "Running", "Restarting"], ["Restarting", "Created", "Running"], ["Failed", "Running"]):
        (found,) = differences([expected], an_end(job, *told(*wrong)), frozenset())
        assert "Normal Restarting of <TrainingJob resnet>: so it is" in found
    (found,) = differences([expected], an_end(job), frozenset())
    assert found == "Events TrainingJob resnet is missing"


def test_the_kubernetes_events_of_two_jobs_that_are_gone_are_alike():
    again = [
        (kind, {**it, "involvedObject": {**it["involvedObject"], "uid": "uid-5"}})
        for kind, it in told("Created", "Running")
    ]
    assert an_end(*again) == an_end(*told("Created", "Running"))


def test_kubernetes_events_of_others_do_not_count():
    assert an_end(*told("Scheduled", controller="default-scheduler")) == {}
