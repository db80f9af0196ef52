"""Histories that each release wrote fold to the status documents that it made of them."""

from typing import get_args

import pytest

from shared.job.events.catalog import FOR_PEOPLE, AnyEvent
from tests.histories.recorded import BUILT_IN_KINDS, Recording, documents, recordings
from tests.kit.histories import observed

RECORDINGS = recordings("0.1.0")


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_every_status_document_of_a_release_comes_out_again(recording: Recording):
    assert [*documents(recording.events())] == recording.documents


def test_the_recordings_have_every_kind_and_every_type_of_event_that_changes_a_job():
    events = [event for recording in RECORDINGS for event in recording.events()]
    types = {event.subject.rpartition(".")[2] for event in events}
    # After a seal there is no status document, and none shows labels.
    assert types | FOR_PEOPLE | {"EventDisowned", "JobSealed", "JobRelabelled"} == {
        type_.__struct_config__.tag for type_ in get_args(AnyEvent)
    }
    assert observed(events) == BUILT_IN_KINDS
