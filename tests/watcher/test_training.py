"""The training container is the replica, whatever runs before it or beside it in the pod."""

from typing import Any

import pytest

from services.watcher.core.observed import recorded_part
from services.watcher.core.views import observed_pod
from shared.job.naming import CONTAINER
from shared.job.views import Exit, PodView
from tests.watcher.objects import Document, a_pod

RUNS: Document = {"running": {"startedAt": "2030-01-01T00:00:00Z"}}
WAITS: Document = {"waiting": {"reason": "ContainerCreating"}}


def exited(code: int, reason: str = "Error", message: str = "") -> Document:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def status(name: str, state: Document, *, ready: bool = False, restarts: int = 0, last: Document | None = None) -> Any:
    return {"name": name, "state": state, "ready": ready, "restartCount": restarts, "lastState": last or {}}


def view(main: Any, *others: Any, phase: str = "Running", spec: Document | None = None, **more: Any) -> PodView:
    """The view of a pod with this status of its training container, and with others."""
    found = observed_pod(a_pod(spec=spec, phase=phase, containerStatuses=[*others, main], **more))
    assert found is not None
    return found[1]


SIDE = status("a-side", RUNS, ready=True)


@pytest.mark.parametrize(
    ("main", "others", "phase", "seen"),
    [
        pytest.param(exited(0), [], "Running", "Succeeded", id="before the kubelet writes the pod's phase"),
        pytest.param(exited(3), [], "Running", "Failed", id="failed before the kubelet writes the pod's phase"),
        pytest.param(exited(0), [SIDE], "Running", "Succeeded", id="succeeded beside a container that runs on"),
        pytest.param(exited(1), [SIDE], "Running", "Failed", id="failed beside a container that runs on"),
        pytest.param(exited(0), [status("b", exited(9))], "Failed", "Succeeded", id="succeeded beside one that failed"),
        pytest.param(RUNS, [status("b", exited(9))], "Running", "Running", id="runs beside one that failed"),
        pytest.param(RUNS, [status("b", WAITS)], "Pending", "Running", id="runs beside one that cannot start"),
        pytest.param(WAITS, [SIDE], "Pending", "Pending", id="waits beside one that runs"),
        pytest.param(exited(128, "StartError"), [], "Pending", "Failed", id="could not be started"),
        pytest.param(exited(0), [], "Unknown", "Unknown", id="its node is silent"),
        pytest.param(exited(137), [], "Succeeded", "Succeeded", id="the API server's end of a pod is its end"),
    ],
)
def test_the_phase_is_that_of_the_training_container(main: Document, others: list[Any], phase: str, seen: str):
    assert view(status("main", main), *others, phase=phase).phase == seen


@pytest.mark.parametrize(
    ("spec", "more", "message"),
    [
        pytest.param(
            {"schedulerName": "volcano"}, {}, "no scheduler called volcano has looked at it yet", id="its own"
        ),
        pytest.param({"schedulerName": "default-scheduler"}, {}, "", id="the one that every pod waits for"),
        pytest.param(
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "not-there"}]},
            {},
            "no scheduler called default-scheduler has looked at it yet; it asks for resource claims: gpu",
            id="a claim",
        ),
        pytest.param({}, {}, "", id="none, where there is no scheduler"),
        pytest.param(
            {"nodeName": "nowhere", "schedulerName": "volcano"},
            {},
            "no kubelet of a node nowhere has taken it on yet",
            id="a node of its own",
        ),
        pytest.param(
            {"schedulerName": "volcano"},
            {"conditions": [{"type": "PodScheduled", "status": "True"}]},
            "",
            id="the scheduler has placed it",
        ),
        pytest.param({"schedulerName": "volcano"}, {"phase": "Failed"}, "", id="it is over"),
    ],
)
def test_a_pod_says_which_program_has_not_touched_it(spec: Document, more: Document, message: str):
    found = observed_pod(a_pod(spec={"nodeName": ""} | spec, **({"phase": "Pending"} | more)))
    assert found is not None
    assert (found[1].reason, found[1].message) == ("", message)


def test_a_pod_without_container_statuses_has_its_own_phase_and_readiness():
    found = observed_pod(a_pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]))
    assert found is not None
    assert (found[1].phase, found[1].ready) == ("Running", True)


def test_the_kubelet_s_end_of_a_pod_is_no_success_though_the_training_exits_with_0_when_told_to():
    evicted = view(status("main", exited(0, "Completed")), phase="Failed", reason="Evicted", message="low on memory")
    assert (evicted.phase, evicted.reason, evicted.message) == ("Failed", "Evicted", "low on memory")


def test_a_training_that_exits_with_0_while_its_kubelet_ends_the_pod_has_not_succeeded():
    # Recorded of a kubelet of 1.36: this condition comes with the order to end, the phase and its reason at the end.
    ready = {"type": "Ready", "status": "False", "reason": "PodFailed"}
    ending = view(status("main", exited(0, "Completed")), SIDE, conditions=[ready])
    assert (ending.phase, ending.ready, ending.exits) == ("Running", False, ())
    words = "the kubelet ends the pod, and says why once its containers have ended"
    assert (ending.reason, ending.message) == ("PodFailed", words)
    assert view(status("main", exited(1)), SIDE, conditions=[ready]).phase == "Failed"


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        pytest.param({"ContainersReady": "False", "Ready": "False"}, True, id="another container is not Ready"),
        pytest.param({"ContainersReady": "True", "Ready": "False"}, False, id="a readiness gate is not"),
        pytest.param({"ContainersReady": "True", "Ready": "True"}, True, id="the pod is Ready"),
    ],
)
def test_readiness_is_that_of_the_training_container(conditions: dict[str, str], ready: bool):
    told = [{"type": kind, "status": value, "reason": "R", "message": "M"} for kind, value in conditions.items()]
    seen = view(status("main", RUNS, ready=True), status("helper", exited(0)), conditions=told)
    assert (seen.ready, seen.reason, seen.message) == ((True, "", "") if ready else (False, "R", "M"))


def test_a_training_that_runs_and_is_not_ready_has_the_kubelet_s_words():
    ready = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready: [main]"}
    seen = view(status("main", RUNS), conditions=[ready])
    assert (seen.phase, seen.ready, seen.reason, seen.message) == (
        "Running",
        False,
        "ContainersNotReady",
        "unready: [main]",
    )


def test_exits_come_with_the_end_of_the_training_and_begin_with_its_own():
    helper = status("a-helper", exited(0, "Completed"))
    assert view(status("main", RUNS, ready=True), helper).exits == ()
    both = view(status("main", exited(137, "OOMKilled")), helper, SIDE)
    assert both.exits == (Exit("main", 137, "OOMKilled"), Exit("a-helper", 0, "Completed"))


@pytest.mark.parametrize(
    ("main", "others", "phase", "lingers"),
    [
        pytest.param(exited(1), [SIDE], "Running", True, id="a container runs on"),
        pytest.param(exited(1), [status("b", WAITS)], "Running", True, id="a container may start yet"),
        pytest.param(exited(1), [status("b", exited(0))], "Running", False, id="all have ended"),
        pytest.param(exited(1), [SIDE], "Failed", False, id="the pod has ended"),
        pytest.param(RUNS, [SIDE], "Running", False, id="the training runs"),
    ],
)
def test_a_pod_lingers_while_others_outlive_its_training(main: Document, others: list[Any], phase: str, lingers: bool):
    assert view(status("main", main), *others, phase=phase).lingers is lingers


def rules(action: str, *, name: str = "main", operator: str = "In") -> Document:
    rule = {"action": action, "exitCodes": {"operator": operator, "values": [42]}}
    named = {"name": name, "restartPolicy": "Never", "restartPolicyRules": [rule]}
    return {"restartPolicy": "Never", "containers": [{"name": "other"}, named]}


def policy(of_container: str | None, of_pod: str = "Never") -> Document:
    return {"restartPolicy": of_pod, "containers": [{"name": "main", "restartPolicy": of_container}]}


@pytest.mark.parametrize(
    ("spec", "code", "again"),
    [
        pytest.param(rules("Restart"), 42, True, id="a rule names the code"),
        pytest.param(rules("Restart"), 43, False, id="no rule names the code"),
        pytest.param(rules("Restart", operator="NotIn"), 43, True, id="a rule names all other codes"),
        pytest.param(rules("Restart", operator="NotIn"), 42, False, id="a rule names all other codes, not this"),
        pytest.param(rules("RestartAllContainers"), 42, True, id="a rule restarts the whole pod"),
        pytest.param(policy("Always"), 0, True, id="the container always restarts"),
        pytest.param(policy("OnFailure"), 1, True, id="the container restarts when it fails"),
        pytest.param(policy("OnFailure"), 0, False, id="the container restarts only when it fails"),
        pytest.param(policy("Never", "Always"), 1, False, id="the container's policy goes before the pod's"),
        pytest.param(policy(None, "OnFailure"), 1, True, id="the pod's policy, which another operator set"),
        pytest.param(policy(None), 1, False, id="no policy restarts it"),
    ],
)
def test_what_the_kubelet_restarts_in_place_has_not_ended(spec: Document, code: int, again: bool):
    seen = view(status("main", exited(code)), spec=spec)
    assert (seen.phase, bool(seen.exits)) == (
        ("Running", False) if again else ("Failed" if code else "Succeeded", True)
    )


def test_a_pod_that_is_deleted_restarts_nothing():
    meta = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    found = observed_pod(
        a_pod(meta=meta, spec=rules("Restart"), phase="Running", containerStatuses=[status("main", exited(42))])
    )
    assert found is not None
    assert found[1].phase == "Failed"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"others": [status("watchdog", exited(42))]}, id="as the rule of another container says"),
        pytest.param(
            {"conditions": [{"type": "AllContainersRestarting", "status": "True"}]}, id="as the condition says"
        ),
        pytest.param({"initContainerStatuses": [status("watchdog", exited(42))]}, id="as a sidecar's rule says"),
    ],
)
def test_a_training_that_ends_while_the_whole_pod_restarts_has_not_ended(more: dict[str, Any]):
    others = more.pop("others", [])
    seen = view(status("main", exited(143)), *others, spec=rules("RestartAllContainers", name="watchdog") | {}, **more)
    assert (seen.phase, seen.exits) == ("Running", ())


def test_a_restart_in_place_is_counted_and_its_wait_is_told_with_the_last_end():
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    main = status("main", waits, restarts=2, last=exited(42, "Error", "no data"))
    seen = view(main, spec=policy("OnFailure"))
    assert (seen.phase, seen.ready, seen.restarts, seen.reason) == ("Running", False, 2, "CrashLoopBackOff")
    assert seen.message == "exited with 42 (Error): no data: back-off 10s"


@pytest.mark.parametrize("last_words", [True, False])
def test_what_a_kubelet_says_of_an_end_and_of_a_wait_alike_is_told_once(last_words: bool):
    waits = {"waiting": {"reason": "RunContainerError", "message": "no such file: train"}}
    main = status("main", waits, restarts=1, last=exited(128, "StartError", "no such file: train"))
    found = observed_pod(
        a_pod(spec=policy("OnFailure"), phase="Running", containerStatuses=[main]), last_words=last_words
    )
    assert found is not None
    assert found[1].message == "exited with 128 (StartError): no such file: train"


NOT_FOUND: Document = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}}
"""What a kubelet writes of every container of which it knows no end when a pod ends."""
CRASHES: Document = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(CRASHES, id="the next try waits"),
        pytest.param(exited(128, "StartError"), id="before the kubelet writes that"),
    ],
)
def test_a_command_that_can_never_be_started_does_not_run_though_the_kubelet_tries_again(state: Document):
    seen = view(status("main", state, restarts=2, last=exited(128, "StartError")), spec=policy("OnFailure"))
    assert (seen.phase, seen.ran, seen.exits) == ("Pending", False, ())


@pytest.mark.parametrize(
    ("pod", "ran"),
    [
        pytest.param({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, False, id="rejected by the kubelet"),
        pytest.param({"containerStatuses": [status("main", exited(128, "StartError"))]}, False, id="no such command"),
        pytest.param(
            {
                "phase": "Failed",
                "initContainerStatuses": [status("fetch", exited(7))],
                "containerStatuses": [status("main", {"waiting": {"reason": "PodInitializing"}})],
            },
            False,
            id="an init container failed",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "containerStatuses": [status("main", NOT_FOUND)]},
            False,
            id="evicted while its image was pulled",
        ),
        pytest.param({"phase": "Pending"}, False, id="it waits"),
        pytest.param({"containerStatuses": [status("main", exited(1))]}, True, id="it failed"),
        pytest.param({"containerStatuses": [status("main", RUNS)]}, True, id="it runs"),
        pytest.param(
            {"containerStatuses": [status("main", exited(128, "StartError"), restarts=1)]}, True, id="it ran before"
        ),
        pytest.param(
            {"containerStatuses": [status("main", CRASHES, restarts=2, last=exited(128, "StartError"))]},
            False,
            id="it could not be started at any try",
        ),
        pytest.param(
            {"containerStatuses": [status("main", NOT_FOUND, restarts=1, last=NOT_FOUND)]},
            True,
            id="it ran until its node lost it",
        ),
    ],
)
def test_a_training_that_never_ran_says_so(pod: Document, ran: bool):
    found = observed_pod(a_pod(**{"phase": "Running"} | pod))
    assert found is not None
    assert found[1].ran is ran


LOST: Document = {"terminated": {"exitCode": 255, "reason": "Unknown", "startedAt": "2030-01-01T00:00:00Z"}}
"""What containerd says, after its machine was restarted, of a container that ran."""
TARGETED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


@pytest.mark.parametrize(
    ("pod", "disruption"),
    [
        pytest.param({"containerStatuses": [status("main", LOST)]}, "ContainerStatusUnknown", id="containerd lost it"),
        pytest.param(
            {"containerStatuses": [status("main", NOT_FOUND, restarts=1)]},
            "ContainerStatusUnknown",
            id="its kubelet finds it nowhere",
        ),
        pytest.param(
            {"containerStatuses": [status("main", LOST)], "conditions": [TARGETED]},
            "DeletionByTaintManager",
            id="a condition says more",
        ),
        pytest.param(
            {"reason": "Evicted", "containerStatuses": [status("main", LOST)]}, "", id="evicted for its own limits"
        ),
        pytest.param({"containerStatuses": [status("main", NOT_FOUND)]}, "", id="it never ran"),
        pytest.param({"containerStatuses": [status("main", exited(255))]}, "", id="it exits with the same code"),
        pytest.param(
            {"containerStatuses": [status("side", LOST), status("main", exited(1))]}, "", id="a container beside it"
        ),
    ],
)
def test_an_end_that_its_node_does_not_know_is_no_failure_of_the_training(pod: Document, disruption: str):
    found = observed_pod(a_pod(**{"phase": "Failed", "spec": {"containers": [{"name": "main"}]}} | pod))
    assert found is not None
    assert (found[1].phase, found[1].disruption) == ("Failed", disruption)


PREPARING = status("main", {"waiting": {"reason": "PodInitializing"}})
SIDECAR: Document = {"initContainers": [{"name": "fetch", "restartPolicy": "Always"}], "containers": [{"name": "main"}]}


@pytest.mark.parametrize(
    ("init", "phase", "spec", "reason", "message"),
    [
        pytest.param(
            status("fetch", exited(7, "Error", "no such bucket")),
            "Failed",
            None,
            "InitContainerFailed",
            "init container fetch exited with 7 (Error): no such bucket",
            id="it failed",
        ),
        pytest.param(
            status("fetch", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
            "Pending",
            None,
            "ImagePullBackOff",
            "init container fetch: no such image",
            id="its image cannot be pulled",
        ),
        pytest.param(
            status(
                "fetch",
                {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                restarts=1,
                last=exited(7, "Error", "no such bucket"),
            ),
            "Pending",
            SIDECAR,
            "CrashLoopBackOff",
            "sidecar fetch exited with 7 (Error): no such bucket",
            id="a sidecar crashes before the training began",
        ),
        pytest.param(
            status("fetch", RUNS), "Pending", None, "PodInitializing", "init container fetch runs", id="it runs"
        ),
        pytest.param(
            status("fetch", exited(7, "Error", "no such bucket")),
            "Pending",
            {"initContainers": [{"name": "fetch", "restartPolicy": "OnFailure"}], "containers": [{"name": "main"}]},
            "CrashLoopBackOff",
            "init container fetch exited with 7 (Error): no such bucket",
            id="it failed, and the kubelet begins it again",
        ),
        pytest.param(
            status("fetch", {"waiting": {"reason": "PodInitializing"}}),
            "Pending",
            None,
            "PodInitializing",
            "init container fetch has not started",
            id="its image is pulled",
        ),
        pytest.param(
            status("fetch", RUNS) | {"started": False},
            "Pending",
            SIDECAR,
            "PodInitializing",
            "sidecar fetch runs, and has not started by its startupProbe or postStart hook",
            id="a sidecar's startup probe fails",
        ),
        pytest.param(
            status("fetch", RUNS) | {"started": True},
            "Pending",
            SIDECAR,
            "PodInitializing",
            "container main has not started",
            id="a sidecar runs",
        ),
        pytest.param(
            status("fetch", exited(0)),
            "Pending",
            None,
            "PodInitializing",
            "container main has not started",
            id="it has done its part",
        ),
    ],
)
def test_what_happens_in_init_containers_is_told_by_name(
    init: Any, phase: str, spec: Document | None, reason: str, message: str
):
    seen = view(PREPARING, phase=phase, spec=spec, initContainerStatuses=[init])
    assert (seen.phase, seen.reason, seen.message) == (phase, reason, message)


NO_IMAGE: Document = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}


@pytest.mark.parametrize(
    ("more", "reason", "message"),
    [
        pytest.param(
            {"initContainerStatuses": [status("fetch", CRASHES, restarts=3, last=exited(4, "Error", "no cert"))]},
            "CrashLoopBackOff",
            "sidecar fetch exited with 4 (Error): no cert",
            id="a sidecar that crashes",
        ),
        pytest.param(
            {"initContainerStatuses": [status("fetch", exited(4, "Error", "no cert"), restarts=3)]},
            "CrashLoopBackOff",
            "sidecar fetch exited with 4 (Error): no cert",
            id="a sidecar of which the kubelet tells the end alone",
        ),
        pytest.param(
            {"containerStatuses": [status("main", RUNS, ready=True), status("exporter", NO_IMAGE)]},
            "ErrImagePull",
            "container exporter: no such image",
            id="a container whose image is not there",
        ),
        pytest.param(
            {"initContainerStatuses": [status("fetch", RUNS) | {"started": False}]}, "", "", id="a sidecar that starts"
        ),
    ],
)
def test_what_does_not_run_beside_a_training_that_is_ready_is_told_and_hinders_nothing(
    more: Document, reason: str, message: str
):
    found = observed_pod(
        a_pod(**{"phase": "Running", "spec": SIDECAR, "containerStatuses": [status("main", RUNS, ready=True)]} | more)
    )
    assert found is not None
    seen = found[1]
    assert (seen.phase, seen.ready, seen.reason, seen.message) == ("Running", True, reason, message)


NO_CERT = exited(4, "Error", "no cert")
NO_COMMAND = exited(128, "StartError", "no such file: proxy")
RESTARTING: Document = {"containers": [{"name": "main"}, {"name": "side", "restartPolicy": "Always"}]}
FETCHING: Document = {"initContainers": [{"name": "side", "restartPolicy": "OnFailure"}], **policy(None)}


def crashing(spec: Document, where: str, end: Document, more: Document, waits: str, main: Any) -> set[tuple[str, str]]:
    """What is recorded of a pod while a container in it fails, waits, runs and fails again."""
    try_again = {"waiting": {"reason": waits, "message": "back-off 10s"}}
    steps = [
        status("side", end),
        status("side", try_again, last=end),
        status("side", RUNS, restarts=1, last=end) | more,
        status("side", end, restarts=1, last=end),
        status("side", CRASHES, restarts=1, last=end),
        status("side", RUNS, restarts=2, last=end) | more,
    ]
    seen = set[tuple[str, str]]()
    for step in steps:
        statuses: dict[str, Any] = {"containerStatuses": [main], "initContainerStatuses": []}
        statuses[where] = [*statuses[where], step]
        found = observed_pod(a_pod(spec=spec, phase="Running", **statuses))
        assert found is not None
        seen.add((repr(recorded_part(found[1])), found[1].message))
    return seen


@pytest.mark.parametrize("end", [NO_CERT, exited(0, "Completed"), NO_COMMAND])
@pytest.mark.parametrize("waits", ["CrashLoopBackOff", "RunContainerError"])
@pytest.mark.parametrize(
    ("spec", "where", "what"),
    [
        pytest.param(
            {"initContainers": [{"name": "side", "restartPolicy": "Always"}], "containers": [{"name": "main"}]},
            "initContainerStatuses",
            "sidecar side",
            id="a sidecar",
        ),
        pytest.param(RESTARTING, "containerStatuses", "container side", id="another container"),
    ],
)
def test_what_crashes_again_and_again_beside_a_training_is_recorded_once(
    spec: Document, where: str, what: str, waits: str, end: Document
):
    ((_, message),) = crashing(spec, where, end, {"started": True}, waits, status("main", RUNS, ready=True))
    assert message.startswith(f"{what} exited with {end['terminated']['exitCode']} ({end['terminated']['reason']})")


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        pytest.param(
            {"initContainers": [{"name": "side", "restartPolicy": "Always"}], "containers": [{"name": "main"}]},
            {"started": False},
            id="a sidecar that never starts by its probe",
        ),
        pytest.param(FETCHING, {}, id="an init container that is tried again"),
    ],
)
def test_what_crashes_again_and_again_before_a_training_is_recorded_once(spec: Document, more: Document):
    assert len(crashing(spec, "initContainerStatuses", NO_CERT, more, "CrashLoopBackOff", PREPARING)) == 1


def test_only_while_all_that_crashed_run_again_a_pod_says_how_often_they_were_restarted():
    main, last = status("main", RUNS, ready=True), NO_CERT
    proxy, exporter = (status(name, RUNS, restarts=count, last=last) for name, count in (("a", 1), ("b", 3)))
    assert view(main, proxy, exporter, spec=RESTARTING).runs_again == 4
    crashes = status("b", CRASHES, restarts=3, last=last)
    seen = view(main, proxy, crashes, spec=RESTARTING)
    assert (seen.runs_again, seen.message) == (0, "container b exited with 4 (Error): no cert")


def test_containers_that_began_again_together_with_the_training_have_not_crashed_beside_it():
    main = status("main", RUNS, ready=True, restarts=1, last=exited(143))
    side = status("side", RUNS, ready=True, restarts=1, last=exited(143))
    assert view(main, side, spec=RESTARTING).reason == ""
    assert view(main, side, spec=RESTARTING, initContainerStatuses=[side]).reason == ""


def test_an_init_container_that_has_done_its_part_and_runs_once_more_is_told_as_one_that_runs():
    again = status("side", RUNS, restarts=1, last=exited(0, "Completed"))
    seen = view(PREPARING, phase="Pending", initContainerStatuses=[again])
    assert (seen.reason, seen.message) == ("PodInitializing", "init container side runs")


def test_the_end_of_a_training_that_begins_again_is_told_where_the_kubelet_does_not_say_that_it_waits():
    seen = view(status("main", exited(42, "Error", "no data"), restarts=1), spec=rules("Restart"))
    assert (seen.phase, seen.ready) == ("Running", False)
    assert (seen.reason, seen.message) == ("Error", "exited with 42 (Error): no data")


def test_without_last_words_no_message_has_those_of_an_init_container():
    pod = a_pod(
        phase="Failed", containerStatuses=[PREPARING], initContainerStatuses=[status("fetch", exited(7, "", "secret"))]
    )
    found = observed_pod(pod, last_words=False)
    assert found is not None
    assert found[1].message == "init container fetch exited with 7"


def test_a_container_that_a_webhook_put_first_does_not_train():
    first = {"containers": [{"name": "proxy"}, {"name": "main"}]}
    statuses = [status("proxy", RUNS, ready=True), status("main", exited(5))]
    found = observed_pod(a_pod(spec=first, phase="Running", containerStatuses=statuses))
    assert found is not None
    assert (found[1].phase, found[1].exits[0].code) == ("Failed", 5)


def test_the_first_container_trains_in_a_pod_of_another_operator():
    first = {"containers": [{"name": "tensorflow"}, {"name": "side"}]}
    statuses = [status("side", RUNS, ready=True), status("tensorflow", exited(5))]
    meta = {"annotations": {CONTAINER: ""}}
    found = observed_pod(a_pod(meta=meta, spec=first, phase="Running", containerStatuses=statuses))
    assert found is not None
    assert (found[1].phase, found[1].lingers) == ("Failed", True)
