"""The owner of a taken name: the job, an earlier incarnation, another owner."""

from typing import Any

import msgspec
import pytest

from shared.cluster.objects import Metadata
from shared.errors import Refused, Transient
from shared.job.attempt import LostNode
from shared.job.events.event import At
from shared.job.naming import ATTEMPT, JOB_UID, Uid
from shared.job.reasons import NAME_HELD
from shared.job.state import Job, JobResource, with_pods
from shared.runtime.ownership import QUICK_SECONDS, is_controlled, must_be_controlled
from tests.kit.histories import KEY

JOB = Job(key=KEY, resource=JobResource(kind="TrainingJob", api_version="kai.alibabacloud.com/v1alpha1"))
GOING = "2030-01-01T00:00:00Z"


def an_object(
    owner: str = "",
    *,
    name: str = "resnet",
    kind: str = "TrainingJob",
    labelled: str | None = None,
    going: bool = False,
    grace: int = 0,
    finalizers: tuple[str, ...] = (),
    attempt: str = "0",
) -> Metadata:
    """An object that `owner` (a job called `name`) controls, and whose labels say `labelled`."""
    known = {"apiVersion": JOB.resource.api_version, "kind": kind, "name": name, "uid": owner, "controller": True}
    owners = [known] if owner else []
    document: dict[str, Any] = {
        "name": "resnet-worker-0",
        "uid": "pod-0",
        "ownerReferences": owners,
        "labels": {JOB_UID: owner if labelled is None else labelled, ATTEMPT: attempt},
        "finalizers": [*finalizers],
    }
    gone = {"deletionTimestamp": GOING, "deletionGracePeriodSeconds": grace} if going else {}
    return msgspec.convert(document | gone, Metadata)


def test_ours_is_what_this_very_job_controls():
    assert is_controlled(an_object("uid-1"), KEY)
    assert not is_controlled(an_object("uid-9"), KEY)
    assert not is_controlled(an_object(labelled="uid-1"), KEY), "labels can be copied by anybody"


def test_what_is_ours_and_as_we_meant_it_counts_as_made():
    must_be_controlled(an_object("uid-1"), JOB, "pod resnet-worker-0")


@pytest.mark.parametrize(
    ("meta", "same"),
    [
        pytest.param(None, True, id="gone while we looked"),
        pytest.param(an_object("uid-1"), False, id="ours and of another attempt"),
        pytest.param(an_object("uid-1", going=True), True, id="ours and going"),
        pytest.param(an_object("uid-0"), True, id="an older life of the same job"),
        pytest.param(an_object("uid-0", going=True), True, id="an older life's that goes"),
        pytest.param(an_object(going=True), True, id="a stranger's that goes"),
    ],
)
def test_what_lets_go_soon_is_waited_for(meta: Metadata | None, same: bool):
    with pytest.raises(Transient) as trouble:
        must_be_controlled(meta, JOB, "pod resnet-worker-0", same=same)
    assert trouble.value.retry_after == QUICK_SECONDS
    assert trouble.value.reason == (NAME_HELD if meta is not None else "")


FORCE = "kubectl delete pod -n team-a resnet-worker-0 --force --grace-period=0"
OF_A_NAME = "pod resnet-worker-0 waits for the pod of that name of"
OF_AN_EARLIER_JOB = f"{OF_A_NAME} an earlier TrainingJob resnet (uid uid-0)"
GOES = ", which is being deleted since 2029-12-31T23:59:30Z"
FINALIZERS = ("example.com/keep",)


@pytest.mark.parametrize(
    ("meta", "node", "words"),
    [
        pytest.param(
            an_object("uid-0", going=True, grace=30),
            "node-1",
            f"{OF_AN_EARLIER_JOB}{GOES} with 30 s to end; if it is there after that and the machine of node node-1 "
            f"is off for good: {FORCE}",
            id="an earlier job's, on a node",
        ),
        pytest.param(
            an_object("uid-0", going=True, grace=30, finalizers=FINALIZERS),
            "node-1",
            f"{OF_AN_EARLIER_JOB}{GOES}; its finalizers keep it (example.com/keep), and `kubectl patch "
            """pod -n team-a resnet-worker-0 --type=merge -p '{"metadata":{"finalizers":null}}'` takes them off""",
            id="an earlier job's with finalizers",
        ),
        pytest.param(
            an_object("uid-0"),
            "",
            f"{OF_AN_EARLIER_JOB}, which the garbage collector has not deleted yet",
            id="an earlier job's that nothing has deleted",
        ),
        pytest.param(
            an_object("uid-1", going=True, grace=30),
            "",
            f"{OF_A_NAME} the same slot{GOES} with 30 s to end",
            id="of the same slot",
        ),
        pytest.param(
            an_object("uid-1", going=True, grace=30),
            "node-1",
            f"{OF_A_NAME} the same slot{GOES} with 30 s to end",
            id="of the same slot, on a node that answers",
        ),
        pytest.param(
            an_object("uid-1", going=True, grace=30, attempt="2"),
            "",
            f"{OF_A_NAME} attempt 3{GOES} with 30 s to end",
            id="of another attempt, as people count them",
        ),
        pytest.param(
            an_object("uid-9", name="bert", going=True, grace=30),
            "",
            f"{OF_A_NAME} TrainingJob bert (uid uid-9){GOES} with 30 s to end",
            id="another job's",
        ),
    ],
)
def test_whose_a_held_name_is_and_what_frees_it_is_said(meta: Metadata, node: str, words: str):
    with pytest.raises(Transient) as trouble:
        must_be_controlled(meta, JOB, "pod resnet-worker-0", node=node)
    assert trouble.value.words == words


def test_a_pod_of_the_job_on_a_lost_node_needs_a_person_or_the_node():
    node = LostNode(node="node-1", reason="NodeUnreachable", since="", at=At(1, "2030-01-01T00:00:00Z"))
    lost = with_pods(JOB, lost={Uid("pod-0"): node})
    with pytest.raises(Transient) as trouble:
        must_be_controlled(an_object("uid-1", going=True), lost, "pod resnet-worker-0", node="node-1")
    assert trouble.value.words.endswith(f"node node-1 does not answer; if its machine is off for good: {FORCE}")


@pytest.mark.parametrize(
    ("meta", "whose"),
    [
        pytest.param(an_object(), "has no owner", id="without an owner"),
        pytest.param(an_object(labelled="uid-1"), "has no owner", id="our labels without an owner"),
        pytest.param(an_object("uid-9", labelled="uid-1"), "TrainingJob resnet", id="our labels under another owner"),
        pytest.param(an_object("uid-9", labelled=""), "TrainingJob resnet", id="another owner without our label"),
        pytest.param(an_object("uid-9", name="bert"), "belongs to TrainingJob bert", id="another job's"),
        pytest.param(
            an_object("uid-9", kind="TFJob"), "belongs to TFJob resnet", id="a job's of another kind and the same name"
        ),
    ],
)
def test_an_object_of_another_owner_is_left_alone_and_that_owner_is_named(meta: Metadata, whose: str):
    with pytest.raises(Refused, match=whose) as refusal:
        must_be_controlled(meta, JOB, "pod resnet-worker-0")
    assert refusal.value.reason == "NameConflict"
    assert refusal.value.words == str(refusal.value)


def test_an_object_without_labels_is_of_another_owner():
    with pytest.raises(Refused):
        must_be_controlled(Metadata(name="resnet"), JOB, "service resnet")
