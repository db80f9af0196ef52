"""What every `Cluster` promises of deletions, and of what follows from them."""

import functools

import pytest

from shared.cluster import Applied, Deleted
from shared.cluster.kinds import CONFIGMAPS, PODS
from shared.errors import Refused
from tests.contract.widgets import a_config, a_pod, a_widget, names, news, watching
from tests.kit.clusters import WIDGETS, ClusterUnderTest, eventually
from tests.kit.watching import next_of


async def gone(world: ClusterUnderTest, name: str) -> None:
    """Wait until the ConfigMap was collected."""
    ask = functools.partial(world.cluster.get, CONFIGMAPS, world.namespace, name)
    await eventually(ask, lambda found: found is None, patience=world.patience)


async def test_the_right_uid_deletes(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    created = await cluster.create(WIDGETS, namespace, a_widget())
    await cluster.delete(WIDGETS, namespace, "w", uid=created.metadata.uid)
    assert await cluster.get(WIDGETS, namespace, "w") is None
    await cluster.delete(WIDGETS, namespace, "w", uid=created.metadata.uid)


async def test_another_life_is_left_alone(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    first = await cluster.create(WIDGETS, namespace, a_widget())
    await cluster.delete(WIDGETS, namespace, "w", uid=first.metadata.uid)
    second = await cluster.create(WIDGETS, namespace, a_widget())
    assert second.metadata.uid != first.metadata.uid
    await cluster.delete(WIDGETS, namespace, "w", uid=first.metadata.uid)
    assert await cluster.get(WIDGETS, namespace, "w") == second


async def test_an_object_that_changed_since_the_given_version_is_left_alone(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    first = (await cluster.create(WIDGETS, namespace, a_widget())).metadata
    later = await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"changed": "yes"}}})
    await cluster.delete(WIDGETS, namespace, "w", uid=first.uid, version=first.resource_version)
    assert await cluster.get(WIDGETS, namespace, "w") == later
    await cluster.delete(WIDGETS, namespace, "w", uid=first.uid, version=later.metadata.resource_version)
    assert await cluster.get(WIDGETS, namespace, "w") is None


async def test_what_a_deletion_would_reach_is_told_and_stays(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    for resource, manifest in ((WIDGETS, a_widget()), (CONFIGMAPS, a_config("w")), (PODS, a_pod("w"))):
        assert await cluster.would_delete(resource, namespace, "w") is None
        created = await cluster.create(resource, namespace, manifest)
        assert await cluster.would_delete(resource, namespace, "w") == created.metadata.uid
        assert await cluster.get(resource, namespace, "w") == created


async def test_dependents_follow_their_owner(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    owner = await cluster.create(WIDGETS, namespace, a_widget())
    child = await cluster.create(CONFIGMAPS, namespace, a_config("child", owner))
    assert child.metadata.controller is not None
    assert child.metadata.controller.uid == owner.metadata.uid
    await cluster.create(CONFIGMAPS, namespace, a_config("stranger"))
    await cluster.delete(WIDGETS, namespace, "w", uid=owner.metadata.uid)
    await under_test.collect()
    await gone(under_test, "child")
    assert await cluster.get(CONFIGMAPS, namespace, "stranger") is not None


async def test_a_dependent_stays_while_one_of_its_owners_does(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    owners = [await cluster.create(WIDGETS, namespace, a_widget(name)) for name in ("one", "other")]
    await cluster.create(CONFIGMAPS, namespace, a_config("of-both", *owners))
    await cluster.create(CONFIGMAPS, namespace, a_config("of-one", owners[0]))
    await cluster.delete(WIDGETS, namespace, "one", uid=owners[0].metadata.uid)
    await under_test.collect()
    await gone(under_test, "of-one")
    assert await cluster.get(CONFIGMAPS, namespace, "of-both") is not None
    await cluster.delete(WIDGETS, namespace, "other", uid=owners[1].metadata.uid)
    await under_test.collect()
    await gone(under_test, "of-both")


async def test_the_dependents_of_dependents_follow_too(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    owner = await cluster.create(WIDGETS, namespace, a_widget("grandparent"))
    parent = await cluster.create(WIDGETS, namespace, a_widget("parent", owners=[owner]))
    await cluster.create(CONFIGMAPS, namespace, a_config("child", parent))
    await cluster.delete(WIDGETS, namespace, "grandparent", uid=owner.metadata.uid)
    await under_test.collect()
    await gone(under_test, "child")
    assert await cluster.get(WIDGETS, namespace, "parent") is None


async def test_a_dependent_without_a_living_owner_is_collected(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    owner = await cluster.create(WIDGETS, namespace, a_widget())
    await cluster.delete(WIDGETS, namespace, "w", uid=owner.metadata.uid)
    await cluster.create(CONFIGMAPS, namespace, a_config("late", owner))
    await under_test.collect()
    await gone(under_test, "late")


async def test_a_finalizer_holds_the_object_until_it_is_removed(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    held = await cluster.create(WIDGETS, namespace, a_widget(finalizers=["test.dev/hold"]))
    async with watching(under_test) as watch:
        await next_of(watch)
        await cluster.delete(WIDGETS, namespace, "w", uid=held.metadata.uid)
        ending = await news(watch)
        assert isinstance(ending, Applied)
        assert ending.object.metadata.deletion_timestamp
        assert ending.object.metadata.generation == held.metadata.generation + 1
        await cluster.delete(WIDGETS, namespace, "w", uid=held.metadata.uid)
        assert await cluster.get(WIDGETS, namespace, "w") == ending.object
        await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"finalizers": None}})
        assert isinstance(await news(watch), Deleted)
    assert await cluster.get(WIDGETS, namespace, "w") is None


async def test_a_name_is_taken_while_its_object_ends(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod(node="node-1"))
    await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
    with pytest.raises(Refused) as refusal:
        await cluster.create(PODS, namespace, a_pod())
    assert refusal.value.reason == "AlreadyExists"
    await under_test.end_pod("p")
    assert (await cluster.create(PODS, namespace, a_pod())).metadata.uid != pod.metadata.uid


async def test_without_a_grace_period_a_pod_is_gone_whatever_its_kubelet_says(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod(node="node-1"))
    await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
    await cluster.delete(PODS, namespace, "p", uid="another", grace=0)
    assert await cluster.get(PODS, namespace, "p") is not None
    for _ in range(2):
        await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid, grace=0)
        assert await cluster.get(PODS, namespace, "p") is None


async def test_what_ends_can_still_be_written(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod(node="node-1"))
    await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
    patched = await cluster.patch(PODS, namespace, "p", {"status": {"phase": "Failed"}}, subresource="status")
    assert patched.status.phase == "Failed"
    assert patched.metadata.deletion_timestamp
    await under_test.end_pod("p")


async def test_a_deletion_may_not_be_claimed(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    created = await cluster.create(WIDGETS, namespace, a_widget(deletionTimestamp="2020-01-01T00:00:00Z"))
    assert created.metadata.deletion_timestamp is None
    with pytest.raises(Refused) as refusal:
        await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})
    assert (refusal.value.reason, refusal.value.field) == ("Invalid", "metadata.deletionTimestamp")


async def test_a_pod_on_a_node_ends_in_two_steps(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod(node="node-1"))
    async with watching(under_test, PODS) as watch:
        assert names(await next_of(watch)) == ["p"]
        await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
        ending = await news(watch)
        assert isinstance(ending, Applied)
        assert ending.object.metadata.deletion_timestamp
        assert (await cluster.get(PODS, namespace, "p")) == ending.object
        await under_test.end_pod("p")
        # Its grace is over, and then so is the pod.
        assert isinstance(await news(watch), Applied)
        last = await news(watch)
        assert isinstance(last, Deleted)
        assert last.object.metadata.uid == pod.metadata.uid
    assert await cluster.get(PODS, namespace, "p") is None


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("node-1", "Succeeded")], ids=["no node", "over"])
async def test_a_pod_that_no_kubelet_has_to_end_ends_at_once(
    under_test: ClusterUnderTest, node: str, phase: str
) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod(node=node))
    assert pod.status.phase == "Pending"
    await cluster.patch(PODS, namespace, "p", {"status": {"phase": phase}}, subresource="status")
    await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
    assert await cluster.get(PODS, namespace, "p") is None


async def test_a_watch_sees_the_mark_of_a_pod_that_ends_at_once(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    pod = await cluster.create(PODS, namespace, a_pod())
    async with watching(under_test, PODS) as watch:
        await next_of(watch)
        await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
        marked, ended = await news(watch), await news(watch)
        assert isinstance(marked, Applied)
        assert marked.object.metadata.deletion_timestamp
        assert isinstance(ended, Deleted)
        assert ended.object.metadata.version > marked.object.metadata.version


async def test_nothing_is_created_in_a_namespace_that_is_going_away(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(PODS, namespace, a_pod(node="node-1"))
    await under_test.terminate_namespace()
    with pytest.raises(Refused) as refusal:
        await cluster.create(CONFIGMAPS, namespace, a_config("late"))
    assert refusal.value.reason == "NamespaceTerminating"
    await under_test.end_pod("p")
