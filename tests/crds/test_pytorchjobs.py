"""What the API server says of PyTorchJobs, and of edits of them, before anybody acts."""

import pytest

from tests.crds.admission import pruned, refusals
from tests.frameworks.documents import ABSENT, Document, changed, pytorch_job
from tests.frameworks.test_pytorchjob import IN_FULL

SIZE = "spec.pytorchReplicaSpecs.Worker.replicas"
ELASTIC = changed(pytorch_job(policy={"minReplicas": 2, "maxReplicas": 4}, Worker=3), "status", {"conditions": []})
RUNNING = changed(ELASTIC, "status.conditions", [{"type": "Created", "status": "True"}])
SUSPENDED = changed(
    RUNNING, "status.conditions", [{"type": name, "status": "True"} for name in ("Created", "Suspended")]
)


def test_all_that_upstream_takes_is_taken_and_kept():
    job = pytorch_job(policy=IN_FULL, Master=1, Worker=2)
    assert refusals(job) == []
    assert pruned(job) == []
    assert refusals(changed(pytorch_job(), "spec.nprocPerNode", "auto")) == []


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_size_within_its_bounds_is_taken(size: int):
    assert refusals(changed(RUNNING, SIZE, size), RUNNING) == []


@pytest.mark.parametrize(("size", "why"), [(5, "at most maxReplicas"), (1, "at least minReplicas")])
def test_a_size_beyond_them_is_refused_to_every_client(size: int, why: str):
    (told,) = refusals(changed(RUNNING, SIZE, size), RUNNING)
    assert why in told


def test_a_job_that_is_out_of_bounds_already_can_be_written_to_and_corrected():
    """It came before these rules, and says why it does not run in its status."""
    wrong = changed(ELASTIC, SIZE, 9)
    assert refusals(changed(wrong, "status.conditions", [{"type": "Failed", "status": "True"}]), wrong) == []
    assert refusals(changed(wrong, SIZE, 4), wrong) == []


@pytest.mark.parametrize(("before", "taken"), [(ELASTIC, True), (RUNNING, False), (SUSPENDED, True)])
def test_bounds_that_pods_were_told_of_stay(before: Document, *, taken: bool):
    assert (refusals(changed(before, "spec.elasticPolicy.maxReplicas", 6), before) == []) is taken
    assert (refusals(changed(before, "spec.elasticPolicy", ABSENT), before) == []) is taken
