"""What every `Cluster` promises of writes."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS
from shared.errors import Conflict, Refused
from tests.contract.widgets import a_config, a_container, a_pod, a_widget
from tests.kit.clusters import WIDGETS, ClusterUnderTest


async def test_what_is_created_can_be_got(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    created = await cluster.create(WIDGETS, namespace, a_widget(labels={"a": "b"}))
    assert created.metadata.uid
    assert created.metadata.version > 0
    assert created.metadata.creation_timestamp
    assert created.metadata.labels == {"a": "b"}
    assert created.spec == {"size": 1, "colour": "red"}
    assert await cluster.get(WIDGETS, namespace, "w") == created


MISSPELT = [
    pytest.param({"nodeSelecter": {"gpu": "a100"}}, "spec.nodeSelecter", id="of the pod"),
    pytest.param({"containers": [a_container(resources={"limit": {"cpu": 1}})]},
        "spec.containers[0].resources.limit", id="of a container's resources"),
    pytest.param({"initContainers": [a_container("first", volumeMount=[])]},
        "spec.initContainers[0].volumeMount", id="of an init container"),
    pytest.param({"affinity": {"nodeAffinity": {"required": None}}}, "spec.affinity.nodeAffinity.required",
        id="without a value"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "field"), MISSPELT)
async def test_a_pod_with_an_unknown_field_is_refused_with_its_path(
    under_test: ClusterUnderTest, part: dict[str, Any], field: str
) -> None:
    cluster, namespace, pod = under_test.cluster, under_test.namespace, a_pod()
    pod["spec"] |= part
    for write in (cluster.create, cluster.would_create):
        with pytest.raises(Refused) as refusal:
            await write(PODS, namespace, pod)
        assert (refusal.value.reason, refusal.value.field) == ("UnknownField", field)
        assert f'unknown field "{field}"' in refusal.value.words
    assert await cluster.get(PODS, namespace, "p") is None


async def test_a_creation_that_is_only_tried_creates_nothing(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.would_create(PODS, namespace, a_pod())
    assert await cluster.get(PODS, namespace, "p") is None


async def test_a_name_is_taken_once(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget())
    with pytest.raises(Refused) as refusal:
        await cluster.create(WIDGETS, namespace, a_widget())
    assert refusal.value.reason == "AlreadyExists"
    other = await under_test.another_namespace()
    assert (await cluster.create(WIDGETS, other, a_widget())).metadata.namespace == other


async def test_a_patch_changes_what_it_names_and_null_removes(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget(labels={"a": "1", "b": "2"}))
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"colour": None, "size": 2}}
    patched = await cluster.patch(WIDGETS, namespace, "w", patch)
    assert patched.metadata.labels == {"b": "2", "c": "3"}
    assert patched.spec == {"size": 2}
    assert await cluster.get(WIDGETS, namespace, "w") == patched


async def test_a_patch_of_nothing_is_not_found(under_test: ClusterUnderTest) -> None:
    with pytest.raises(Refused) as refusal:
        await under_test.cluster.patch(WIDGETS, under_test.namespace, "nobody", {"spec": {"size": 2}})
    assert refusal.value.reason == "NotFound"


@pytest.mark.parametrize(
    ("field", "subresource"), [("resourceVersion", ""), ("resourceVersion", "status"), ("uid", "")]
)
async def test_a_precondition_that_is_not_met_is_a_conflict(
    under_test: ClusterUnderTest, field: str, subresource: str
) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    created = await cluster.create(WIDGETS, namespace, a_widget())
    await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 2}})
    wrong = {"resourceVersion": created.metadata.resource_version, "uid": "another"}[field]
    patch = {"metadata": {field: wrong}, "spec": {"size": 3}, "status": {"phase": "Late"}}
    with pytest.raises(Conflict):
        await cluster.patch(WIDGETS, namespace, "w", patch, subresource=subresource)
    held = await cluster.get(WIDGETS, namespace, "w")
    assert held is not None
    assert (held.spec["size"], held.status) == (2, None)


async def test_a_precondition_that_is_met_lets_the_patch_through(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    created = await cluster.create(WIDGETS, namespace, a_widget())
    metadata = {"resourceVersion": created.metadata.resource_version, "uid": created.metadata.uid}
    patched = await cluster.patch(WIDGETS, namespace, "w", {"metadata": metadata, "spec": {"size": 3}})
    assert patched.spec["size"] == 3
    assert patched.metadata.version > created.metadata.version


async def test_status_is_written_apart_from_the_rest(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    created = await cluster.create(WIDGETS, namespace, a_widget(status={"phase": "Forged"}))
    assert created.status is None
    both = {"spec": {"size": 5}, "status": {"phase": "Running", "done": 1}}
    through_status = await cluster.patch(WIDGETS, namespace, "w", both, subresource="status")
    assert (through_status.spec["size"], through_status.status) == (1, {"phase": "Running", "done": 1})
    through_main = await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 6}, "status": {"done": 7}})
    assert (through_main.spec["size"], through_main.status) == (6, {"phase": "Running", "done": 1})


async def test_generation_counts_changes_of_the_spec(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    assert (await cluster.create(WIDGETS, namespace, a_widget())).metadata.generation == 1
    labelled = await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata.generation == 1
    reported = await cluster.patch(WIDGETS, namespace, "w", {"status": {"done": 1}}, subresource="status")
    assert reported.metadata.generation == 1
    assert (await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 2}})).metadata.generation == 2


async def test_what_breaks_a_rule_is_refused_with_the_field(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    with pytest.raises(Refused) as refusal:
        await cluster.create(WIDGETS, namespace, {"metadata": {"name": "w"}, "spec": {"size": 0}})
    assert (refusal.value.reason, refusal.value.field) == ("Invalid", "spec.size")
    await cluster.create(WIDGETS, namespace, a_widget())
    with pytest.raises(Refused) as refusal:
        await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 0}})
    assert (refusal.value.reason, refusal.value.field) == ("Invalid", "spec.size")


async def test_a_closed_client_answers_nothing(under_test: ClusterUnderTest) -> None:
    await under_test.cluster.close()
    await under_test.cluster.close()
    with pytest.raises(Refused) as refusal:
        await under_test.cluster.get(WIDGETS, under_test.namespace, "w")
    assert refusal.value.reason == "Closed"


async def test_a_list_in_a_patch_replaces_the_list(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget(finalizers=["test.dev/a", "test.dev/b"]))
    patched = await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"finalizers": ["test.dev/c"]}})
    assert patched.metadata.finalizers == ("test.dev/c",)
    await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"finalizers": []}})
    held = await cluster.get(WIDGETS, namespace, "w")
    assert held is not None
    assert not held.metadata.finalizers


async def test_identity_is_given_by_the_server(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    claimed = {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}
    created = await cluster.create(WIDGETS, namespace, a_widget(**claimed))
    assert created.metadata.uid != "mine"
    assert created.metadata.generation == 1
    assert created.metadata.creation_timestamp != claimed["creationTimestamp"]
    claim = {"generation": 9, "creationTimestamp": "2001-01-01T00:00:00Z"}
    assert await cluster.patch(WIDGETS, namespace, "w", {"metadata": claim}) == created


async def test_versions_grow_with_each_write_to_anything(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    first = await cluster.create(WIDGETS, namespace, a_widget("first"))
    second = await cluster.create(CONFIGMAPS, namespace, a_config("second"))
    third = await cluster.patch(WIDGETS, namespace, "first", {"spec": {"size": 2}})
    assert first.metadata.version < second.metadata.version < third.metadata.version


async def test_annotations_and_labels_leave_status_and_spec_alone(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget())
    await cluster.patch(WIDGETS, namespace, "w", {"status": {"phase": "Running"}}, subresource="status")
    patch = {"metadata": {"annotations": {"a": "1"}, "labels": {"b": "2"}}}
    patched = await cluster.patch(WIDGETS, namespace, "w", patch)
    assert (patched.spec, patched.status) == ({"size": 1, "colour": "red"}, {"phase": "Running"})
    assert (patched.metadata.annotations, patched.metadata.labels) == ({"a": "1"}, {"b": "2"})
    beside = {"metadata": {"labels": {"c": "3"}}, "status": {"phase": "Done"}}
    reported = await cluster.patch(WIDGETS, namespace, "w", beside, subresource="status")
    assert (reported.status, reported.metadata.labels) == ({"phase": "Done"}, {"b": "2"})


async def test_null_removes_a_status_field(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget())
    await cluster.patch(WIDGETS, namespace, "w", {"status": {"phase": "Running", "done": 1}}, subresource="status")
    patched = await cluster.patch(WIDGETS, namespace, "w", {"status": {"phase": None}}, subresource="status")
    assert patched.status == {"done": 1}


async def test_what_has_no_status_has_no_subresource_for_it(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(CONFIGMAPS, namespace, a_config("c"))
    with pytest.raises(Refused) as refusal:
        await cluster.patch(CONFIGMAPS, namespace, "c", {"status": {"done": 1}}, subresource="status")
    assert refusal.value.reason == "NotFound"


async def test_an_object_cannot_be_renamed(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget())
    for moved in ({"name": "other"}, {"namespace": "elsewhere"}):
        with pytest.raises(Refused) as refusal:
            await cluster.patch(WIDGETS, namespace, "w", {"metadata": moved})
        assert refusal.value.reason == "BadRequest"


async def test_a_pod_starts_pending_whatever_its_author_says(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod() | {"status": {"phase": "Running"}})
    assert pod.status.phase == "Pending"
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    running = await cluster.patch(PODS, namespace, "p", {"status": ready}, subresource="status")
    assert running.status.phase == "Running"
    assert [(one.type, one.status) for one in running.status.conditions or ()] == [("Ready", "True")]


async def test_a_version_guards_a_status_against_other_writers_and_the_next_life_of_the_name(
    under_test: ClusterUnderTest,
) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    first = await cluster.create(WIDGETS, namespace, a_widget())
    seen = {"metadata": {"resourceVersion": first.metadata.resource_version}}
    written = await cluster.patch(WIDGETS, namespace, "w", {**seen, "status": {"done": 1}}, subresource="status")
    with pytest.raises(Conflict):
        await cluster.patch(WIDGETS, namespace, "w", {**seen, "status": {"done": 2}}, subresource="status")
    seen = {"metadata": {"resourceVersion": written.metadata.resource_version}}
    await cluster.delete(WIDGETS, namespace, "w", uid=first.metadata.uid)
    second = await cluster.create(WIDGETS, namespace, a_widget())
    with pytest.raises(Conflict):
        await cluster.patch(WIDGETS, namespace, "w", {**seen, "status": {"done": 3}}, subresource="status")
    assert await cluster.get(WIDGETS, namespace, "w") == second
    await cluster.delete(WIDGETS, namespace, "w", uid=second.metadata.uid)
    with pytest.raises(Refused) as refusal:
        await cluster.patch(WIDGETS, namespace, "w", {**seen, "status": {"done": 4}}, subresource="status")
    assert refusal.value.reason == "NotFound"
