"""The pictures of `docs/architecture.md`: written by the code, and their events are those of a real job."""

from pathlib import Path

from shared.eventlog.subject import Subject
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.job.events.catalog import AUTHORS
from tests.docs.pictures import BEGINS, ENDS, GROWS, SHRINKS, pictures
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import World, a_scale_in, a_scale_out

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
STORY = [(told.type, told.author) for told in (*BEGINS, *GROWS, *SHRINKS, *ENDS)]


def test_the_pictures_are_those_that_the_code_draws():
    assert {name: (FOLDER / name).read_text() for name in pictures()} == pictures(), "run `make pages` and look at them"


def test_the_events_of_the_story_have_the_authors_that_the_pictures_name():
    known = {(str(kind.__struct_config__.tag), author) for kind, authors in AUTHORS.items() for author in authors}
    assert {*STORY} - known == set()


@in_virtual_time
async def test_a_real_job_has_the_events_of_the_story_in_its_order():
    async with World() as world:
        await world.trains(workers=2)
        world.apply(SCALEOUTS, a_scale_out(2))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        await world.running()
        world.apply(SCALEINS, a_scale_in(1))
        await world.phase("ScaleSucceeded", SCALEINS, "in")
        await world.running()
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        await world.until(lambda: list(world.pods()) == ["resnet-launcher"])
        subjects = [Subject.parse(stored.subject) for stored in world.journal.events if ".resnet." in stored.subject]
    happened = iter([(subject.type, subject.author) for subject in subjects])
    missing = [told for told in STORY if told not in happened]
    assert missing == []
