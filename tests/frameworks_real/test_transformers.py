"""Hugging Face's `transformers` reports by itself, while its group grows, loses a worker and hangs."""

import asyncio
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.job.naming import STALL_TIMEOUT
from tests.frameworks_real.training import Training
from tests.kit.operator import an_example

pytestmark = [pytest.mark.frameworks("pytorch", "newest"), pytest.mark.asyncio(loop_scope="session")]

LIMIT, STEPS = 30, 400
PROGRAM = Path(__file__).with_name("hugging_face.py")
NAME, FIRST, SECOND, THIRD = "reports", *(f"reports-worker-{index}" for index in range(3))


def a_job(image: str, folder: Path) -> dict[str, object]:
    """An elastic group whose workers, which are not root, share a folder for checkpoints."""
    folder.chmod(0o777)
    job = an_example("pytorch/elastic")
    job["metadata"] |= {"name": NAME, "annotations": {STALL_TIMEOUT: str(LIMIT)}}
    spec = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = spec["containers"]
    container |= {"image": image, "command": ["torchrun", PROGRAM.name]}
    container["env"] += [{"name": "EPOCHS", "value": str(STEPS)}, {"name": "SNAPSHOT", "value": "/snapshots"}]
    container["volumeMounts"] = [{"name": "snapshots", "mountPath": "/snapshots"}]
    spec["volumes"] = [{"name": "snapshots", "hostPath": {"path": str(folder)}}]
    return job


async def newest(training: Training, kind: str, words: bytes = b"") -> datetime:
    """When the job's newest event of this type, with these words in it, was logged."""
    log = (stored for stored in await training.operator.log() if stored.subject.split(".")[2] == NAME)
    found = [stored for stored in log if stored.subject.endswith(f".{kind}") and words in stored.body]
    return datetime.fromisoformat(found[-1].time)


async def trains_again(training: Training) -> None:
    """Wait until the group is known to train since it changed."""

    async def so() -> bool:
        await asyncio.sleep(1)
        known = (await training.operator.job(NAME)).training
        return known.changed is None and known.reached is not None

    await training.operator.until(so)


async def test_transformers_reports_while_its_group_grows_loses_a_worker_hangs_and_goes_on(
    training: Training, image_folders: dict[str, Path], tmp_path: Path
):
    operator, image = training.operator, training.images["muster-pytorch"]
    shutil.copy(PROGRAM, image_folders[image])
    await operator.apply(a_job(image, tmp_path))
    await training.says(FIRST, r"^step=10 workers=2$")
    await operator.kubectl("scale", f"pytorchjob/{NAME}", "--replicas=3")
    await training.says(THIRD, r"^process=\d+ workers=3 step=[1-9]")
    await training.says(THIRD, r"^step=\d+ workers=3$")

    await trains_again(training)
    await operator.kubectl("delete", "pod", THIRD, "--wait=false")
    await training.says(FIRST, r"(?s:(?:.*^process=\d+ workers=3 ){2}.*)^step=\d+ workers=3$")
    await trains_again(training)
    # A rank that stands still: the others wait for it.
    hangs = await training.says(SECOND, r"(?s:.*)^process=(\d+) ")
    await operator.kubectl("exec", SECOND, "--", "sh", "-c", f"kill -STOP {hangs[1]}")

    async def stalled() -> bool:
        conditions = (await operator.status(PYTORCHJOB.resource, NAME))["conditions"]
        return any(f"no step for {LIMIT} s" in each["message"] for each in conditions)

    await operator.until(stalled, lambda: "it is not told as stalled")
    waited = await newest(training, "TimePassed", b'"Stall"') - await newest(training, "ProgressReported")
    late = waited.total_seconds()
    print(f"stalled {late:.1f} s after the last report, of {LIMIT}")
    assert LIMIT - 1 < late < LIMIT + 1
    await operator.kubectl("exec", SECOND, "--", "sh", "-c", f"kill -CONT {hangs[1]}")
    await training.succeeds(f"pytorchjob/{NAME}")
    # Its last report names no step.
    told = await operator.muster("why", f"pytorchjob/{NAME}")
    assert re.search(rf"its training was at step \d+ of {STEPS} \(100 %\)", told), told
    await training.end(f"pytorchjob/{NAME}")
