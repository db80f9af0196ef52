"""`docs/tutorial.md`: its files are those of the example, and its fragments fit the example's manifest.

That its commands work is shown in `tests/frameworks_real/test_tutorial.py`.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.job.naming import Slot
from shared.job.spec import JobSpec
from tests.crds.judges import Embedded
from tests.frameworks.documents import custom
from tests.kit.pods import pod_for

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch"
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
MANIFEST, *FRAGMENTS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PARTS = {"storage": FRAGMENTS[0], "GPUs": FRAGMENTS[1]}


def joined(base: Any, part: Any) -> Any:
    """`part` put into `base`: objects by their keys, and lists of named things by their names."""
    if isinstance(base, dict) and isinstance(part, dict):
        return base | {key: joined(base[key], value) if key in base else value for key, value in part.items()}
    if isinstance(base, list) and isinstance(part, list):
        known = {one["name"]: one for one in base}
        return [*(known | {one["name"]: joined(known.get(one["name"], {}), one) for one in part}).values()]
    return part


def test_the_manifest_is_the_examples():
    written = (EXAMPLE / "elastic.yaml").read_text()
    assert "".join(line for line in written.splitlines(keepends=True) if not line.startswith("#")) == MANIFEST


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_a_fragment_fits_the_manifest(part: str):
    whole = joined(yaml.safe_load(MANIFEST), yaml.safe_load(part))
    judge = Embedded()
    assert await judge.refusals(whole) == []
    assert await judge.pruned(whole) == []


def test_the_storage_reaches_the_pod():
    whole = joined(yaml.safe_load(MANIFEST), yaml.safe_load(PARTS["storage"]))
    whole["metadata"]["uid"] = "uid-1"
    job = custom(whole)
    assert isinstance(PYTORCHJOB.parse(job), JobSpec)
    pod = pod_for(job, Slot(0, "worker", 0), PYTORCHJOB)
    (container,) = pod["spec"]["containers"]
    assert {"name": "SNAPSHOT", "value": "/snapshots/$(POD)"} in container["env"]
    assert container["volumeMounts"] == [{"name": "snapshots", "mountPath": "/snapshots"}]
    assert pod["spec"]["volumes"] == [{"name": "snapshots", "persistentVolumeClaim": {"claimName": "snapshots"}}]


def test_the_files_that_commands_name_are_there():
    named = {*re.findall(r"examples/[\w/.]+", PAGE)}
    assert "examples/pytorch/elastic.yaml" in named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
