"""`examples/README.md`: every manifest is in its table, with what it needs and what tries it."""

import re
from pathlib import Path

import pytest

from tests.examples.table import EXAMPLES, NOTHING, READY, TABLE, Example

REAL = Path(__file__).parents[1] / "frameworks_real"
EACH = pytest.mark.parametrize("example", TABLE, ids=lambda example: example.file)


def test_the_table_has_every_manifest_once():
    assert sorted(example.file for example in TABLE) == sorted(
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/*.yaml")
    )


def test_no_two_jobs_have_one_name():
    names = [example.manifest["metadata"].get("name") for example in TABLE]
    # An autoscaler has the name of its job, and it has no pods.
    jobs = [name for name, example in zip(names, TABLE, strict=True) if name and "autoscaler" not in example.file]
    assert sorted(jobs) == sorted({*jobs})


@EACH
def test_a_manifest_says_what_it_needs(example: Example):
    found = re.findall(r"^# Needs (.*)\.$", example.text, re.MULTILINE)
    assert found == ([] if example.needs == NOTHING else [example.needs])


@EACH
def test_an_image_that_the_embedded_cluster_lacks_is_needed(example: Example):
    images = {*re.findall(r"image: ([^\s:]+)", example.text)}
    for image in images - {"busybox", "muster-digits"}:
        assert f"`{image}" in example.needs


@pytest.mark.parametrize(
    "file", sorted({*re.findall(r"`([a-z]+/(?:Containerfile|\w+\.\w+))`", " ".join(row.needs for row in TABLE))})
)
def test_what_is_needed_from_this_repository_is_there(file: str):
    assert (EXAMPLES / file).is_file() or (EXAMPLES.parent / file).is_file()


@EACH
def test_the_command_that_tries_it_does(example: Example):
    folder, stem = Path(example.file).parent.name, Path(example.file).stem
    tests = REAL / f"test_{folder}.py"
    trains = tests.exists() and re.search(rf"""["/]{stem}(\.yaml)?["']""", tests.read_text()) is not None
    wanted = "`make test`" if example in READY else "`make test-frameworks`" if trains else NOTHING
    assert (example.tried_by, example.comes_to == NOTHING) == (wanted, wanted == NOTHING)
