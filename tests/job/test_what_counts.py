"""What counts against backoffLimit: each line of the list in docs/compatibility.md, for each role."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import LauncherLost, PodsGone, PodsObserved
from shared.job.steps import Record
from shared.job.views import Exit, PodView
from tests.kit.builders import a_running_job, exited, launcher, worker
from tests.kit.replicas import TOGETHER, a_replicated_spec, a_running_replicated_job, replica
from tests.kit.stories import given, scheduler, status

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
LIST = PAGE.read_text().split("## What counts against backoffLimit")[1].split("\n## ")[0]
FOR_THE_LEADER = "counts for a launcher or scheduler alone"
ROWS = re.findall(rf"^- (.+): (counts|does not|{FOR_THE_LEADER})$", LIST, re.MULTILINE)

ENDS: dict[str, list[dict[str, object]]] = {
    "exits with another code": [
        {"phase": "Failed", "exits": exited(1)},
        {"phase": "Failed", "exits": exited(137, "OOMKilled")},
    ],
    "cannot be started": [{"phase": "Failed", "exits": exited(128, "StartError"), "ran": False}],
    "init containers fails": [{"phase": "Failed", "reason": "InitContainerFailed", "ran": False}],
    "kubelet rejects it": [{"phase": "Failed", "reason": "UnexpectedAdmissionError", "ran": False}],
    "runs longer": [
        {"phase": "Failed", "reason": "DeadlineExceeded", "exits": exited(137)},
        {"phase": "Failed", "reason": "Evicted", "exits": exited(137)},
    ],
    "is evicted for its node": [
        {"phase": "Failed", "reason": "Evicted", "disruption": "TerminationByKubelet", "exits": exited(137)},
        {"phase": "Failed", "disruption": "PreemptionByScheduler", "deleting": True, "exits": exited(143)},
        {"phase": "Failed", "reason": "Terminated", "disruption": "TerminationByKubelet", "exits": exited(0)},
        {"phase": "Failed", "disruption": "ContainerStatusUnknown", "exits": exited(255, "Unknown")},
    ],
    "is deleted": [{"phase": "Failed", "deleting": True, "exits": exited(143)}],
    "in place": [{"phase": "Running", "ready": False, "restarts": 3, "reason": "CrashLoopBackOff"}],
    "another container": [{"phase": "Running", "exits": (Exit("side", 1),)}],
}
"""Words of a line → views of pods that go so."""


def of_launcher(**change: object) -> tuple[list[AnyEvent], PodView]:
    return a_running_job(2, restart="OnFailure"), msgspec.structs.replace(launcher(version=90), **change)


def of_worker(**change: object) -> tuple[list[AnyEvent], PodView]:
    return a_running_job(2, of_workers="OnFailure"), msgspec.structs.replace(worker(1, version=90), **change)


def of_replica(**change: object) -> tuple[list[AnyEvent], PodView]:
    running = a_running_replicated_job(a_replicated_spec("OnFailure"))
    return running, msgspec.structs.replace(replica("worker", 1, version=90), **change)


def of_scheduler(**change: object) -> tuple[list[AnyEvent], PodView]:
    """With its failure the whole job begins again."""
    handling = msgspec.structs.replace(TOGETHER, restarts="Job")
    running = a_running_replicated_job(a_replicated_spec("OnFailure", handling=handling))
    return running, msgspec.structs.replace(replica("chief", 0, version=90), **change)


def counted(events: list[AnyEvent], pod: PodView) -> bool:
    """True if what follows the pod's end counts as an attempt or as a replacement."""
    story = [*events, PodsObserved(pods=(pod,))]
    if pod.phase == "Failed" and pod.role in ("launcher", "chief"):
        if pod.deleting and pod.role == "launcher":
            story.append(LauncherLost(uid=pod.uid))
        (next_one,) = (step.event for step in given(*story).steps(status) if isinstance(step, Record))
        assert isinstance(next_one, JobRestarting)
        return next_one.counted
    if pod.phase == "Failed":
        # Its name has to be free.
        story.append(PodsGone(uids=(pod.uid,)))
    new = [step.event for step in given(*story).steps(scheduler) if isinstance(step, Record)]
    assert [type(event) for event in new] == ([SlotsAssigned] if pod.phase == "Failed" else [])
    return given(*story, *new).job.attempt.replaced > 0


@pytest.mark.parametrize(("way", "verdict"), ROWS, ids=[way[:60] for way, _ in ROWS])
@pytest.mark.parametrize(
    ("leads", "of"),
    [(True, of_launcher), (True, of_scheduler), (False, of_worker), (False, of_replica)],
    ids=["launcher", "scheduler", "worker", "others"],
)
def test_the_page_says_what_counts(
    way: str, verdict: str, leads: bool, of: Callable[..., tuple[list[AnyEvent], PodView]]
):
    (changes,) = (changes for words, changes in ENDS.items() if words in way)
    counts = verdict == "counts" or (leads and verdict == FOR_THE_LEADER)
    assert {counted(*of(**change)) for change in changes} == {counts}


def test_every_way_is_on_the_page():
    assert len(ROWS) == len(ENDS)
