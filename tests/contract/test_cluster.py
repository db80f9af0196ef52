"""What every `Cluster` promises, asked of the one in memory and of the embedded API server."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from shared.cluster import Alive, Applied, Blind, Deleted, Resource, Snapshot
from shared.cluster.kinds import CONFIGMAPS, PODS
from shared.errors import Conflict, Refused
from tests.kit import clusters
from tests.kit.clusters import WIDGETS, ClusterUnderTest, eventually
from tests.kit.watching import next_of, take

embedded_server = clusters.embedded_server
cluster_server = clusters.cluster_server
under_test = clusters.under_test


def a_widget(name: str = "w", *, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"size": 1, "colour": "red"}, **more}


def a_pod(name: str = "p", *, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "train"}]}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def a_config(name: str, owner: Any = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": WIDGETS.api_version,
                "kind": WIDGETS.kind,
                "name": owner.metadata.name,
                "uid": owner.metadata.uid,
                "controller": True,
            }
        ]
    return {"metadata": metadata, "data": {"key": "value"}}


@asynccontextmanager
async def watching(world: ClusterUnderTest, resource: Resource[Any] = WIDGETS, **more: str) -> AsyncIterator[Any]:
    """A watch of the test's namespace."""
    watch: Any = world.cluster.watch(resource, **{"namespace": world.namespace, **more})
    async with aclosing(watch):
        yield watch


async def news(watch: AsyncIterator[Any]) -> Any:
    """What the watch says next of objects."""
    seen = await next_of(watch)
    while isinstance(seen, Alive | Blind):
        seen = await next_of(watch)
    return seen


def names(snapshot: Snapshot[Any]) -> list[str]:
    return sorted(thing.metadata.name for thing in snapshot.objects)


class TestWriting:
    async def test_what_is_created_can_be_got(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        created = await cluster.create(WIDGETS, namespace, a_widget(labels={"a": "b"}))
        assert created.metadata.uid
        assert created.metadata.version > 0
        assert created.metadata.creation_timestamp
        assert created.metadata.labels == {"a": "b"}
        assert created.spec == {"size": 1, "colour": "red"}
        assert await cluster.get(WIDGETS, namespace, "w") == created

    async def test_what_does_not_exist_is_none(self, under_test: ClusterUnderTest) -> None:
        assert await under_test.cluster.get(WIDGETS, under_test.namespace, "nobody") is None

    async def test_a_name_is_taken_once(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        await cluster.create(WIDGETS, namespace, a_widget())
        with pytest.raises(Refused) as refusal:
            await cluster.create(WIDGETS, namespace, a_widget())
        assert refusal.value.reason == "AlreadyExists"
        other = await under_test.another_namespace()
        assert (await cluster.create(WIDGETS, other, a_widget())).metadata.namespace == other

    async def test_a_patch_changes_what_it_names_and_null_removes(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        await cluster.create(WIDGETS, namespace, a_widget(labels={"a": "1", "b": "2"}))
        patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"colour": None, "size": 2}}
        patched = await cluster.patch(WIDGETS, namespace, "w", patch)
        assert patched.metadata.labels == {"b": "2", "c": "3"}
        assert patched.spec == {"size": 2}
        assert await cluster.get(WIDGETS, namespace, "w") == patched

    async def test_a_patch_of_nothing_is_not_found(self, under_test: ClusterUnderTest) -> None:
        with pytest.raises(Refused) as refusal:
            await under_test.cluster.patch(WIDGETS, under_test.namespace, "nobody", {"spec": {"size": 2}})
        assert refusal.value.reason == "NotFound"

    async def test_a_patch_that_changes_nothing_makes_no_version(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        created = await cluster.create(WIDGETS, namespace, a_widget())
        assert await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 1}}) == created

    @pytest.mark.parametrize("subresource", ["", "status"])
    @pytest.mark.parametrize("field", ["resourceVersion", "uid"])
    async def test_a_precondition_that_is_not_met_is_a_conflict(
        self, under_test: ClusterUnderTest, field: str, subresource: str
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

    async def test_a_precondition_that_is_met_lets_the_patch_through(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        created = await cluster.create(WIDGETS, namespace, a_widget())
        metadata = {"resourceVersion": created.metadata.resource_version, "uid": created.metadata.uid}
        patched = await cluster.patch(WIDGETS, namespace, "w", {"metadata": metadata, "spec": {"size": 3}})
        assert patched.spec["size"] == 3
        assert patched.metadata.version > created.metadata.version

    async def test_status_is_written_apart_from_the_rest(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        created = await cluster.create(WIDGETS, namespace, a_widget(status={"phase": "Forged"}))
        assert created.status is None
        both = {"spec": {"size": 5}, "status": {"phase": "Running", "done": 1}}
        through_status = await cluster.patch(WIDGETS, namespace, "w", both, subresource="status")
        assert (through_status.spec["size"], through_status.status) == (1, {"phase": "Running", "done": 1})
        through_main = await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 6}, "status": {"done": 7}})
        assert (through_main.spec["size"], through_main.status) == (6, {"phase": "Running", "done": 1})

    async def test_generation_counts_changes_of_the_spec(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        assert (await cluster.create(WIDGETS, namespace, a_widget())).metadata.generation == 1
        labelled = await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"a": "b"}}})
        assert labelled.metadata.generation == 1
        reported = await cluster.patch(WIDGETS, namespace, "w", {"status": {"done": 1}}, subresource="status")
        assert reported.metadata.generation == 1
        assert (await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 2}})).metadata.generation == 2

    async def test_what_breaks_a_rule_is_refused_with_the_field(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        with pytest.raises(Refused) as refusal:
            await cluster.create(WIDGETS, namespace, {"metadata": {"name": "w"}, "spec": {"size": 0}})
        assert (refusal.value.reason, refusal.value.field) == ("Invalid", "spec.size")
        await cluster.create(WIDGETS, namespace, a_widget())
        with pytest.raises(Refused) as refusal:
            await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 0}})
        assert (refusal.value.reason, refusal.value.field) == ("Invalid", "spec.size")

    async def test_a_closed_client_answers_nothing(self, under_test: ClusterUnderTest) -> None:
        await under_test.cluster.close()
        await under_test.cluster.close()
        with pytest.raises(Refused) as refusal:
            await under_test.cluster.get(WIDGETS, under_test.namespace, "w")
        assert refusal.value.reason == "Closed"


class TestDeleting:
    async def test_the_right_uid_deletes(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        created = await cluster.create(WIDGETS, namespace, a_widget())
        await cluster.delete(WIDGETS, namespace, "w", uid=created.metadata.uid)
        assert await cluster.get(WIDGETS, namespace, "w") is None
        await cluster.delete(WIDGETS, namespace, "w", uid=created.metadata.uid)

    async def test_another_life_is_left_alone(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        first = await cluster.create(WIDGETS, namespace, a_widget())
        await cluster.delete(WIDGETS, namespace, "w", uid=first.metadata.uid)
        second = await cluster.create(WIDGETS, namespace, a_widget())
        assert second.metadata.uid != first.metadata.uid
        await cluster.delete(WIDGETS, namespace, "w", uid=first.metadata.uid)
        assert await cluster.get(WIDGETS, namespace, "w") == second

    async def test_dependents_follow_their_owner(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        owner = await cluster.create(WIDGETS, namespace, a_widget())
        child = await cluster.create(CONFIGMAPS, namespace, a_config("child", owner))
        assert child.metadata.controller is not None
        assert child.metadata.controller.uid == owner.metadata.uid
        await cluster.create(CONFIGMAPS, namespace, a_config("stranger"))
        await cluster.delete(WIDGETS, namespace, "w", uid=owner.metadata.uid)
        await under_test.collect()
        await eventually(lambda: cluster.get(CONFIGMAPS, namespace, "child"), lambda found: found is None)
        assert await cluster.get(CONFIGMAPS, namespace, "stranger") is not None

    async def test_a_pod_on_a_node_ends_in_two_steps(self, under_test: ClusterUnderTest) -> None:
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
            gone = await news(watch)
            assert isinstance(gone, Deleted)
            assert gone.object.metadata.uid == pod.metadata.uid
        assert await cluster.get(PODS, namespace, "p") is None

    async def test_a_pod_without_a_node_ends_at_once(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        pod = await cluster.create(PODS, namespace, a_pod())
        assert pod.status.phase == "Pending"
        await cluster.delete(PODS, namespace, "p", uid=pod.metadata.uid)
        assert await cluster.get(PODS, namespace, "p") is None

    async def test_nothing_is_created_in_a_namespace_that_is_going_away(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        await cluster.create(PODS, namespace, a_pod(node="node-1"))
        await under_test.terminate_namespace()
        with pytest.raises(Refused) as refusal:
            await cluster.create(CONFIGMAPS, namespace, a_config("late"))
        assert refusal.value.reason == "NamespaceTerminating"
        await under_test.end_pod("p")


class TestWatching:
    async def test_first_everything_then_each_change(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        first = await cluster.create(WIDGETS, namespace, a_widget("first"))
        async with watching(under_test) as watch:
            snapshot = await next_of(watch)
            assert snapshot.objects == (first,)
            assert snapshot.version >= first.metadata.version
            second = await cluster.create(WIDGETS, namespace, a_widget("second"))
            assert await news(watch) == Applied(second)
            changed = await cluster.patch(WIDGETS, namespace, "first", {"status": {"done": 1}}, subresource="status")
            assert await news(watch) == Applied(changed)
            await cluster.delete(WIDGETS, namespace, "second", uid=second.metadata.uid)
            gone = await news(watch)
            assert isinstance(gone, Deleted)
            assert (gone.object.metadata.uid, gone.object.spec) == (second.metadata.uid, second.spec)
            assert gone.object.metadata.version > changed.metadata.version

    async def test_an_object_made_again_is_two_lives(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        first = await cluster.create(WIDGETS, namespace, a_widget())
        async with watching(under_test) as watch:
            await next_of(watch)
            await cluster.delete(WIDGETS, namespace, "w", uid=first.metadata.uid)
            second = await cluster.create(WIDGETS, namespace, a_widget())
            deleted, applied = await news(watch), await news(watch)
            assert isinstance(deleted, Deleted)
            assert deleted.object.metadata.uid == first.metadata.uid
            assert applied == Applied(second)

    async def test_a_selector_shows_what_carries_the_label(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        await cluster.create(WIDGETS, namespace, a_widget("ours", labels={"team": "a"}))
        await cluster.create(WIDGETS, namespace, a_widget("theirs"))
        async with watching(under_test, selector="team") as watch, watching(under_test, selector="team=b") as other:
            assert names(await next_of(watch)) == ["ours"]
            assert names(await next_of(other)) == []
            await cluster.create(WIDGETS, namespace, a_widget("also-theirs"))
            more = await cluster.create(WIDGETS, namespace, a_widget("more", labels={"team": "b"}))
            assert await news(watch) == Applied(more)
            assert await news(other) == Applied(more)

    async def test_a_label_that_goes_takes_the_object_out_of_view(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        await cluster.create(WIDGETS, namespace, a_widget(labels={"team": "a"}))
        async with watching(under_test, selector="team=a") as watch:
            await next_of(watch)
            await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"team": "b"}}})
            assert isinstance(await news(watch), Deleted)
            back = await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"team": "a"}}})
            assert await news(watch) == Applied(back)

    async def test_a_watch_of_a_namespace_sees_no_other(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        other = await under_test.another_namespace()
        async with watching(under_test) as watch, watching(under_test, namespace="") as everywhere:
            await next_of(watch)
            await next_of(everywhere)
            theirs = await cluster.create(WIDGETS, other, a_widget("theirs"))
            ours = await cluster.create(WIDGETS, namespace, a_widget("ours"))
            assert await news(watch) == Applied(ours)
            assert [await news(everywhere), await news(everywhere)] == [Applied(theirs), Applied(ours)]

    async def test_a_watch_survives_the_server(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        async with watching(under_test) as watch:
            await next_of(watch)
            created = await cluster.create(WIDGETS, namespace, a_widget())
            assert await news(watch) == Applied(created)
            await under_test.restart()
            assert isinstance(await next_of(watch), Blind)
            patched = await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 9}})
            seen = await news(watch)
            assert seen == Applied(patched) or (isinstance(seen, Snapshot) and seen.objects == (patched,))

    async def test_a_lost_history_leads_to_a_new_snapshot(self, under_test: ClusterUnderTest) -> None:
        cluster, namespace = under_test.cluster, under_test.namespace
        gone = await cluster.create(WIDGETS, namespace, a_widget("gone"))
        await cluster.create(WIDGETS, namespace, a_widget("stays"))

        async def change() -> None:
            await cluster.delete(WIDGETS, namespace, "gone", uid=gone.metadata.uid)
            await cluster.create(WIDGETS, namespace, a_widget("new"))

        async with watching(under_test) as watch:
            first = await next_of(watch)
            await under_test.lose(change)
            second = await news(watch)
            assert isinstance(second, Snapshot)
            assert names(second) == ["new", "stays"]
            assert second.version > first.version
            last = await cluster.create(WIDGETS, namespace, a_widget("last"))
            assert await news(watch) == Applied(last)

    async def test_two_watches_of_one_client_see_the_same(self, under_test: ClusterUnderTest) -> None:
        async with watching(under_test) as one, watching(under_test) as two:
            await next_of(one)
            await next_of(two)
            created = await under_test.cluster.create(WIDGETS, under_test.namespace, a_widget())
            assert await take(one, 1) == await take(two, 1) == [Applied(created)]
