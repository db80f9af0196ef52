"""What the API server says of MXNet jobs before anybody acts: it takes what `parse` takes, and no unknown type."""

import pytest

from tests.crds.admission import refusals
from tests.frameworks.documents import ABSENT, Document, changed, fioravanzo_job, kubeflow_mx_job, mlkube_job, mpba_job


@pytest.mark.parametrize(
    ("job", "default"), [(fioravanzo_job(), 0), (mlkube_job(), 2)], ids=["fioravanzo's SCHEDULER", "mlkube's WORKER"]
)
def test_a_type_is_one_of_the_kinds_or_left_out(job: Document, default: int):
    field = f"spec.replicaSpecs[{default}].mxReplicaType"
    assert refusals(job) == []
    for left_out in ("", ABSENT):
        assert refusals(changed(job, field, left_out)) == []
    for unknown in ("MASTER", "scheduler"):
        (told,) = refusals(changed(job, field, unknown))
        assert "mxReplicaType" in told


@pytest.mark.parametrize("word", ["SERVER", "server", "Server"])
def test_dl_operators_types_are_taken_in_any_case(word: str):
    assert refusals(changed(mpba_job(), "spec[1].replicaType", word)) == []


def test_a_name_may_begin_with_a_digit_where_pods_names_begin_with_the_type():
    assert refusals(mpba_job("1abc")) == []
    assert "a letter or digit" in refusals(mpba_job("-abc"))[0]
    for job in (fioravanzo_job("1abc"), mlkube_job("1abc")):
        assert "beginning with a letter and" in refusals(job)[0]


@pytest.mark.parametrize("mode", ["", "MXTrain", ABSENT])
def test_an_empty_mode_is_an_absent_one(mode: object):
    assert refusals(changed(kubeflow_mx_job(), "spec.jobMode", mode)) == []
