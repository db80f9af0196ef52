"""Scripts of requests: their turn, their only run, and what their end does."""

import pytest

from services.scaler.core import Policy, commands
from services.scaler.core.commands import QUIETLY
from services.scaler.core.decide import decide
from services.scaler.core.effects import RunScript
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import (
    HostsPublished,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    ScriptFinished,
    ScriptStarted,
)
from shared.job.events.watcher import PodsGone, ScaleRequestGone, TimePassed
from shared.job.naming import Uid
from shared.job.reasons import EXEC_OFF
from shared.job.spec import ScaleKind
from shared.job.steps import Record, Step
from shared.job.timing import next_due
from tests.kit.builders import (
    R1,
    a_running_job,
    hosts_file,
    launcher,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_in,
    scaling_out,
    worker,
)
from tests.kit.stories import given, scaler

OUT = [*a_running_job(workers=2), *scaling_out(2, 3, script=True), pods(worker(2), worker(3))]
OUT_PUBLISHED = [*OUT, published(2, 0, 1, 2, 3, request=R1)]
OUT_SEEN = [*OUT_PUBLISHED, hosts_file(2), pods(launcher(version=30, hosts=2))]
IN = [*a_running_job(workers=3), *scaling_in(2, script=True)]
BY_KIND = pytest.mark.parametrize("before", [pytest.param(OUT_SEEN, id="out"), pytest.param(IN, id="in")])

STARTED = ScriptStarted(request=R1, timeout=60)
WELL = ScriptFinished(request=R1, exit_code=0)
NO_LAUNCHER = PodsGone(uids=(Uid("pod-launcher"),))
UNKNOWN = "ScriptOutcomeUnknown"


def accepted_at(before: list[AnyEvent]) -> int:
    return next(at for at, event in enumerate(before, 1) if type(event).__name__ == "ScaleAccepted")


def failed(reason: str, *, of: list[AnyEvent] = IN) -> Record:
    remains = "" if of is IN else "the new workers have joined and stay: 2 -> 4 workers"
    return Record(ScaleFailed(request=R1, reason=reason, remains=remains))


def running(kind: ScaleKind, hosts: str, started: int) -> RunScript:
    return RunScript(
        kind=kind,
        name=f"{kind.lower()}-{R1}",
        request=R1,
        pod="resnet-launcher",
        pod_uid=Uid("pod-launcher"),
        container="main",
        hosts=hosts,
        timeout=60,
        decision=started,
    )


def test_out_the_script_waits_until_the_launcher_has_the_files():
    assert Record(STARTED) not in given(*OUT_PUBLISHED).steps(scaler)
    given(*OUT_SEEN).then(scaler, Record(STARTED))


def test_in_the_script_comes_before_the_files():
    given(*IN).then(scaler, Record(STARTED))


def test_what_was_decided_is_run_for_the_workers_that_come():
    given(*OUT_SEEN, STARTED).then(
        scaler, running("ScaleOut", "resnet-worker-2:1,resnet-worker-3:1", len(OUT_SEEN) + 1)
    )


def test_what_was_decided_is_run_for_the_workers_that_leave_and_names_its_decision_so_that_it_happens_once():
    effect = running("ScaleIn", "resnet-worker-2:1", len(IN) + 1)
    given(*IN, STARTED).then(scaler, effect)
    assert effect.once == len(IN) + 1


def test_out_it_succeeds_after_its_script():
    given(*OUT_SEEN, STARTED, WELL).then(scaler, Record(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")))


def test_in_the_files_change_after_the_script():
    given(*IN, STARTED, WELL).then(scaler, Record(published(2, 0, 1, request=R1)))


@BY_KIND
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        pytest.param(ScriptFinished(request=R1, exit_code=3), "ScriptFailed", id="an exit code"),
        pytest.param(ScriptFinished(request=R1, reason="TimedOut"), "ScriptTimedOut", id="its time was up"),
        pytest.param(ScriptFinished(request=R1, reason="Forbidden"), "Forbidden", id="not allowed"),
        pytest.param(ScriptFinished(request=R1, reason="CannotExecute"), "CannotExecute", id="no shell"),
        pytest.param(ScriptFinished(request=R1, reason="NoLauncher"), "NoLauncher", id="another launcher"),
        pytest.param(ScriptFinished(request=R1, reason=UNKNOWN), UNKNOWN, id="a connection cut"),
        pytest.param(ScriptFinished(request=R1), UNKNOWN, id="no word of it"),
    ],
)
def test_a_script_that_did_not_end_well_fails_the_request_and_gives_nothing_back(
    before: list[AnyEvent], end: ScriptFinished, reason: str
):
    given(*before, STARTED, end).then(scaler, failed(reason, of=before))


@BY_KIND
def test_a_script_whose_end_is_unknown_is_not_run_again(before: list[AnyEvent]):
    (timer,) = [timer for timer in next_due(given(*before, STARTED).job) if timer.name == "ScriptDeadline"]
    assert (timer.anchor, timer.seconds, timer.since) == (len(before) + 1, 65, "")
    passed = TimePassed(anchor=timer.anchor, timer=timer.name)
    given(*before, STARTED, passed).then(scaler, failed(UNKNOWN, of=before))


@BY_KIND
def test_the_deadline_of_the_scaling_does_not_end_a_script(before: list[AnyEvent]):
    late = TimePassed(anchor=accepted_at(before), timer="ScalingDeadline")
    (effect,) = given(*before, STARTED, late).steps(scaler)
    assert isinstance(effect, RunScript)


def test_after_its_script_the_scaling_has_its_own_time_again():
    late = TimePassed(anchor=accepted_at(IN), timer="ScalingDeadline")
    story = [*IN, STARTED, late, WELL]
    given(*story).then(scaler, Record(published(2, 0, 1, request=R1)))
    (timer,) = next_due(given(*story).job)
    assert (timer.anchor, timer.name, timer.seconds) == (len(story), "ScalingDeadline", 60)


@BY_KIND
def test_17_no_launcher_is_an_error_and_no_success(before: list[AnyEvent]):
    given(*before, NO_LAUNCHER).then_among_others(scaler, failed("NoLauncher", of=before))


@BY_KIND
def test_a_launcher_that_is_asked_to_go_runs_no_script(before: list[AnyEvent]):
    given(*before, pods(launcher(version=90, hosts=2, deleting=True))).then_among_others(
        scaler, failed("NoLauncher", of=before)
    )


@pytest.mark.parametrize(
    ("story", "steps"),
    [
        pytest.param(
            [*IN, ScaleRequestGone(uid=R1)],
            [Record(ScaleCancelled(request=R1, reason="RequestDeleted"))],
            id="in, before its script",
        ),
        pytest.param(
            [*IN, STARTED, ScaleRequestGone(uid=R1)],
            [running("ScaleIn", "resnet-worker-2:1", len(IN) + 1)],
            id="in, while its script runs",
        ),
        pytest.param(
            [*IN, STARTED, ScaleRequestGone(uid=R1), WELL],
            [Record(ScaleCancelled(request=R1, reason="RequestDeleted"))],
            id="in, after its script",
        ),
        pytest.param(
            [*IN, STARTED, ScaleRequestGone(uid=R1), TimePassed(anchor=len(IN) + 1, timer="ScriptDeadline")],
            [failed(UNKNOWN)],
            id="in, and the end of its script is unknown",
        ),
        pytest.param(
            [*OUT_SEEN, ScaleRequestGone(uid=R1)],
            [Record(ScaleCancelled(request=R1, reason="RequestDeleted"))],
            id="out, before its script",
        ),
        pytest.param(
            [*OUT_SEEN, STARTED, ScaleRequestGone(uid=R1), WELL],
            [Record(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"))],
            id="out, after its script",
        ),
    ],
)
def test_a_request_that_is_deleted_ends(story: list[AnyEvent], steps: list[Step]):
    given(*story).then(scaler, *steps)


def test_a_failed_scale_in_keeps_its_workers_and_a_failed_scale_out_its_size():
    bad = ScriptFinished(request=R1, exit_code=1)
    into = given(*IN, STARTED, bad, ScaleFailed(request=R1, reason="ScriptFailed")).job
    assert (into.scaling.size, into.listed_workers, len(into.attempt.workers)) == (3, {0, 1, 2}, 3)
    out = given(*OUT_SEEN, STARTED, bad, ScaleFailed(request=R1, reason="ScriptFailed")).job
    assert (out.scaling.size, out.listed_workers, len(out.attempt.workers)) == (4, {0, 1, 2, 3}, 4)


def test_its_outcome_is_told_as_a_condition_and_never_its_output():
    ended = [*IN, STARTED, ScriptFinished(request=R1, exit_code=3), ScaleFailed(request=R1, reason="ScriptFailed")]
    told = {known.type: known for known in given(*ended).job.scaling.requests[R1].conditions}
    assert (told["ScriptExecuted"].status, told["ScriptExecuted"].reason) == (False, "ScriptFailed")
    assert told["ScaleFailed"].message == "the script exited with 3"
    well = {known.type: known for known in given(*IN, STARTED, WELL).job.scaling.requests[R1].conditions}
    assert well["ScriptExecuted"].status


def test_a_second_word_about_its_end_changes_nothing():
    story = given(*IN, STARTED, WELL, ScriptFinished(request=R1, exit_code=1))
    story.then(scaler, Record(HostsPublished(version=2, members=((0, 1),), request=R1)))


def test_a_script_of_a_request_that_waits_is_not_run():
    given(*OUT, scale_out(1, request=Uid("request-2"), script=True)).then(
        scaler, Record(published(2, 0, 1, 2, 3, request=R1))
    )


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        pytest.param([], [*QUIETLY, "sh", "/opt/grow.sh", "a:1,b:1"], id="no environment"),
        pytest.param(
            [("A", "a b; touch x"), ("B", "$(id) `id` \"'\n=,\\")],
            [*QUIETLY, "env", "A=a b; touch x", "B=$(id) `id` \"'\n=,\\", "sh", "/opt/grow.sh", "a:1,b:1"],
            id="values that a shell would read",
        ),
        pytest.param([("A", "")], [*QUIETLY, "env", "A=", "sh", "/opt/grow.sh", "a:1,b:1"], id="an empty value"),
    ],
)
def test_environment_arrives_byte_for_byte(environment: list[tuple[str, str]], arguments: list[str]):
    assert commands.script_command("/opt/grow.sh", environment, "a:1,b:1") == arguments


def test_an_end_that_is_told_after_its_request_ended_changes_nothing():
    over = [*IN, STARTED, ScaleFailed(request=R1, reason=UNKNOWN)]
    assert given(*over, WELL).job.scaling.requests == given(*over).job.scaling.requests


def test_a_scale_out_whose_script_failed_says_that_the_workers_stay():
    end = ScriptFinished(request=R1, exit_code=3)
    (step,) = given(*OUT_SEEN, STARTED, end).steps(scaler)
    assert isinstance(step, Record)
    job = given(*OUT_SEEN, STARTED, end, step.event).job
    told = "the script exited with 3; the new workers have joined and stay: 2 -> 4 workers"
    assert job.scaling.requests[R1].conditions[-1].message == told
    (of_job,) = [known for known in job.status.conditions if known.type == "ScaleFailed"]
    assert of_job.message == f"ScaleOut scaleout-{R1}: ScriptFailed: {told}"


@pytest.mark.parametrize("asked", [scale_out(1, script=True), scale_in(1, script=True)], ids=lambda asked: asked.kind)
def test_a_request_with_a_script_is_rejected_where_commands_are_switched_off(asked: AnyEvent):
    given(*a_running_job(workers=2), asked).then(
        lambda job: decide(job, Policy(commands=False)), Record(ScaleRejected(request=R1, reason=EXEC_OFF))
    )


def test_a_request_without_a_script_is_accepted_where_commands_are_switched_off():
    story = given(*a_running_job(workers=2), scale_out(1))
    assert story.steps(lambda job: decide(job, Policy(commands=False))) == story.steps(scaler)


@pytest.mark.parametrize(
    ("code", "hosts", "path"),
    [
        pytest.param(2, True, True, id="dash ends so at a read-only file, and without the script"),
        pytest.param(1, True, False, id="bash and busybox at a read-only file"),
        pytest.param(127, False, True, id="bash without the script"),
        pytest.param(3, False, False, id="a code of the script's own"),
    ],
)
def test_a_script_that_failed_is_told_what_its_code_may_mean(code: int, hosts: bool, path: bool):
    ended = [*IN, STARTED, ScriptFinished(request=R1, exit_code=code), ScaleFailed(request=R1, reason="ScriptFailed")]
    request = given(*ended).job.scaling.requests[R1]
    message = next(known.message for known in request.conditions if known.type == "ScaleFailed")
    assert message.startswith(f"the script exited with {code}")
    assert ("if it writes /etc/edl/hostfile, leave that out" in message) is hosts
    assert ("its `script` is the path of a file in the launcher" in message) is path
