"""What the watcher keeps of each object, and what it believes from the API server alone."""

from typing import Any

import msgspec
import pytest

from services.watcher.core.views import MOST_PROBLEMS, observed_child, observed_job, observed_pod, observed_request
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import JOB_ROLE, REPLICA_INDEX, SSH_KEYS, TRAININGJOB
from shared.job.chain import Head
from shared.job.naming import ACCEPT_HISTORY, ATTEMPT, HOSTS_VERSION, INDEX, JOB_UID, RESTART, STALL_TIMEOUT, Uid
from shared.job.views import Exit, PodView
from tests.frameworks.documents import changed, custom, scale_in, training_job
from tests.kit.histories import KEY
from tests.watcher.objects import a_child, a_pod, a_request, owned_by


def view(**status: Any) -> PodView:
    resource = observed_pod(a_pod(**status))
    assert resource is not None
    return resource[1]


def test_a_pod_is_told_by_its_labels_and_its_owner():
    resource = observed_pod(a_pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]))
    assert resource == (
        KEY,
        PodView(
            uid=Uid("uid-of-resnet-worker-3"),
            name="resnet-worker-3",
            version=7,
            attempt=1,
            role="worker",
            index=3,
            phase="Running",
            ready=True,
            node="node-1",
        ),
    )


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"name": "x" * 254}, id="a name that no job has"),
        pytest.param({"uid": "u" * 65}, id="a uid that no object has"),
        pytest.param({"kind": "Deployment", "apiVersion": "apps/v1"}, id="a kind that is no job's"),
    ],
)
def test_a_forged_owner_makes_no_history(forged: dict[str, str]):
    owners = [{**owned_by(KEY.uid)[0], **forged}]
    labels = {JOB_UID: owners[0]["uid"]}
    assert observed_pod(a_pod(labels=labels, meta={"ownerReferences": owners})) is None
    assert observed_child("ConfigMap", a_child("resnet", ownerReferences=owners, labels=labels)) is None


def test_a_job_of_a_kind_that_this_process_lacks_keeps_its_pods_and_children():
    owners = [{**owned_by(KEY.uid)[0], "kind": "PackageJob", "apiVersion": "example.com/v1"}]
    pod, child = a_pod(meta={"ownerReferences": owners}), a_child("resnet", ownerReferences=owners)
    for known in (True, False):
        assert (observed_pod(pod, BUILT_IN, lambda key, known=known: known) is not None) is known
        assert (observed_child("Service", child, BUILT_IN, lambda key, known=known: known) is not None) is known


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="no owner"),
        pytest.param(None, id="no list"),
        pytest.param(owned_by("uid-9"), id="another job"),
        pytest.param(owned_by(KEY.uid, controller=False), id="the job, and not as controller"),
        pytest.param([*owned_by("uid-9"), *owned_by(KEY.uid, controller=False)], id="another controller beside it"),
    ],
)
def test_copied_labels_make_no_pod_a_member(owners: object):
    assert observed_pod(a_pod(meta={"ownerReferences": owners})) is None
    assert observed_child("Service", a_child("resnet", ownerReferences=owners)) is None


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({JOB_UID: None}, id="no uid"),
        pytest.param({JOB_UID: "uid-9"}, id="the uid of another job"),
        pytest.param({JOB_UID: ""}, id="an empty uid"),
        pytest.param({ATTEMPT: None}, id="no attempt"),
        pytest.param({ATTEMPT: "-1"}, id="a negative attempt"),
        pytest.param({ATTEMPT: "1.5"}, id="half an attempt"),
        pytest.param({ATTEMPT: ""}, id="an empty attempt"),
        pytest.param({ATTEMPT: "\u0663"}, id="digits of another script"),
        pytest.param({ATTEMPT: "\u00b2"}, id="a digit that is no number"),
        pytest.param({REPLICA_INDEX: "three"}, id="a word for an index"),
        pytest.param({REPLICA_INDEX: "1e3"}, id="an exponent"),
        pytest.param({REPLICA_INDEX: "9" * 40}, id="an index without end"),
    ],
)
def test_a_pod_with_strange_labels_belongs_to_no_job(labels: dict[str, str | None]):
    assert observed_pod(a_pod(labels=labels)) is None


def test_no_pod_belongs_to_the_waiting_room():
    assert observed_pod(a_pod(labels={JOB_UID: "none"}, meta={"ownerReferences": owned_by("none")})) is None


def test_a_pod_without_index_is_the_first_of_its_role():
    resource = observed_pod(a_pod(labels={REPLICA_INDEX: None, JOB_ROLE: "launcher"}))
    assert resource is not None
    assert (resource[1].role, resource[1].index) == ("launcher", 0)


def test_a_pod_of_a_kind_that_this_process_does_not_serve_keeps_its_role():
    assert observed_pod(a_pod(), Kinds([TFJOB])) == observed_pod(a_pod())


def test_a_pod_without_a_status_is_pending():
    assert (view().phase, view().ready, view().exits, view().reason) == ("Pending", False, (), "")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(
            {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "ImagePullBackOff",
            id="a container that waits",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "sidecar", "state": {"running": {}}},
                    {"name": "main", "state": {"waiting": {}}},
                    {"name": "third", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                ]
            },
            "CrashLoopBackOff",
            id="the first that says why",
        ),
        pytest.param(
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            "Unschedulable",
            id="no node has room",
        ),
        pytest.param(
            {"conditions": [{"type": "PodScheduled", "status": "True", "reason": "Unschedulable"}]},
            "",
            id="it has a node",
        ),
        pytest.param({"conditions": [{"type": "PodScheduled", "status": "False"}]}, "", id="no reason given"),
        pytest.param(
            {
                "reason": "Evicted",
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}],
            },
            "Evicted",
            id="the pod's own reason comes first",
        ),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], reason: str):
    assert view(**status).reason == reason


@pytest.mark.parametrize(
    ("condition", "disruption"),
    [
        ({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}, "PreemptionByScheduler"),
        ({"type": "DisruptionTarget", "status": "True"}, "DisruptionTarget"),
        ({"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}, ""),
    ],
)
def test_a_pod_that_is_about_to_be_taken_says_so(condition: dict[str, str], disruption: str):
    assert view(conditions=[condition]).disruption == disruption


def test_a_pod_on_its_way_out_says_so():
    resource = observed_pod(a_pod(meta={"deletionTimestamp": "2030-01-01T00:00:00Z"}, phase="Running"))
    assert resource is not None
    assert resource[1].deleting


@pytest.mark.parametrize(("text", "version"), [("5", 5), ("-5", 0), ("five", 0), ("", 0)])
def test_the_hosts_version_is_a_number_or_none(text: str, version: int):
    pod = observed_pod(a_pod(meta={"annotations": {HOSTS_VERSION: text}}))
    child = observed_child("ConfigMap", a_child("resnet-config", text))
    assert pod is not None
    assert child is not None
    assert (pod[1].hosts, child[1].hosts) == (version, version)


def test_a_child_is_told_by_kind_name_and_uid():
    resource = observed_child("Service", a_child("resnet"))
    assert resource is not None
    key, child = resource
    assert key == KEY
    assert (child.kind, child.name, child.uid, child.version, child.ours) == (
        "Service",
        "resnet",
        "uid-of-resnet",
        7,
        True,
    )


def test_a_request_names_its_job_and_its_owner():
    resource = observed_request("ScaleOut", a_request(ownerReferences=owned_by("uid-1")))
    assert (resource.job, resource.owner, resource.version, resource.problems) == ("resnet", "uid-1", 9, ())
    assert resource.spec is not None
    assert resource.spec.count == 2


@pytest.mark.parametrize(
    "named",
    [
        pytest.param(None, id="nothing"),
        pytest.param("", id="an empty name"),
        pytest.param("a b", id="a space, which is no token"),
        pytest.param("res*", id="a wildcard"),
        pytest.param(">", id="a tail"),
        pytest.param("a_b", id="what a dot becomes"),
        pytest.param("resnet\n", id="a line feed"),
        pytest.param({"name": "x"}, id="an object"),
        pytest.param("x" * 300, id="too long"),
    ],
)
def test_a_request_without_a_possible_job_waits_under_its_own_name(named: object):
    resource = observed_request(
        "ScaleOut", a_request("lost", spec={"selector": {"name": named}, "toAdd": {"count": 1}})
    )
    assert resource.job == "lost"


@pytest.mark.parametrize("spec", [[], "text", 7, {"selector": []}, {"selector": {"name": 5}}, {"toAdd": "x"}])
def test_any_json_makes_a_sight_with_problems(spec: object):
    resource = observed_request("ScaleOut", a_request(spec=spec))
    assert resource.spec is None
    assert resource.problems


def a_job(path: str = "", value: object = None, **status: Any) -> Any:
    document = changed(training_job(), path, value) if path else training_job()
    return custom(document | {"status": status})


def observed_of(manifest: Any) -> Any:
    return observed_job(TRAININGJOB, manifest)


def test_a_job_is_what_it_asks_for():
    resource = observed_of(a_job())
    assert resource.observed.problems == ()
    assert resource.observed.spec is not None
    assert (resource.deleting, resource.orphan, resource.head, resource.accept) == (False, False, None, "")


@pytest.mark.parametrize(
    ("path", "value", "parsed"),
    [
        pytest.param("", None, False, id="its status"),
        pytest.param("spec.etReplicaSpecs.worker.replicas", 3, True, id="its spec, by a store that counts anew"),
        pytest.param("metadata.annotations", {STALL_TIMEOUT: "60"}, True, id="an annotation"),
        pytest.param("metadata.uid", "another", True, id="another job of its name"),
    ],
)
def test_a_job_is_parsed_again_if_it_asks_for_something_else(path: str, value: object, *, parsed: bool):
    before, now = observed_of(a_job()), a_job(path, value, phase="Running")
    again = observed_job(TRAININGJOB, now, before=before)
    assert (again.observed.spec is not before.observed.spec) == parsed
    assert again == observed_of(now)


def test_however_wrong_a_job_is_its_event_has_an_end():
    resource = observed_of(a_job("spec.etReplicaSpecs.worker.template.spec.containers", [1] * 5_000))
    assert (resource.observed.spec, len(resource.observed.problems)) == (None, MOST_PROBLEMS)


@pytest.mark.parametrize(
    ("history", "head"),
    [
        pytest.param({"log": "l", "sequence": 5, "hash": "ab"}, ("l", Head(5, "ab")), id="whole"),
        pytest.param(None, ("", None), id="none"),
        pytest.param({}, ("", None), id="empty"),
        pytest.param({"log": "l", "sequence": "5", "hash": "ab"}, ("", None), id="a text for a number"),
        pytest.param({"log": "l", "sequence": 5}, ("", None), id="no hash"),
        pytest.param([1], ("", None), id="a list"),
        pytest.param("ab", ("", None), id="a text"),
    ],
)
def test_a_head_is_whole_or_it_is_none(history: object, head: tuple[str, Head | None]):
    resource = observed_of(a_job(history=history))
    assert (resource.log, resource.head) == head


@pytest.mark.parametrize("status", [None, [], "x", 3])
def test_a_status_of_any_shape_has_no_head(status: object):
    assert observed_of(custom(training_job() | {"status": status})).head is None


def test_deletion_orphans_and_accepted_losses_come_from_the_metadata():
    manifest = changed(training_job(), "metadata.deletionTimestamp", "2030-01-01T00:00:00Z")
    manifest["metadata"]["finalizers"] = ["example.com/x", "orphan"]
    manifest["metadata"]["annotations"] = {ACCEPT_HISTORY: "5:ab"}
    resource = observed_of(custom(manifest))
    assert (resource.deleting, resource.orphan, resource.accept) == (True, True, "5:ab")
    assert resource.finalizers == ("example.com/x", "orphan")


def test_of_many_finalizers_an_event_has_the_first():
    manifest = changed(training_job(), "metadata.deletionTimestamp", "2030-01-01T00:00:00Z")
    manifest["metadata"]["finalizers"] = [f"example.com/{number}" for number in range(5_000)]
    assert len(observed_of(custom(manifest)).finalizers) == 10


LONG = "x" * 200_000
WRITER = {"manager": "m" * 100, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("metadata.annotations", {ACCEPT_HISTORY: LONG}, id="an accepted head"),
        pytest.param("metadata.annotations", {RESTART: LONG}, id="a wish to restart"),
        pytest.param("metadata.annotations", {SSH_KEYS: LONG}, id="the name of a Secret"),
        pytest.param("metadata.managedFields", [WRITER] * 5_000, id="writers"),
        pytest.param("metadata.labels", {LONG: LONG}, id="a label"),
        pytest.param("spec", {LONG: LONG}, id="a spec"),
        pytest.param("status", {"phase": LONG, "conditions": [{"type": LONG, "reason": LONG}]}, id="a status"),
    ],
)
def test_of_a_job_however_large_a_few_thousand_bytes_are_kept(path: str, value: object):
    assert len(msgspec.json.encode(observed_of(custom(changed(training_job(), path, value))))) < 4_000


def test_of_a_request_however_large_so_are():
    spec = {"selector": {"name": "resnet"}, "toDelete": {"podNames": [f"resnet-worker-{2 * i}" for i in range(1_000)]}}
    manifest = custom(scale_in() | {"spec": spec | {"env": [{"name": "A", "value": LONG}]}, "status": {"phase": LONG}})
    assert len(msgspec.json.encode(observed_request("ScaleIn", manifest))) < 6_000


def waiting(reason: str, message: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]}


def crashed(message: str, code: int = 1) -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "message": message}
    return {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": end}}]}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                    }
                ]
            },
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            id="the kube-scheduler's",
        ),
        pytest.param(
            waiting("ImagePullBackOff", 'Back-off pulling image "no"'),
            'Back-off pulling image "no"',
            id="the kubelet's",
        ),
        pytest.param(
            {"reason": "Evicted", "message": "The node was low on memory."},
            "The node was low on memory.",
            id="of an eviction",
        ),
        pytest.param(
            {"message": "without a reason", "conditions": [{"type": "PodScheduled", "status": "True"}]},
            "",
            id="none without a reason",
        ),
    ],
)
def test_the_message_of_a_reason_is_kept_with_it(status: dict[str, Any], message: str):
    assert view(**status).message == message


def test_a_message_is_cut_at_a_kibibyte_between_two_characters():
    message = view(**waiting("CreateContainerError", "begins" + "\u00fc" * 5_000 + "ends")).message
    assert 1_000 < len(message.encode()) <= 1_024
    assert (message[:6], message[-4:]) == ("begins", "ends")


def test_a_failed_container_s_last_words_are_kept_and_of_long_ones_the_end():
    (end,) = view(**crashed("x" * 5_000 + " ValueError: no data")).exits
    assert end.message.endswith("ValueError: no data")
    assert len(end.message.encode()) <= 2_048


def test_what_would_move_a_terminal_s_cursor_is_not_kept():
    (end,) = view(**crashed("\x1b[2Jline one\nline \x07two")).exits
    assert end.message == "[2Jline one\nline  two"


@pytest.mark.parametrize(
    ("owner", "index", "kept"),
    [
        pytest.param(
            {"apiVersion": "mpba.fbk.eu/v1", "kind": "MXJob"}, "0", "accuracy 0.9", id="where the kind has it"
        ),
        pytest.param(
            {"apiVersion": "mpba.fbk.eu/v1", "kind": "MXJob"}, "1", "", id="not those of thousands of workers"
        ),
        pytest.param({}, "0", "", id="of no other kind"),
    ],
)
def test_what_a_container_that_did_well_says_last_is_kept_as_a_result_alone(
    owner: dict[str, str], index: str, kept: str
):
    owners, labels = [{**owned_by(KEY.uid)[0], **owner}], {REPLICA_INDEX: index, INDEX: index}
    known = observed_pod(a_pod(labels=labels, meta={"ownerReferences": owners}, **crashed("accuracy 0.9", code=0)))
    assert known is not None
    (end,) = known[1].exits
    assert end.message == kept


def test_last_words_are_left_out_where_the_setting_says_so():
    known = observed_pod(a_pod(**crashed("password=hunter2")), last_words=False)
    assert known is not None
    assert known[1].exits == (Exit("main", 1, "Error"),)


def test_of_many_labels_the_first_are_kept_and_the_rest_is_told():
    def seen(labels: dict[str, str]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
        manifest: dict[str, Any] = training_job()
        found = observed_job(TRAININGJOB, custom(changed(manifest, "metadata.labels", labels))).observed
        assert found.spec is not None
        return found.labels, [known.field for known in found.spec.ignored]

    few = {"team": "a", "a": ""}
    assert seen(few) == ((("a", ""), ("team", "a")), [])
    assert seen({}) == ((), [])
    many = {f"label-{number:02}": "x" for number in range(33)}
    assert seen(many) == ((*many.items(),)[:32], ["metadata.labels"])
    long = {f"{'p' * 250}/{number}": "x" * 63 for number in range(9)}
    assert (len(seen(long)[0]), seen(long)[1]) == (6, ["metadata.labels"])
