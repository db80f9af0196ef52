"""LIST and WATCH: order, selection, pages, and what happens when history is gone."""

CONFIGS = "/api/v1/namespaces/default/configmaps"
HISTORY = 50
"""Changes of each kind that the server of these tests remembers."""


async def some_configs(api, count, **labels):
    for number in range(count):
        await api.create(CONFIGS, {"metadata": {"name": f"config-{number:02}", "labels": labels}})


def names(body):
    return [item["metadata"]["name"] for item in body["items"]]


async def test_pages_show_the_list_as_it_was_at_the_first(api):
    await some_configs(api, 5)
    first = (await api.get(f"{CONFIGS}?limit=2")).body
    assert names(first) == ["config-00", "config-01"]
    assert first["metadata"]["remainingItemCount"] == 3
    await api.delete(f"{CONFIGS}/config-02")
    await api.create(CONFIGS, {"metadata": {"name": "config-03a"}})
    await api.merge(f"{CONFIGS}/config-04", {"data": {"new": "yes"}})
    rest = (await api.get(f"{CONFIGS}?limit=5&continue={first['metadata']['continue']}")).body
    assert names(rest) == ["config-02", "config-03", "config-04"]
    assert "data" not in rest["items"][-1]
    assert rest["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


async def test_a_continue_token_expires_and_can_be_traded_in(api):
    await some_configs(api, 3)
    first = (await api.get(f"{CONFIGS}?limit=1")).body
    for number in range(HISTORY + 2):
        await api.merge(f"{CONFIGS}/config-00", {"data": {"n": str(number)}})
    late = await api.get(f"{CONFIGS}?limit=1&continue={first['metadata']['continue']}")
    assert (late.code, late.body["reason"]) == (410, "Expired")
    again = (await api.get(f"{CONFIGS}?continue={late.body['metadata']['continue']}")).body
    assert names(again) == ["config-01", "config-02"]
    assert (await api.get(f"{CONFIGS}?continue=nonsense")).code == 400


async def test_a_list_can_be_asked_for_at_a_version(api):
    await some_configs(api, 2)
    version = (await api.get(CONFIGS)).body["metadata"]["resourceVersion"]
    await api.delete(f"{CONFIGS}/config-00")
    exact = await api.get(f"{CONFIGS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert names(exact.body) == ["config-00", "config-01"]
    assert names((await api.get(f"{CONFIGS}?resourceVersion={version}")).body) == ["config-01"]
    future = await api.get(f"{CONFIGS}?resourceVersion=999999")
    assert (future.code, future.body["reason"]) == (504, "Timeout")


async def test_a_watch_from_too_long_ago_is_told_so(api):
    version = (await api.get(CONFIGS)).body["metadata"]["resourceVersion"]
    await api.create(CONFIGS, {"metadata": {"name": "a"}})
    for number in range(HISTORY + 1):
        await api.merge(f"{CONFIGS}/a", {"data": {"n": str(number)}})
    [(kind, status)] = await api.first(f"{CONFIGS}?watch=1&resourceVersion={version}", 1)
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")


async def test_a_quiet_watch_gets_bookmarks(api, monkeypatch):
    monkeypatch.setattr("devcluster.apiserver.watches.PATIENCE", 0.05)
    made = await api.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    [(kind, bookmark)] = await api.first(f"{CONFIGS}?watch=1&allowWatchBookmarks=true", 1)
    assert (kind, bookmark["kind"]) == ("BOOKMARK", "ConfigMap")
    assert bookmark["metadata"]["resourceVersion"] == made.body["metadata"]["resourceVersion"]


async def test_watch_lists_are_refused_so_that_clients_fall_back(api):
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    answer = await api.get(f"{CONFIGS}?{query}")
    assert (answer.code, answer.fields) == (422, ["sendInitialEvents"])
