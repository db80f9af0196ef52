"""Every patch fits the tree as it is now; whether it is seen, `make mutants` tells."""

import ast
from collections import Counter

import pytest

from tests.mutants.generated import POLICIES, STORIES, mutants_of
from tests.mutants.patches import NOT_PLANTED, PATCHES, Patch, changed
from tests.mutants.tree import PARTS, ROOT


def _read(name: str) -> str:
    return (ROOT / name).read_text()


def _exists(story: str) -> bool:
    file, _, test = story.partition("::")
    if not (ROOT / file).exists():
        return False
    return not test or f"def {test.partition('[')[0]}(" in _read(file)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_patch_applies_and_compiles(patch: Patch):
    for name, text in changed(patch, _read).items():
        assert name.partition("/")[0] in PARTS
        ast.parse(text, name)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_the_stories_of_a_patch_exist(patch: Patch):
    assert [story for story in patch.stories if not _exists(story)] == []


def test_no_name_comes_twice():
    names = [patch.name for patch in PATCHES] + [name for name, _ in NOT_PLANTED]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_stories_of_every_policy_exist():
    assert POLICIES
    assert [story for stories in STORIES.values() for story in stories if not _exists(story)] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_the_mutants_of_a_policy_are_python_and_none_is_the_policy_itself(policy: str):
    source = _read(policy)
    texts = [text for _, text in mutants_of(policy, source)]
    assert texts
    same = ast.dump(ast.parse(source))
    assert all(ast.dump(ast.parse(text)) != same for text in texts)
    assert len({*texts}) == len(texts)


SOURCE = '''
def least(numbers: list[int], most: int | None) -> bool:
    """Of a list."""
    if not numbers or most is None:
        return False
    return all([number < most for number in numbers if number])
'''


def test_what_is_mutated_in_a_source():
    names = [name.partition(": ")[2] for name, _ in mutants_of("a.py", SOURCE)]
    assert sorted(names) == [
        "`least` returns False and not `all([number < most for number in numbers if number])`",
        "`most is None` is flipped",
        "`not numbers or most is None` is flipped",
        "`number < most` is flipped",
        "the condition `not numbers or most is None` is negated",
        "the condition `number` is negated",
    ]
