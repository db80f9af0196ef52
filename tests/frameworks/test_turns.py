"""A job that waits for its turn has not failed: Kueue, Argo and the SDKs of Kubeflow take Failed for the end."""

import pytest

from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.watcher import JobObserved
from shared.job.spec import MANY_STARTING, OVER_BUDGET, Problem
from tests.kit.histories import a_history


@pytest.mark.parametrize("reason", [MANY_STARTING, OVER_BUDGET])
@pytest.mark.parametrize("kind", [*BUILT_IN], ids=lambda kind: kind.name)
def test_a_job_that_waits_for_its_turn_is_shown_as_waiting(kind: Framework, reason: str):
    waits = Problem(reason=reason, message="it begins by itself")
    resource = kind.resource
    event = JobObserved(
        kind=resource.kind, api_version=resource.api_version, generation=1, version=1, problems=(waits,)
    )
    job = a_history([event]).job
    document = kind.status(job)
    assert "Failed" not in str(document)
    assert reason in str(document)
