"""Refused for good, or waited for: decided for what the real API server answered, and that server still answers so.

`recorded.json` has its answers; with `REWRITE_GOLDEN=1` the test on the real control plane writes them anew.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from shared.cluster.answers import TIMEOUT, FailedRequest, as_sent, is_late, read_status, trouble
from shared.errors import Conflict, Refused, Transient, Trouble
from shared.job.events.event import PERMANENT
from tests.cluster.refusals.situations import PODS, SITUATIONS, a_pod, as_recorded, sites
from tests.devcluster.apiserver.client import client_of
from tests.kit.controlplane import require_control_plane

RECORDED = Path(__file__).with_name("recorded.json")
ANSWERS: dict[str, Any] = json.loads(RECORDED.read_text())

OUTCOMES = {
    "a policy denies": ("waits", "Denied", ""),
    "a policy denies with Forbidden": ("waits", "Denied", ""),
    "a policy denies with RequestEntityTooLarge": ("waits", "Denied", ""),
    "a policy cannot be evaluated": ("waits", "Denied", ""),
    "a policy lacks its parameters": ("waits", "Denied", ""),
    "a webhook denies": ("waits", "Denied", ""),
    "a webhook denies with 400": ("waits", "Denied", ""),
    "a webhook denies with 401": ("waits", "Denied", ""),
    "a webhook denies with 403": ("waits", "Denied", ""),
    "a webhook denies with 409": ("waits", "Denied", ""),
    "a webhook denies with 410": ("waits", "Denied", ""),
    "a webhook denies with 422": ("waits", "Denied", ""),
    "a webhook denies with 429": ("waits", "Denied", ""),
    "a webhook denies with 500": ("waits", "Denied", ""),
    "a webhook breaks the pod": ("waits", "Denied", "spec.containers[1].image"),
    "a webhook's patch does not apply": ("tries", "InternalError", ""),
    "a webhook is down": ("tries", "WebhookFailed", ""),
    "a webhook has no Service": ("tries", "WebhookFailed", ""),
    "a webhook is slow": ("tries", "WebhookFailed", ""),
    "a webhook outlasts the deadline": ("tries", "Timeout", ""),
    "a webhook is broken": ("tries", "WebhookFailed", ""),
    "the quota is used up": ("waits", "QuotaExceeded", ""),
    "the quota asks for limits": ("waits", "Denied", ""),
    "a LimitRange allows less": ("waits", "Denied", ""),
    "a LimitRange asks for more": ("waits", "Denied", ""),
    "a LimitRange sets a limit below the request": ("waits", "Denied", "spec.containers[0].resources.requests"),
    "Pod Security forbids it": ("waits", "Denied", ""),
    "a right is missing": ("waits", "Forbidden", ""),
    "there is no PriorityClass": ("waits", "Denied", ""),
    "there is no RuntimeClass": ("waits", "Denied", ""),
    "there is no ServiceAccount": ("waits", "Denied", ""),
    "the namespace goes": ("waits", "NamespaceTerminating", "metadata.namespace"),
    "there is no namespace": ("waits", "NotFound", ""),
    "the name is taken": ("waits", "AlreadyExists", ""),
    "a field is required": ("ends", "Invalid", "spec.containers[0].image"),
    "a field has a value that is not allowed": ("ends", "Invalid", "spec.restartPolicy"),
    "a limit is below its request": ("ends", "Invalid", "spec.containers[0].resources.requests"),
    "a volume is missing": ("ends", "Invalid", "spec.containers[0].volumeMounts[0].name"),
    "a field is not known": ("ends", "UnknownField", "spec.containers[0].resources.limit"),
    "a field comes with others that are not known": ("ends", "UnknownField", "spec.nodeSelecter"),
    "a value has another type": ("ends", "Invalid", "spec.containers.env.value"),
    "a value is no quantity": ("ends", "Invalid", ""),
    "a field does not change": ("ends", "Invalid", "spec"),
    "a uid does not change": ("is decided again", "", ""),
}
"""What becomes of a job whose pod is answered so, with the reason and the field that it is told.

It `waits` and tries again, it `tries` at once and says so after a while, or it `ends`.
"""


def outcome(situation: str, answer: dict[str, Any]) -> tuple[str, str, str]:
    method = "PATCH" if situation.endswith("does not change") else "POST"
    status = read_status(json.dumps(answer).encode())
    found: Trouble = trouble(status, "create it", method=method)
    found.__cause__ = FailedRequest(status)
    match found:
        case Refused():
            found = as_sent(found, PODS.get(situation, a_pod()))
            return "ends" if found.reason in PERMANENT else "waits", found.reason, found.field
        case Transient():
            return "tries", TIMEOUT if is_late(found) else found.reason, ""
        case Conflict():
            return "is decided again", "", ""
    raise AssertionError(found)


@pytest.mark.parametrize("situation", OUTCOMES)
def test_a_refusal_ends_a_job_only_if_no_change_outside_the_job_mends_it(situation: str) -> None:
    assert outcome(situation, ANSWERS[situation]) == OUTCOMES[situation]


@pytest.mark.real
async def test_the_real_server_answers_as_recorded(tmp_path: Path) -> None:
    require_control_plane()
    found = {}
    async with (
        ControlPlane(tmp_path / "plane", nodes=0, accounts=True) as plane,
        client_of(plane.kubeconfig(ADMIN)) as client,
        sites(client, tmp_path) as begin,
    ):
        for situation, come_about in SITUATIONS.items():
            site = await begin()
            found[situation] = as_recorded(await come_about(site), site)
    if os.environ.get("REWRITE_GOLDEN") == "1":
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    assert {situation: outcome(situation, answer) for situation, answer in found.items()} == OUTCOMES
