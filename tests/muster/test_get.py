"""`muster get`: what the table says of a job, at any width of the terminal."""

import pytest

from muster.get import show
from muster.kinds import known_kinds
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobObserved
from shared.job.spec import Problem
from tests.kit.builders import a_running_job
from tests.kit.histories import a_history

WRONG = JobObserved(
    kind="TrainingJob",
    api_version="kai.alibabacloud.com/v1alpha1",
    generation=2,
    version=1,
    problems=(Problem(reason="NoContainers", field="spec.worker", message="add a container"),),
)


@pytest.mark.parametrize(
    ("events", "row"),
    [
        pytest.param(a_running_job(2), "team-a trainingjob resnet Running 3/3 - 10", id="runs"),
        pytest.param([WRONG], "team-a trainingjob resnet - 0/0 - 1 refused: NoContainers", id="refused"),
        pytest.param(
            [*a_running_job(2), WRONG],
            "team-a trainingjob resnet Running 3/3 - 11 edit refused: NoContainers",
            id="an edit was refused",
        ),
    ],
)
def test_a_job_is_one_whole_line(
    events: list[AnyEvent], row: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "20")
    show([a_history(events)], "", known_kinds(), gone=False)
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAMESPACE", "KIND", "NAME", "PHASE", "PODS", "REQUESTS", "EVENTS", "AT", "NOTE"]
    assert line.split() == row.split()
