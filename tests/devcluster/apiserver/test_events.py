"""Kubernetes Events: one store behind two groups."""

CORE = "/api/v1/namespaces/default/events"
NEWER = "/apis/events.k8s.io/v1/namespaces/default/events"


def an_event(**changes):
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "mnist.1"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingController": "muster.dev/status",
        "reportingInstance": "status-0",
        "action": "Announce",
        "reason": "Running",
        "note": "It runs.",
        "type": "Normal",
        "regarding": {"kind": "TrainJob", "name": "mnist", "namespace": "default"},
    } | changes


async def test_an_event_of_one_group_is_seen_in_the_other(api):
    made = await api.create(NEWER, an_event())
    assert made.code == 201
    assert made.body["note"] == "It runs."
    core = (await api.get(f"{CORE}/mnist.1")).body
    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "It runs.", "mnist")
    assert core["reportingComponent"] == "muster.dev/status"
    newer = (await api.get(f"{NEWER}/mnist.1")).body
    assert newer["regarding"] == core["involvedObject"]
    assert "message" not in newer


async def test_events_are_selected_by_what_they_are_about(api):
    await api.create(NEWER, an_event())
    for path, field in ((CORE, "involvedObject"), (NEWER, "regarding")):
        for name, count in (("mnist", 1), ("other", 0)):
            found = await api.get(f"{path}?fieldSelector={field}.name={name},{field}.kind=TrainJob")
            assert len(found.body["items"]) == count


async def test_a_repeated_event_becomes_a_series(api):
    await api.create(NEWER, an_event())
    series = {"count": 2, "lastObservedTime": "2024-01-01T00:00:05.000000Z"}
    patched = await api.merge(f"{NEWER}/mnist.1", {"series": series})
    assert (patched.code, patched.body["series"]) == (200, series)


async def test_an_old_style_event_needs_no_more_than_its_object(api):
    about = {"kind": "Pod", "name": "a", "namespace": "default"}
    event = {"metadata": {"name": "a.1"}, "involvedObject": about, "reason": "Started", "message": "m"}
    assert (await api.create(CORE, event)).code == 201
    assert (await api.get(f"{NEWER}/a.1")).body["note"] == "m"
