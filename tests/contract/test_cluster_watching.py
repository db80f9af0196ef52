"""What every `Cluster` promises of watches: everything, once, in order, and again after every gap."""

import pytest

from shared.cluster import Applied, Blind, Deleted, Snapshot
from shared.cluster.kinds import EVENTS, EVENTS_WITH_WORDS, PODS, SECRETS
from tests.contract.widgets import a_pod, a_widget, names, news, watching
from tests.kit.clusters import WIDGETS, ClusterUnderTest
from tests.kit.watching import next_of


async def test_first_everything_then_each_change(under_test: ClusterUnderTest) -> None:
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


async def test_of_a_secret_its_metadata_is_read_and_nothing_else(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    contents = {"type": "Opaque", "data": {"id_rsa": "dGhlIHByaXZhdGUgaGFsZg=="}}
    async with watching(under_test, SECRETS, selector="team=a") as watch:
        await next_of(watch)
        await cluster.create(SECRETS, namespace, {"metadata": {"name": "theirs"}, **contents})
        ours = {"metadata": {"name": "ours", "labels": {"team": "a"}}, **contents}
        made = await cluster.create(SECRETS, namespace, ours)
        assert await cluster.get(SECRETS, namespace, "ours") == made
        assert await news(watch) == Applied(made)
        await cluster.delete(SECRETS, namespace, "ours", uid=made.metadata.uid)
        gone = await news(watch)
        assert isinstance(gone, Deleted)
        assert gone.object.metadata.uid == made.metadata.uid
    assert await cluster.get(SECRETS, namespace, "ours") is None


async def test_an_object_made_again_is_two_lives(under_test: ClusterUnderTest) -> None:
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


async def test_a_selector_shows_what_carries_the_label(under_test: ClusterUnderTest) -> None:
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


async def test_a_label_that_goes_takes_the_object_out_of_view(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget(labels={"team": "a"}))
    async with watching(under_test, selector="team=a") as watch:
        await next_of(watch)
        await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"team": "b"}}})
        assert isinstance(await news(watch), Deleted)
        back = await cluster.patch(WIDGETS, namespace, "w", {"metadata": {"labels": {"team": "a"}}})
        assert await news(watch) == Applied(back)


async def test_a_watch_of_a_namespace_sees_no_other(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    other = await under_test.another_namespace()
    async with watching(under_test) as watch, watching(under_test, namespace="") as everywhere:
        await next_of(watch)
        await next_of(everywhere)
        theirs = await cluster.create(WIDGETS, other, a_widget("theirs"))
        ours = await cluster.create(WIDGETS, namespace, a_widget("ours"))
        assert await news(watch) == Applied(ours)
        assert [await news(everywhere), await news(everywhere)] == [Applied(theirs), Applied(ours)]


async def test_a_watch_survives_the_server(under_test: ClusterUnderTest) -> None:
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


async def test_a_lost_history_leads_to_a_new_snapshot(under_test: ClusterUnderTest) -> None:
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


async def test_a_long_list_is_complete(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    made = [await cluster.create(WIDGETS, namespace, a_widget(f"w-{number}")) for number in range(7)]
    async with watching(under_test) as watch:
        snapshot = await next_of(watch)
        assert sorted(snapshot.objects, key=lambda one: one.metadata.name) == made
        assert snapshot.version >= made[-1].metadata.version


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ("team", ["a", "b"]),
        ("!team", ["none"]),
        ("team!=a", ["b", "none"]),
        ("team in (a, c)", ["a"]),
        ("team notin (a)", ["b", "none"]),
        ("team=a,tier=1", ["a"]),
        ("team=b,tier", []),
    ],
)
async def test_selectors_mean_what_they_mean_to_kubernetes(
    under_test: ClusterUnderTest, selector: str, shown: list[str]
) -> None:
    for name, labels in (("a", {"team": "a", "tier": "1"}), ("b", {"team": "b"}), ("none", {})):
        await under_test.cluster.create(WIDGETS, under_test.namespace, a_widget(name, labels=labels))
    async with watching(under_test, selector=selector) as watch:
        assert names(await next_of(watch)) == shown


async def test_each_kind_is_watched_apart(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    async with watching(under_test) as widgets, watching(under_test, PODS) as pods:
        await next_of(widgets)
        await next_of(pods)
        pod = await cluster.create(PODS, namespace, a_pod())
        widget = await cluster.create(WIDGETS, namespace, a_widget())
        assert await news(widgets) == Applied(widget)
        assert await news(pods) == Applied(pod)


async def test_a_write_that_changes_nothing_is_not_told(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(WIDGETS, namespace, a_widget())
    async with watching(under_test) as watch:
        await next_of(watch)
        await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 1}})
        changed = await cluster.patch(WIDGETS, namespace, "w", {"spec": {"size": 2}})
        assert await news(watch) == Applied(changed)


async def test_a_watch_ends_with_its_client(under_test: ClusterUnderTest) -> None:
    async with watching(under_test) as watch:
        await next_of(watch)
        await under_test.cluster.close()
        assert [seen async for seen in watch if not isinstance(seen, Blind)] == []


async def test_the_events_about_one_pod_are_found_and_no_more_than_asked_for(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    for name, about in (("e-2", "uid-1"), ("e-1", "uid-1"), ("e-3", "uid-2"), ("e-4", "uid-1")):
        pod = {"kind": "Pod", "namespace": namespace, "name": "p", "uid": about}
        words = {"type": "Warning", "reason": "FailedMount", "message": f"of {name}", "count": 3}
        manifest = {"metadata": {"name": name}, "involvedObject": pod, "lastTimestamp": "2030-01-01T00:00:00Z", **words}
        await cluster.create(EVENTS, namespace, manifest)
    found = await cluster.find(EVENTS_WITH_WORDS, namespace, "involvedObject.uid=uid-1", most=2)
    assert [(each.metadata.name, each.message, each.last_timestamp) for each in found] == [
        (name, f"of {name}", "2030-01-01T00:00:00Z") for name in ("e-1", "e-2")
    ]
    assert await cluster.find(EVENTS_WITH_WORDS, namespace, "involvedObject.uid=none", most=2) == ()
