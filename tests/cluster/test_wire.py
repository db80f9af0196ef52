from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cluster.decoding import Lines, read_event, read_object, read_page
from shared.cluster.objects import Custom
from shared.errors import Refused, Transient
from shared.frameworks.training_job import TRAININGJOBS

DEEP = b"[" * 5_000 + b"]" * 5_000
"""An API server takes twice as many levels."""
NESTED = b'{"metadata": {"name": "odd, \\"one\\"", "resourceVersion": "7"}, "spec": {"a": %s}}' % DEEP
PLAIN = b'{"metadata":{"name":"plain","resourceVersion":"8"},"spec":{"a":1}}'


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=8),
    st.binary(max_size=5).filter(lambda line: b"\n" not in line),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], rest: bytes, cuts: list[int]) -> None:
    whole = b"".join(line + b"\n" for line in lines) + rest
    ends = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    splitter = Lines()
    found = [line for start, end in pairwise(ends) for line in splitter.split(whole[start:end])]
    assert found == [line for line in lines if line]
    assert splitter.cut == bool(rest)


def test_an_object_that_is_nested_too_deeply_is_read_by_its_metadata() -> None:
    found = read_object(TRAININGJOBS, NESTED)
    assert (found.metadata.name, found.metadata.version, found.spec) == ('odd, "one"', 7, None)


def test_an_object_that_is_nested_too_deeply_spoils_no_page() -> None:
    body = b'{"kind": "List", "metadata": {"resourceVersion": "9", "continue": "x"}, "items": [%s, %s]}' % (
        NESTED,
        PLAIN,
    )
    page = read_page(body, "list")
    assert (page.metadata.resource_version, page.metadata.continuation) == ("9", "x")
    assert page.items is not None
    odd, plain = (read_object(TRAININGJOBS, raw) for raw in page.items)
    assert (odd.metadata.version, plain.spec) == (7, {"a": 1})


@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
def test_an_object_that_is_nested_too_deeply_ends_no_watch(kind: str) -> None:
    told, found = read_event(TRAININGJOBS, b'{"object": %s, "type": "%s"}' % (NESTED, kind.encode()), "watch")
    assert told == kind
    assert isinstance(found, Custom)
    assert found.metadata.version == 7


@pytest.mark.parametrize("version", ["9" * 21, "9" * 5_000, "²", "٣", "-1", " 1"])
def test_a_version_that_no_server_counts_is_refused(version: str) -> None:
    metadata = {"name": "odd", "resourceVersion": version}
    with pytest.raises(Refused, match="resourceVersion"):
        read_object(TRAININGJOBS, msgspec.json.encode({"metadata": metadata}))
    with pytest.raises(Transient, match="resourceVersion"):
        read_page(msgspec.json.encode({"metadata": metadata, "items": []}), "list")
