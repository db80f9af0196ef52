"""What a service keeps of a job whose history was sealed: nothing, or it would grow with each job that ever was."""

import types
from collections import deque
from collections.abc import Iterator

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.runtime.run import Runtime
from tests.kit.services import AUTHORS
from tests.kit.world import World, a_scale_in, a_scale_out, a_training_job

JOBS = 3
SETTLED_SECONDS = 400.0
"""Longer than any timer of a job that is over."""


def kept_by(runtime: Runtime, words: set[str]) -> set[str]:
    """The ways from a service, by attributes, containers and closures, to these words."""
    found, seen, left = set[str](), dict[int, object](), deque[tuple[str, object]]([(runtime.service.author, runtime)])
    while left:
        way, thing = left.popleft()
        if isinstance(thing, str):
            found |= {way} if thing in words else set()
        elif id(thing) not in seen and not isinstance(thing, type | types.ModuleType):
            # What is seen is kept, so that no other thing gets its id.
            seen[id(thing)] = thing
            left += [(way + step, part) for step, part in parts(thing)]
    return found


def parts(thing: object) -> Iterator[tuple[str, object]]:
    if type(thing).__module__.startswith("tests."):
        return
    match thing:
        case dict():
            yield from (("[]", part) for pair in [*thing.items()] for part in pair)
        case list() | tuple() | set() | frozenset() | deque():
            yield from (("[]", part) for part in [*thing])
        case types.MethodType():
            yield "", thing.__self__
        case types.FunctionType():
            yield from ((".closure", cell.cell_contents) for cell in thing.__closure__ or ())
        case _:
            slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
            names = {*getattr(thing, "__dict__", ()), *slots, *getattr(thing, "__struct_fields__", ())}
            yield from ((f".{name}", getattr(thing, name)) for name in sorted(names) if hasattr(thing, name))


async def lived(world: World) -> set[str]:
    """Some jobs live, are scaled and run: the uids of theirs."""
    uids = {world.apply(TRAININGJOBS, a_training_job(f"job-{n}")).metadata["uid"] for n in range(JOBS)}
    for number in range(JOBS):
        name = f"job-{number}"
        await world.running(name)
        uids.add(world.apply(SCALEOUTS, a_scale_out(name=f"out-{name}", job=name)).metadata["uid"])
        await world.phase("ScaleSucceeded", SCALEOUTS, f"out-{name}")
        uids.add(world.apply(SCALEINS, a_scale_in(name=f"in-{name}", job=name)).metadata["uid"])
        await world.phase("ScaleSucceeded", SCALEINS, f"in-{name}")
    return uids | {held.metadata["uid"] for held in world.pods().values()}


async def sealed(world: World) -> None:
    """All jobs are deleted, and their histories sealed."""
    for number in range(JOBS):
        world.delete(TRAININGJOBS, f"job-{number}")
    await world.until(lambda: world.count("JobSealed") == JOBS, "all are sealed")
    await world.pass_seconds(SETTLED_SECONDS)


@pytest.mark.parametrize("ends", ["it ends as the leader", "another replica leads"])
async def test_a_service_keeps_nothing_of_a_job_that_was_sealed(ends: str):
    async with World(seal_after=1) as world:
        other = World(sharing=world, seal_after=1)
        other.standby |= {*AUTHORS}
        async with other:
            uids = await lived(world)
            # The walk finds what there is.
            assert all(kept_by(runtime, uids) for runtime in world.runtimes())
            if ends == "another replica leads":
                world.standby |= {*AUTHORS}
                for author in AUTHORS:
                    await other.lead(author)
            await sealed(world)
            runtimes = [*world.runtimes(), *other.runtimes()]
            assert set[str]().union(*(kept_by(runtime, uids) for runtime in runtimes)) == set()
