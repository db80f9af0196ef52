"""What the status of an ended object shows is noted beside the log, so that a replica that starts need not look."""

from services.status.checkpoints import Checkpoints
from shared.eventlog.account import HEADS
from shared.job.naming import Uid
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

JOB = Uid("uid-1")


async def test_the_note_is_of_one_object_its_last_document_and_one_epoch_of_the_store():
    bucket = await MemoryEventLog(MemoryJournal()).bucket(HEADS)
    await Checkpoints(bucket, "log").shown(JOB, b"first", 0)
    await Checkpoints(bucket, "log").shown(JOB, b"last", 0)
    another = Checkpoints(bucket, "log")
    assert await another.shows(JOB, b"last", 0)
    assert not await another.shows(JOB, b"first", 0), "a later document replaced it"
    assert not await another.shows(JOB, b"last", 1), "a restored store may show an older status"
    assert not await another.shows(Uid("uid-2"), b"last", 0)
