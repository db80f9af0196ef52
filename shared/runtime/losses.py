"""Asks the log for the events of living jobs, by turns: a job in which nothing happens does not notice their loss."""

import asyncio

from shared.errors import Refused, Trouble
from shared.eventlog.subject import SEALED, Subject, of_chain
from shared.job.fold import History
from shared.job.naming import subject_of
from shared.runtime.run import Runtime

PAUSE_SECONDS = 0.2
"""Between two questions: a turn of 10,000 jobs takes 33 minutes, and costs the server next to nothing."""
TURN_SECONDS = 2.0
"""Before each turn."""
SURE, SURE_SECONDS = 3, 5.0
"""So many answers count as certain, so long apart: a former leader answers until it notices that it is none."""


async def notice_losses(runtime: Runtime) -> None:
    """Look until the log lacks an event that this service has folded.

    Then raise `Refused(reason="LogTruncated")`: the next fold is of what is left, and its heads are compared.
    """
    while True:
        await asyncio.sleep(TURN_SECONDS)
        for history in runtime.histories.open() if runtime.acting else ():
            # It may have been sealed since the turn began, and the archiver purges the seal, too.
            if runtime.acting and not history.held and _is_open(runtime, history):
                await _must_be_there(runtime, history)
                await asyncio.sleep(PAUSE_SECONDS)


async def _must_be_there(runtime: Runtime, history: History) -> None:
    scope = Subject.parse(subject_of(history.job.key, "jobs", "status", SEALED)).scope
    for _ in range(SURE):
        known = history.count
        try:
            counted = await runtime.eventlog.counted(scope)
        except Trouble:
            # Its reader tells.
            return
        sealed = any(subject.endswith(f".{SEALED}") for subject in counted)
        if (there := of_chain(counted)) >= known or sealed or not _is_open(runtime, history):
            return
        await asyncio.sleep(SURE_SECONDS)
    words = f"the log has {there} events of {history.job.key}, and this service has read {known}: some were purged"
    raise Refused(words, reason="LogTruncated")


def _is_open(runtime: Runtime, history: History) -> bool:
    key = history.job.key
    return runtime.histories.is_open(key) and runtime.histories.get(key) is history
