"""Workers that are evicted in the middle of an epoch: what each notice costs the training, in steps.

`NOTICES=50` asks for more of them.
"""

import asyncio
import itertools
import json
import os
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.frameworks_real.training import Training, require_ssh

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOTICES = int(os.environ.get("NOTICES", "3"))
CHANCE = random.Random(7)
OF_A_JOB = 3
"""Of so many in a row each is replaced soon: later ones wait longer and longer."""
STEPS = 21
"""Of an epoch, or more: so far a group goes on between two evictions."""
SAYS = "print('did', {pod}, {step}, flush=True)"
OWN = "__import__('os').uname().nodename"
AFTER = {
    "digits": (
        "launcher.py",
        "commit = await group.step(commit)",
        f"[{SAYS.format(pod='member.host.name', step='commit.step')} for member in members]",
    ),
    "pytorch": ("train.py", "keep(step + 1, network, optimizer)", SAYS.format(pod=OWN, step="step + 1")),
    "horovod": ("train.py", "state.save()", SAYS.format(pod=OWN, step="state.steps")),
}
"""By example, its program, the line after which a step is done, and what says so there."""


@pytest.fixture
def says_each_step(request: pytest.FixtureRequest, training: Training) -> Iterator[None]:
    """The program of the test's parameter says each step that is done, and which pod did it."""
    image = f"muster-{request.param}"
    name, line, says = AFTER[request.param]
    program: Path = request.getfixturevalue("image_folders")[training.images.get(image, image)] / name
    text = program.read_text()
    assert text.count(f" {line}\n") == 1
    program.write_text(text.replace(f" {line}\n", f" {line}; {says}\n"))
    yield
    program.write_text(text)


def done(log: str) -> dict[str, list[int]]:
    """The steps that each pod did, in order."""
    found: dict[str, list[int]] = {}
    for pod, step in re.findall(r"did (\S+) (\d+)$", log, re.MULTILINE):
        found.setdefault(pod, []).append(int(step))
    return found


def again(steps: list[int]) -> int:
    """How many of these a pod did more than once, at the most for one return."""
    return max((max(before - after + 1, 0) for before, after in itertools.pairwise(steps)), default=0)


async def evict(training: Training, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    file = training.folder / "eviction.json"
    file.write_text(json.dumps(eviction))
    await training.operator.kubectl(
        "create", "--raw", f"/api/v1/namespaces/default/pods/{pod}/eviction", "-f", str(file)
    )


async def costs(training: Training, notices: int, stem: str, said_by: str = "") -> list[int]:
    """Evict one of two workers so often; the steps that the other one did twice, for each time.

    Their names begin with `stem`; what they say stands in the log of `said_by`, or in each one's own.
    """
    found: list[int] = []

    async def of(pod: str) -> list[int]:
        return done(await training._log_so_far(said_by or pod)).get(pod, [])

    async def both_train(beyond: int) -> list[str]:
        """Wait until two workers are there that have each done a later step; their names."""
        names: list[str] = []

        async def so() -> bool:
            nonlocal names
            # Each look is some processes, and they take their time from the training.
            await asyncio.sleep(1)
            names = await training.pods(stem)
            return len(names) == 2 and all([(await of(name) or [0])[-1] > beyond for name in names])

        await training.operator.until(so, lambda: f"{names} do not train together: {found}")
        return names

    pods = await both_train(STEPS)
    while len(found) < notices:
        await asyncio.sleep(CHANCE.uniform(0.0, 1.0))
        goes, stays = CHANCE.sample(pods, 2)
        uid = await training.uid(goes)
        before = await of(stays)
        await evict(training, goes)
        await training.operator.until(lambda: is_another(training, goes, uid))  # noqa: B023  within the round
        pods = await both_train(before[-1] + STEPS)
        found.append(again((await of(stays))[len(before) - 1 :]))
        print(f"{goes} was evicted about step {before[-1]}: {stays} did {found[-1]} again", flush=True)
    return found


async def is_another(training: Training, pod: str, uid: str) -> bool:
    return await training.uid(pod) != uid


async def costs_a_step_at_most(
    training: Training, example: str, changes: Mapping[str, str], stem: str, said_by: str = ""
) -> None:
    found: list[int] = []
    while len(found) < NOTICES:
        job = await training.start(example, changes)
        found += await costs(training, min(OF_A_JOB, NOTICES - len(found)), stem, said_by)
        await training.end(job)
        await training.has_no_pods(job.rpartition("/")[2])
    assert max(found) <= 1, found


@pytest.mark.frameworks
@pytest.mark.parametrize("says_each_step", ["digits"], indirect=True)
async def test_an_eviction_costs_the_digits_a_step_at_most(training: Training, says_each_step: None):
    changes = {'value: "30"': 'value: "100000"'}
    await costs_a_step_at_most(training, "digits/training_job.yaml", changes, "digits-worker-", "digits-launcher")


@pytest.mark.frameworks("pytorch", "newest")
@pytest.mark.parametrize("says_each_step", ["pytorch"], indirect=True)
async def test_an_eviction_costs_a_group_of_pytorch_a_step_at_most(training: Training, says_each_step: None):
    changes = {'value: "60"': 'value: "100000"', "maxRestarts: 20": "maxRestarts: 1000"}
    await costs_a_step_at_most(training, "pytorch/elastic.yaml", changes, "torch-elastic-worker-")


@pytest.mark.frameworks("horovod")
@pytest.mark.parametrize("says_each_step", ["horovod"], indirect=True)
async def test_an_eviction_costs_a_group_of_horovod_a_step_at_most(training: Training, says_each_step: None):
    require_ssh()
    # On a machine with other work a new process takes minutes to import its framework.
    changes = {
        'value: "40"': 'value: "100000"',
        'TIMEOUT_SECONDS, value: "60"': 'TIMEOUT_SECONDS, value: "600"',
        "horovodrun ": "horovodrun --start-timeout 600 ",
    }
    await costs_a_step_at_most(training, "horovod/elastic.yaml", changes, "horovod-worker-", "horovod-launcher")
