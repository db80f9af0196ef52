"""The store: one order of versions, a history that ends, and a journal that survives its process."""

import sqlite3

import pytest

from devcluster.apiserver.listing import selector
from devcluster.apiserver.store import CompactedError, Journal, Key, Place, Store
from devcluster.apiserver.watches import Watch

PODS = Key("", "pods")


def a_pod(name="a", **labels):
    return {"metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels}}


def names(entries):
    return sorted(entry.place.name for entry in entries)


def test_every_write_gets_the_next_version():
    store = Store()
    first, second = store.put(PODS, a_pod("a")), store.put(PODS, a_pod("b"))
    gone = store.delete(PODS, first.object())
    assert (second.version, gone.version) == (first.version + 1, first.version + 2)
    assert names(store.all(PODS)) == ["b"]


def test_what_was_handed_out_cannot_change_what_is_stored():
    store = Store()
    entry = store.put(PODS, a_pod())
    entry.object()["metadata"]["name"] = "changed"
    assert store.get(PODS, Place("team", "a")).object()["metadata"]["name"] == "a"


def test_the_past_can_be_listed():
    store = Store()
    first = store.put(PODS, a_pod("a"))
    then = store.put(PODS, a_pod("b")).version
    store.put(PODS, a_pod("c"))
    store.put(PODS, a_pod("b", changed="yes"))
    store.delete(PODS, first.object())
    past = store.list_at(PODS, then)
    assert names(past) == ["a", "b"]
    assert all("changed" not in entry.labels for entry in past)


def test_the_past_ends_where_the_history_does():
    store = Store(history=2)
    versions = [store.put(PODS, a_pod(n=str(number))).version for number in range(4)]
    assert [change.entry.version for change in store.since(PODS, versions[1])] == versions[2:]
    with pytest.raises(CompactedError):
        store.since(PODS, versions[0])
    with pytest.raises(CompactedError):
        store.list_at(PODS, versions[0])


def test_fields_are_compared_as_text():
    store = Store()
    entry = store.put(PODS, a_pod() | {"spec": {"on": True, "count": 3}})
    assert [entry.field(f"spec.{name}") for name in ("on", "count", "missing")] == ["true", "3", ""]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store.sqlite"


def test_a_store_opens_with_what_was_written(folder):
    journal = Journal(folder)
    store = Store(journal)
    kept, lost = store.put(PODS, a_pod("kept")), store.put(PODS, a_pod("lost"))
    store.delete(PODS, lost.object())
    last = store.version
    journal.close()
    journal = Journal(folder)
    again = Store(journal)
    assert [entry.raw for entry in again.all(PODS)] == [kept.raw]
    # The last version belonged to an object that is gone, and is not given again.
    assert again.put(PODS, a_pod("new")).version == last + 1
    journal.close()


def test_watches_of_an_earlier_life_start_again(folder):
    journal = Journal(folder)
    store = Store(journal)
    before = store.put(PODS, a_pod("a")).version
    latest = store.put(PODS, a_pod("b")).version
    journal.close()
    journal = Journal(folder)
    again = Store(journal)
    assert again.since(PODS, latest) == []
    with pytest.raises(CompactedError):
        again.since(PODS, before)
    journal.close()


def test_a_write_that_the_journal_refuses_is_not_in_the_store(folder):
    journal = Journal(folder)
    store = Store(journal)
    kept = store.put(PODS, a_pod("kept"))
    told = []
    store.listeners.append(told.append)
    journal.close()
    for refused in (lambda: store.put(PODS, a_pod("new")), lambda: store.delete(PODS, kept.object())):
        with pytest.raises(sqlite3.Error):
            refused()
    assert (names(store.all(PODS)), store.version, told) == (["kept"], kept.version, [])


async def test_a_watch_that_starts_from_a_list_misses_and_repeats_nothing():
    store = Store()
    listed = store.put(PODS, a_pod("listed"))
    later = store.put(PODS, a_pod("later"))
    with Watch(store, PODS, "", None, listed.version) as watch:
        latest = store.put(PODS, a_pod("latest"))
        assert await watch.changes(5) == [("ADDED", later), ("ADDED", latest)]


async def test_a_watch_that_is_too_slow_ends(monkeypatch):
    monkeypatch.setattr("devcluster.apiserver.watches.QUEUE", 3)
    store = Store()
    with Watch(store, PODS, "", None, store.version) as watch:
        for number in range(5):
            store.put(PODS, a_pod(f"pod-{number}"))
        assert watch.ended


def test_a_file_of_another_format_is_refused(folder, monkeypatch):
    Journal(folder).close()
    monkeypatch.setattr("devcluster.apiserver.store.FORMAT", 2)
    with pytest.raises(ValueError, match="use a new folder"):
        Journal(folder)


@pytest.mark.parametrize(
    ("labels", "text", "selected"),
    [
        ({"a": "1"}, "a=1", True),
        ({"a": "1"}, "a==1,b!=2", True),
        ({"a": "1"}, "a in (1, 2)", True),
        ({"a": "1"}, "a notin (1)", False),
        ({}, "a notin (1)", True),
        ({}, "a!=1", True),
        ({"a": "5"}, "a>4", True),
        ({"a": "x"}, "a<4", False),
        ({"example.dev/a": ""}, "example.dev/a", True),
        ({"a": ""}, "!a", False),
    ],
)
def test_label_selectors(labels, text, selected):
    entry = Store().put(PODS, a_pod(**labels))
    assert selector(text, "", {})(entry) is selected
