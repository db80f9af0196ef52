"""The three kinds of patches, and the protobuf that kubectl sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.apiserver import protobuf
from devcluster.apiserver.errors import ApiError
from devcluster.apiserver.patch import json_patch, merge_patch, strategic_merge_patch


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": ["c", "d"]}, {"a": ["c", "d"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "text"}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
        ({}, [1], [1]),
    ],
)
def test_merge_patches(document, patch, result):
    assert merge_patch(document, patch) == result


@pytest.mark.parametrize("code", [400, 422])
def test_json_patches_that_cannot_be_done(code):
    patches = {
        400: [{"op": "add", "path": 5}, 7],
        422: [
            {"op": "explode", "path": "/a"},
            {"path": "/a"},
            {"op": "remove", "path": "/missing"},
            {"op": "replace", "path": "/list/9", "value": 1},
        ],
    }
    for operation in patches[code]:
        with pytest.raises(ApiError) as refusal:
            json_patch({"a": 1, "list": []}, [operation])
        assert refusal.value.code == code


def test_a_strategic_patch_merges_lists_by_their_key():
    pod = {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
    patch = {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "containers": [
            {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]},
            {"name": "c"},
            {"name": "b", "$patch": "delete"},
        ],
    }
    assert strategic_merge_patch(pod, patch)["containers"] == [
        {"name": "c"},
        {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
    ]


def test_a_strategic_patch_replaces_and_removes():
    document = {"finalizers": ["a"], "name": "v", "args": ["1"], "labels": {"a": "1", "b": "2"}}
    patch = {
        "hostPath": {"path": "/x"},
        "finalizers": ["b"],
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "args": ["2"],
        "labels": {"$patch": "replace", "c": "3"},
    }
    assert strategic_merge_patch(document, patch) == {
        "name": "v",
        "hostPath": {"path": "/x"},
        "finalizers": ["b"],
        "args": ["2"],
        "labels": {"c": "3"},
    }


NAMES = st.sampled_from(["a", "b", "containers", "$patch", "name"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def refusal_of(call, *arguments):
    """The code that the call is refused with, or None."""
    try:
        call(*arguments)
    except ApiError as error:
        return error.code
    return None


@given(document=st.dictionaries(st.sampled_from("ab"), JSON), patch=JSON)
def test_a_merge_patch_twice_is_the_same_as_once(document, patch):
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once


@given(document=st.dictionaries(st.sampled_from(["a", "containers"]), JSON), patch=JSON)
def test_no_strategic_patch_breaks_the_server(document, patch):
    # 500 is what the real server says where an item has no merge key.
    assert refusal_of(strategic_merge_patch, document, patch) in (None, 400, 500)


@given(st.binary(max_size=40))
def test_no_bytes_break_the_protobuf_reader(raw):
    assert refusal_of(protobuf.decode, raw) in (None, 400, 415)
    assert refusal_of(protobuf.decode, protobuf.MAGIC + raw) in (None, 400, 415)


def field(number, value):
    """A length-delimited field."""
    return bytes([number << 3 | 2, len(value)]) + value


def test_a_config_map_in_protobuf_is_read():
    metadata = field(1, b"settings") + field(11, field(1, b"team") + field(2, b"a"))
    config = field(1, metadata) + field(2, field(1, b"key") + field(2, b"value")) + bytes([4 << 3, 1])
    envelope = field(1, field(1, b"v1") + field(2, b"ConfigMap")) + field(2, config)
    assert protobuf.decode(protobuf.MAGIC + envelope) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "labels": {"team": "a"}},
        "data": {"key": "value"},
        "immutable": True,
    }


def test_a_kind_that_is_not_known_in_protobuf_is_refused_clearly():
    envelope = field(1, field(1, b"apps/v1") + field(2, b"Deployment")) + field(2, b"")
    with pytest.raises(ApiError) as refusal:
        protobuf.decode(protobuf.MAGIC + envelope)
    assert refusal.value.code == 415
