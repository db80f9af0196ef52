from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.cluster.wire import Lines


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
