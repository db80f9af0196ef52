"""The rules of a watch that misses nothing, against a server that plays faults."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shared.cluster import Alive, Applied, Blind, Deleted, Snapshot
from shared.cluster.access import find_cluster
from shared.cluster.calls import Caller, Timeouts
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Metadata, Object, Pod
from shared.cluster.reflector import Pace, Reflector
from shared.flow import Limiter
from tests.kit.apiserver import (
    ScriptedApiServer,
    a_pod,
    a_status,
    bookmark,
    event,
    html,
    page,
    silence,
    status,
    stream,
)
from tests.kit.watching import Hurry, next_of, take


@asynccontextmanager
async def watching(cluster: KubeCluster, **more: str) -> AsyncIterator[AsyncIterator[Any]]:
    watch: Any = cluster.watch(PODS, **more)
    async with aclosing(watch):
        yield watch


def summary(seen: Any) -> Any:
    """What matters here: the kind of news, the object's name and version."""
    match seen:
        case Snapshot(objects=objects, version=version):
            return "snapshot", [pod.metadata.name for pod in objects], version
        case Applied(object=pod) | Deleted(object=pod):
            return type(seen).__name__.lower(), pod.metadata.name, pod.metadata.version
        case _:
            return type(seen).__name__.lower()


async def told(watch: AsyncIterator[Any], count: int) -> list[Any]:
    return [summary(seen) for seen in await take(watch, count)]


async def test_the_pages_of_a_list_are_one_snapshot(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.lists += [page([a_pod("a", 3)], 9, more="token"), page([a_pod("b", 5)], 9)]
    async with watching(cluster, selector="app") as watch:
        assert await told(watch, 1) == [("snapshot", ["a", "b"], 9)]
    first, second = server.of_kind("list")
    assert first.query == {"limit": "500", "labelSelector": "app"}
    assert second.query == {"limit": "500", "labelSelector": "app", "continue": "token"}


async def test_of_a_page_is_kept_what_the_reader_keeps_before_the_next_page(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    kept: list[tuple[str, int]] = []

    def keep(pod: Pod) -> Object:
        kept.append((pod.metadata.name, len(server.of_kind("list"))))
        return Object(metadata=Metadata(name=pod.metadata.name.upper()))

    server.lists += [page([a_pod("a", 3)], 9, more="token"), page([a_pod("b", 5)], 9)]
    server.watches.append(
        stream(
            event("ADDED", a_pod("c", 10)), event("DELETED", a_pod("c", 11)), event("ADDED", a_pod("a", 12, uid="x"))
        )
    )
    async with aclosing(cluster.watch(PODS.kept_as(keep))) as watch:
        snapshot, *rest = await take(watch, 5)
    assert kept[:2] == [("a", 1), ("b", 2)]
    assert snapshot == Snapshot((Object(metadata=Metadata(name="A")), Object(metadata=Metadata(name="B"))), 9)
    assert [(type(seen), seen.object.metadata.name) for seen in rest] == [
        (Applied, "C"),
        (Deleted, "C"),
        (Deleted, "A"),
        (Applied, "A"),
    ]


async def test_a_page_of_too_many_bytes_is_not_read_and_the_rest_comes_in_smaller_ones(
    server: ScriptedApiServer, tmp_path: Path
) -> None:
    large = a_pod("a", 3, spec={"padding": "x" * 2_000})
    server.lists += [
        page([large, large], 9, more="of too many"),
        page([a_pod("a", 3)], 9, more="token"),
        page([large], 9, more="another"),
        page([a_pod("b", 5)], 9, more="last"),
        page([large], 9),
    ]
    client = await KubeCluster.connect(server.kubeconfig(tmp_path), pace=Pace(page=16, page_bytes=1_500))
    async with watching(client) as watch:
        assert await told(watch, 1) == [("snapshot", ["a", "b", "a"], 9)]
    await client.close()
    asked = [(asked.query["limit"], asked.query.get("continue")) for asked in server.of_kind("list")]
    # One object alone is read, however long it is.
    assert asked == [("16", None), ("4", None), ("4", "token"), ("1", "token"), ("1", "last")]


async def test_a_list_whose_token_expires_is_begun_again(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.lists += [page([a_pod("a", 3)], 9, more="token"), status(410, "Expired"), page([a_pod("b", 12)], 15)]
    async with watching(cluster) as watch:
        assert await told(watch, 1) == [("snapshot", ["b"], 15)]


async def test_a_watch_whose_credential_expires_goes_on_with_the_new_one_and_without_a_list(
    server: ScriptedApiServer, tmp_path: Path
) -> None:
    server.lists.append(page([], 9))
    server.watches += [stream(event("ADDED", a_pod("a", 10))), status(401, "Unauthorized")]
    server.watches.append(stream(event("ADDED", a_pod("b", 11)), hang=True))
    cluster = await KubeCluster.connect(server.kubeconfig(tmp_path))
    async with watching(cluster) as watch:
        assert await told(watch, 1) == [("snapshot", [], 9)]
        server.kubeconfig(tmp_path, {"token": "second"})
        assert [seen for seen in await told(watch, 2) if seen[0] == "applied"] == [
            ("applied", "a", 10),
            ("applied", "b", 11),
        ]
    await cluster.close()
    assert len(server.of_kind("list")) == 1
    assert [asked.headers["Authorization"] for asked in server.of_kind("watch")][-2:] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_watch_starts_where_the_list_ended_and_asks_for_bookmarks(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    server.lists.append(page([], 9))
    server.watches.append(stream(event("ADDED", a_pod("a", 10)), hang=True))
    async with watching(cluster, namespace="team-a") as watch:
        assert await told(watch, 2) == [("snapshot", [], 9), ("applied", "a", 10)]
    (asked,) = server.of_kind("watch")
    assert asked.path == "/api/v1/namespaces/team-a/pods"
    assert asked.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "9",
        "timeoutSeconds": "450",
    }
    assert asked.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("resource", [SECRETS, CONFIGMAPS], ids=lambda resource: resource.plural)
async def test_of_what_is_read_by_its_metadata_nothing_else_is_asked_for(
    resource: Any, cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry
) -> None:
    server.watches += [stream(cut=True), silence()]
    async with aclosing(cluster.watch(resource)) as watch:
        await take(watch, 3)
    alone = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    asked = {kind: {one.headers["Accept"] for one in server.of_kind(kind)} for kind in ("list", "question", "watch")}
    assert asked == {"list": {alone.format("List")}, "question": {alone.format("List")}, "watch": {alone.format("")}}


async def test_pods_are_read_as_a_whole(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    async with watching(cluster) as watch:
        await take(watch, 1)
    assert {asked.headers["Accept"] for asked in server.asked} == {"application/json"}


async def test_a_watch_that_ends_as_planned_goes_on_without_a_word(
    cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry
) -> None:
    server.lists.append(page([], 9))
    server.watches += [stream(event("ADDED", a_pod("a", 10))), stream(event("MODIFIED", a_pod("a", 11)), hang=True)]
    async with watching(cluster) as watch:
        assert await told(watch, 3) == [("snapshot", [], 9), ("applied", "a", 10), ("applied", "a", 11)]
    assert [asked.query["resourceVersion"] for asked in server.of_kind("watch")] == ["9", "10"]
    assert server.of_kind("question") == [], "whether the store went back"
    assert hurry.waits == []


async def test_lines_may_be_longer_than_any_buffer_and_arrive_in_pieces(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    line = event("ADDED", a_pod("a", 10, padding="x" * 5_000_000))
    server.watches.append(stream(*(line[at : at + 65_521] for at in range(0, len(line), 65_521)), hang=True))
    async with watching(cluster) as watch:
        assert await told(watch, 2) == [("snapshot", [], 1), ("applied", "a", 10)]


async def test_half_a_line_is_thrown_away_and_asked_for_again(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    whole, half = event("ADDED", a_pod("a", 10)), event("ADDED", a_pod("b", 11))
    server.watches += [stream(whole, half[:40], cut=True), stream(half, hang=True)]
    async with watching(cluster) as watch:
        assert await told(watch, 5) == [
            ("snapshot", [], 1),
            ("applied", "a", 10),
            "blind",
            "alive",
            ("applied", "b", 11),
        ]
    assert [asked.query["resourceVersion"] for asked in server.of_kind("watch")] == ["1", "10"]


async def test_a_stream_that_ends_well_with_half_a_line_was_cut(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    whole, half = event("ADDED", a_pod("a", 10)), event("ADDED", a_pod("b", 11))
    server.watches += [stream(whole, half[:40]), silence()]
    async with watching(cluster) as watch:
        assert await told(watch, 4) == [("snapshot", [], 1), ("applied", "a", 10), "blind", "alive"]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(status(410, "Expired"), id="as a status"),
        pytest.param(status(410, "Gone"), id="as a status with the old word"),
        pytest.param(stream(event("ERROR", a_status(410, "Expired"))), id="as an event"),
        pytest.param(stream(event("ERROR", a_status(0, "Gone"))), id="as an event without a code"),
    ],
)
async def test_a_lost_history_is_answered_with_a_list(
    cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry, gone: Any
) -> None:
    server.lists += [page([], 9), page([a_pod("a", 20)], 30)]
    server.watches.append(gone)
    async with watching(cluster) as watch:
        await next_of(watch)
        hurry.pass_time(60)
        assert await told(watch, 1) == [("snapshot", ["a"], 30)]
    assert hurry.waits == []


async def test_histories_that_keep_expiring_are_not_asked_for_in_a_loop(
    cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry
) -> None:
    server.watches += [status(410, "Expired")] * 3
    async with watching(cluster) as watch:
        assert await told(watch, 5) == [("snapshot", [], 1), "blind", ("snapshot", [], 1), "blind", ("snapshot", [], 1)]
    assert hurry.waits == [0.4, 0.8]


async def test_a_server_that_is_behind_our_version_is_listed_again(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    ahead = status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large"}])
    server.lists += [page([], 900), page([a_pod("a", 3)], 7)]
    server.watches.append(ahead)
    async with watching(cluster) as watch:
        assert await told(watch, 3) == [("snapshot", [], 900), "blind", ("snapshot", ["a"], 7)]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(html(502), id="an error page"),
        pytest.param(html(200), id="a page that calls itself success"),
        pytest.param(stream(b"<html>\n", hang=True), id="a stream of something else"),
        pytest.param(status(500, "InternalError"), id="a server error"),
        pytest.param(stream(event("ERROR", a_status(500, "InternalError"))), id="a server error in the stream"),
        pytest.param(stream(event("ERROR", {"kind": "Status"})), id="an error in the stream that says nothing"),
    ],
)
async def test_trouble_is_told_once_and_the_watch_goes_on_where_it_was(
    cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry, answer: Any
) -> None:
    server.lists.append(page([], 9))
    server.watches += [answer, answer, stream(event("ADDED", a_pod("a", 10)), hang=True)]
    async with watching(cluster) as watch:
        seen = [*await told(watch, 2)]
        while seen[-1] in ("blind", "alive"):
            seen += await told(watch, 1)
    assert seen[0] == ("snapshot", [], 9)
    assert seen[-2:] == ["alive", ("applied", "a", 10)]
    assert len(hurry.waits) == 2
    assert len(server.of_kind("list")) == 1


async def test_too_many_requests_waits_as_long_as_it_is_told(
    cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry
) -> None:
    server.watches += [status(429, "TooManyRequests", retry_after="7"), silence()]
    async with watching(cluster) as watch:
        assert await told(watch, 3) == [("snapshot", [], 1), "blind", "alive"]
    assert hurry.waits == [7.4]
    assert len(server.of_kind("list")) == 1


async def test_waits_grow_and_have_a_bound(cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry) -> None:
    server.watches += [*[status(503, "ServiceUnavailable")] * 8, silence()]
    async with watching(cluster) as watch:
        assert await told(watch, 3) == [("snapshot", [], 1), "blind", "alive"]
    assert hurry.waits == [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]


async def test_a_connection_that_died_silently_is_noticed(server: ScriptedApiServer, tmp_path: Any) -> None:
    # What comes on the second stream is there sooner, on a busy machine too.
    hurry = Hurry(idle=1.0)
    cluster = await KubeCluster.connect(server.kubeconfig(tmp_path), pace=hurry.pace)
    server.watches += [silence(), stream(event("ADDED", a_pod("a", 10)), hang=True)]
    async with watching(cluster) as watch:
        assert await told(watch, 4) == [("snapshot", [], 1), "blind", "alive", ("applied", "a", 10)]
    await cluster.close()


async def test_three_watches_that_end_at_once_lead_to_a_list(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.lists += [page([], 9), page([a_pod("a", 20)], 30)]
    server.watches += [stream(), stream(bookmark(9)), stream()]
    async with watching(cluster) as watch:
        seen = await told(watch, 2)
        while seen[-1] in ("blind", "alive"):
            seen += await told(watch, 1)
    assert seen[-1] == ("snapshot", ["a"], 30)
    assert len(server.of_kind("watch")) == 3


async def test_an_object_that_does_not_fit_is_seen_by_its_metadata(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    odd = a_pod("odd", 10) | {"status": {"phase": ["Running"]}}
    server.lists.append(page([odd], 9))
    server.watches.append(stream(event("MODIFIED", odd | {"spec": 7}), event("ADDED", a_pod("a", 12)), hang=True))
    async with watching(cluster) as watch:
        snapshot = await next_of(watch)
        assert snapshot.objects[0].metadata.uid == "uid-odd"
        assert snapshot.objects[0].status.phase == ""
        # The same version again is a replay; the stream goes on behind it.
        assert await told(watch, 1) == [("applied", "a", 12)]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"BOOKMARK"}\n', id="a bookmark without an object"),
        pytest.param(event("ADDED", {"metadata": {"name": 7}}), id="a name that is a number"),
        pytest.param(event("ADDED", {"metadata": {"name": "x", "resourceVersion": "abc"}}), id="a version in letters"),
        pytest.param(b"\n\n", id="empty lines"),
    ],
)
async def test_what_cannot_be_read_at_all_is_passed_over(
    cluster: KubeCluster, server: ScriptedApiServer, line: bytes
) -> None:
    server.watches.append(stream(line, event("ADDED", a_pod("a", 12)), hang=True))
    async with watching(cluster) as watch:
        assert await told(watch, 2) == [("snapshot", [], 1), ("applied", "a", 12)]


async def test_what_was_seen_already_is_not_told_again(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.lists.append(page([a_pod("a", 5)], 9))
    server.watches.append(
        stream(
            event("ADDED", a_pod("a", 5)),
            event("MODIFIED", a_pod("a", 4)),
            event("DELETED", a_pod("a", 3, uid="earlier-life")),
            event("DELETED", a_pod("never-seen", 10)),
            event("MODIFIED", a_pod("a", 11)),
            event("DELETED", a_pod("a", 12)),
            event("MODIFIED", a_pod("a", 11)),
            event("ADDED", a_pod("b", 13)),
            hang=True,
        )
    )
    async with watching(cluster) as watch:
        assert await told(watch, 4) == [
            ("snapshot", ["a"], 9),
            ("applied", "a", 11),
            ("deleted", "a", 12),
            ("applied", "b", 13),
        ]


async def test_a_new_life_under_an_old_name_ends_the_old_one(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.lists.append(page([a_pod("a", 5, uid="first")], 9))
    server.watches.append(stream(event("MODIFIED", a_pod("a", 12, uid="second")), hang=True))
    async with watching(cluster) as watch:
        _, deleted, applied = await take(watch, 3)
    assert isinstance(deleted, Deleted)
    assert (deleted.object.metadata.name, deleted.object.metadata.namespace) == ("a", "team-a")
    assert (deleted.object.metadata.uid, deleted.object.metadata.version) == ("first", 5)
    assert isinstance(applied, Applied)
    assert applied.object.metadata.uid == "second"


async def test_a_deletion_shows_the_last_state(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.lists.append(page([a_pod("a", 5)], 9))
    server.watches.append(stream(event("DELETED", a_pod("a", 12)), hang=True))
    async with watching(cluster) as watch:
        _, deleted = await take(watch, 2)
    assert isinstance(deleted, Deleted)
    assert deleted.object.status.phase == "Running"


async def test_a_bookmark_is_a_sign_of_life_and_moves_the_start_of_the_next_watch(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    server.watches.append(stream(bookmark(50), hang=True))
    async with watching(cluster) as watch:
        assert await told(watch, 2) == [("snapshot", [], 1), "alive"]
    next_one = event("ADDED", a_pod("b", 70))
    server.watches += [stream(event("ADDED", a_pod("a", 10)), bookmark(60), bookmark(55)), stream(next_one, hang=True)]
    async with watching(cluster) as watch:
        assert await told(watch, 5) == [
            ("snapshot", [], 1),
            ("applied", "a", 10),
            "alive",
            "alive",
            ("applied", "b", 70),
        ]
    assert server.of_kind("watch")[-1].query["resourceVersion"] == "60"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(status(403, "Forbidden"), "Forbidden", id="forbidden"),
        pytest.param(status(404, "NotFound"), "NotFound", id="a kind that is not served"),
        pytest.param(html(404), "NotFound", id="an unknown kind"),
    ],
)
async def test_what_a_person_has_to_repair_is_tried_ever_more_slowly(
    cluster: KubeCluster, server: ScriptedApiServer, hurry: Hurry, answer: Any, reason: str
) -> None:
    # Not at once: an API server that has just started forbids everything until it has read its roles.
    server.lists += [answer] * 8 + [page([], 9)]
    async with watching(cluster) as watch:
        assert await next_of(watch) == Blind(reason)
        assert await told(watch, 1) == [("snapshot", [], 9)]
    assert hurry.waits == [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]


async def test_a_consumer_that_does_not_ask_stops_the_reading(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    written = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for version in range(2, 2_002):
            await response.write(event("ADDED", a_pod(f"pod-{version}", version, padding="x" * 50_000)))
            written += 1
        return response

    server.watches.append(flood)
    async with watching(cluster) as watch:
        await take(watch, 2)
        # However busy the machine is: it is over when nothing more is written.
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.5)
        assert written < 1_000, "100 MB went into some buffer"
        await take(watch, 1_999)


async def test_a_closed_client_ends_its_watches(cluster: KubeCluster) -> None:
    async with watching(cluster) as watch:
        await next_of(watch)
        waiting = asyncio.ensure_future(anext(watch, Alive()))
        await asyncio.sleep(0)
        await cluster.close()
        assert await asyncio.wait_for(waiting, 5) == Alive()


async def test_a_server_whose_versions_went_back_is_listed_anew_and_not_watched_in_silence(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    # A restored store accepts a watch from a version that it has yet to reach, and is silent until it has.
    ahead = status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}])
    server.lists += [page([a_pod("a", 80)], 90), page([a_pod("a", 30)], 40)]
    server.questions.append(ahead)
    server.watches += [stream(cut=True), silence()]
    async with watching(cluster) as watch:
        assert await told(watch, 4) == [("snapshot", ["a"], 90), "blind", "blind", ("snapshot", ["a"], 40)]
    (question,) = server.of_kind("question")
    assert question.query == {
        "limit": "1",
        "resourceVersion": "90",
        "resourceVersionMatch": "NotOlderThan",
        "fieldSelector": "metadata.name=none",
    }
    assert len(server.of_kind("watch")) == 1


async def test_every_question_of_a_watch_of_some_objects_is_about_those_alone(
    server: ScriptedApiServer, hurry: Hurry, tmp_path: Path
) -> None:
    # A kubelet may list the pods of its own node and no others.
    server.watches += [stream(cut=True), silence()]
    caller = Caller(await find_cluster(server.kubeconfig(tmp_path)), timeouts=Timeouts(), limiter=Limiter())
    reflector = Reflector(caller, PODS, "", "", hurry.pace, fields="spec.nodeName=mine")
    async with aclosing(reflector.run()) as watch:
        assert await told(watch, 3) == [("snapshot", [], 1), "blind", "alive"]
    await caller.close()
    asked = [one.query["fieldSelector"] for kind in ("list", "watch", "question") for one in server.of_kind(kind)]
    assert asked == ["spec.nodeName=mine"] * 3 + ["metadata.name=none,spec.nodeName=mine"]
