"""Where Muster works, and what a person is told who made a job elsewhere."""

import pytest

from shared.cluster.scope import OPTED_IN, lacking, why_outside


@pytest.mark.parametrize(
    ("namespace", "labels", "why"),
    [
        pytest.param("team-a", {"muster.dev/jobs": "enabled", OPTED_IN[1]: "baseline"}, "", id="it opted in"),
        pytest.param(
            "team-a",
            {"muster.dev/jobs": "no"},
            "the namespace team-a lacks muster.dev/jobs=enabled, pod-security.kubernetes.io/enforce, so that no job "
            "begins there: `kubectl label namespace team-a muster.dev/jobs=enabled "
            "pod-security.kubernetes.io/enforce=VALUE`",
            id="another value, and no level",
        ),
        pytest.param(
            "kube-system",
            {"muster.dev/jobs": "enabled", OPTED_IN[1]: "baseline"},
            "kube-system is a namespace of the system, in which no job begins; create the job in another one",
            id="the labels do not help the system's",
        ),
    ],
)
def test_why_no_job_begins(namespace: str, labels: dict[str, str], why: str):
    assert why_outside(namespace, lacking(OPTED_IN, labels)) == why
