"""Whether two watchers know the same world, and told nothing but the truth on the way."""

import asyncio
from typing import Any

import msgspec

from shared.job.naming import NO_UID
from shared.job.state import Job
from tests.perturbation.watched import Watched
from tests.perturbation.witness import Witness

PATIENCE_SECONDS = 75.0
"""From quiet to agreement: a watch that was refused waits up to 30 s, and so does one that failed often."""

State = dict[str, Any]


def folded(jobs: Any) -> State:
    """What a log says is there now, without what depends on which of the states between were seen.

    Left out: sequences, times and versions; jobs and requests that are gone; what their pods did before they went.
    """
    return {
        f"{job.key}/{job.key.uid}": msgspec.to_builtins(_now(job))
        for job in jobs
        if not job.resource.gone and (job.resource.generation or (job.key.uid == NO_UID and job.scaling.requests))
    }


def _now(job: Job) -> State:
    return {
        "kind": (job.resource.kind, job.resource.api_version),
        # Of an invalid spec the last valid one before it counts, which may not have been seen.
        "spec": (job.resource.generation, None if job.resource.problems else job.spec, job.resource.problems),
        "deleting": (job.deleting, job.resource.orphan),
        "integrity": (job.integrity.doubt, job.integrity.repair),
        # A changed message alone is not recorded: which one a log has depends on the states between that were seen.
        "pods": {
            uid: msgspec.structs.replace(_unversioned(pod), message="") for uid, pod in sorted(job.pods.views.items())
        },
        "children": {"/".join(at): _unversioned(child) for at, child in sorted(job.objects.children.items())},
        "requests": {
            uid: (request.kind, request.name, request.owner, request.spec, request.problems, request.phase)
            for uid, request in sorted(job.scaling.requests.items())
            if not request.gone
        },
    }


def _unversioned(view: Any) -> Any:
    return msgspec.structs.replace(view, version=0)


async def agreement(disturbed: Watched, undisturbed: Watched, witness: Witness) -> None:
    """Once quiet both logs tell of the same world; and nothing but the truth was told on the way."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while (mine := folded(await disturbed.jobs())) != (theirs := folded(await undisturbed.jobs())):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"{difference(mine, theirs)}\n{disturbed.last_words()}")
        await asyncio.sleep(0.3)
    lies = witness.lies(await disturbed.log())
    assert not lies, "\n".join([*lies, disturbed.last_words()])


async def sees_everything(undisturbed: Watched, witness: Witness) -> None:
    """The undisturbed log tells of the jobs, their generations, pods and children that the administrator sees."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        state = folded(await undisturbed.jobs())
        told = {
            name.rpartition("/")[2]: (
                job["spec"][0],
                sorted([*job["pods"], *(c["uid"] for c in job["children"].values())]),
            )
            for name, job in state.items()
            if job["kind"][0]
        }
        shown = {
            uid: (job.metadata.generation, witness.belongings(uid)) for uid, job in witness.there["TrainingJob"].items()
        }
        if told == shown:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"told {told}, shown {shown}\n{undisturbed.last_words()}")
        await asyncio.sleep(0.1)


def difference(mine: State, theirs: State, path: str = "") -> str:
    """Where they differ, one line each."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        found = [
            difference(mine.get(key), theirs.get(key), f"{path}.{key}")
            for key in sorted({*mine, *theirs})
            if mine.get(key) != theirs.get(key)
        ]
        return "\n".join(found)
    return f"{path}: disturbed {mine}, undisturbed {theirs}"
