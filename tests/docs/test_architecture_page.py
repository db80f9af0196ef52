"""`docs/architecture.md`: the events of its story exist, each with the author that the page names."""

import re
from pathlib import Path

from shared.job.events.catalog import AUTHORS

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
STORY = PAGE.partition("## The life of one job")[2].partition("\n## ")[0]


def test_the_events_of_the_story_have_the_authors_that_the_page_names():
    told = {(kind, author) for author, kind in re.findall(r"^\| (\w+) \| `(\w+)`", STORY, re.MULTILINE)}
    known = {(str(kind.__struct_config__.tag), author) for kind, authors in AUTHORS.items() for author in authors}
    assert ("JobSucceeded", "status") in told
    assert told - known == set()
