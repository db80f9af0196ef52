"""`muster replay --decisions`: this release decides every history of a release as that one did."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from muster.commands import application
from muster.redecide import Redecided, redecide
from muster.replay import decide_again
from services.scaler.core import Policy
from shared.eventlog import Stored
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.events.scaler import ScaleAccepted
from shared.job.events.status import JobCreated
from shared.job.events.watcher import TimePassed
from shared.job.naming import Uid
from shared.job.timers import SEAL, well
from shared.process.settings import DECIDING, Settings
from shared.telling.reading import line_of
from tests.histories.recorded import recordings
from tests.job.test_sealing import LIFE
from tests.kit.builders import a_running_job, scale_in
from tests.kit.histories import a_history, kinds_of, log_of, stored
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

DRAINS = ("10", "0", "3", "5", "20")
"""The drain times of the tests that made the recorded histories, the default first: these name no settings."""


@cache
def lives() -> list[tuple[str, list[Stored], Kinds]]:
    events = ((recording.name, recording.events()) for recording in recordings("0.1.0"))
    return [(name, life, kinds_of(life)) for name, life in events]


def again(events: Sequence[Stored], kinds: Kinds) -> Redecided:
    """The outcome with the drain time with which the least differs."""
    found = (redecide(events, kinds, {"MUSTER_DRAIN": drain}) for drain in DRAINS)
    best = next(found)
    while best.differences and (other := next(found, None)) is not None:
        best = min(best, other, key=lambda each: len(each.differences))
    return best


AWAY = "test_a_deadline_that_ran_out_while_the_watcher_stood_still_runs_afresh"
"""The history in which a service was away, and its timers late."""


def faults(name: str, outcome: Redecided) -> list[str]:
    """What is decided otherwise than in a recorded history."""
    found = [str(each) for each in (*outcome.differences, *outcome.obstacles)]
    found += [str(each) for each in outcome.late if name != AWAY]
    # A test that ends after a job's first event leaves that decision.
    return found + [repr(event) for event in outcome.next.values() if not isinstance(event, JobCreated)]


def test_no_decision_of_a_recorded_history_has_changed():
    outcomes = [(name, again(events, kinds)) for name, events, kinds in lives()]
    assert [fault for name, outcome in outcomes for fault in faults(name, outcome)] == []
    assert sum(outcome.same for _, outcome in outcomes) > 1_500


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        pytest.param("services.scaler.core.decide._below_minimum", lambda *_: None, id="no minimum"),
        pytest.param("services.status.core.decide.may_restart", lambda *_: False, id="no restart"),
        pytest.param("services.scheduler.core.decide.restart_delay", lambda *_: 0, id="no back-off"),
        pytest.param("shared.job.timing.retries.restart_delay", lambda *_: 3_600, id="a longer back-off"),
        pytest.param("shared.job.timing.WAITING_SECONDS", 100, id="a longer timer"),
        pytest.param("services.scheduler.core.decide.passed", lambda *_: False, id="a job that never expires"),
    ],
)
def test_a_rule_that_decides_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch, rule: str, other: Any):
    monkeypatch.setattr(rule, other)
    assert any(faults(name, again(events, kinds)) for name, events, kinds in lives())


def a_scaled_job(release: str = "", drain: int = 10) -> list[Stored]:
    """A job of which a worker leaves, as the log keeps it."""
    begun = [*a_running_job(workers=3), scale_in(count=1)]
    kept = log_of(begun)
    (accepted,) = redecide(kept, BUILT_IN).next.values()
    assert isinstance(accepted, ScaleAccepted), accepted
    kept.append(stored(a_history(begun), msgspec.structs.replace(accepted, because=1, release=release, drain=drain)))
    return kept


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param({}, "", id="the defaults"),
        pytest.param({"drain": "4.5"}, "MUSTER_DRAIN=5", id="whole seconds"),
        pytest.param({"drain": "0", "exec": "false"}, "MUSTER_DRAIN=0 MUSTER_EXEC=false", id="all of them"),
        pytest.param({"ssh": "false"}, "", id="one that does not decide"),
    ],
)
def test_a_decision_names_the_settings_that_decide_and_is_decided_again_with_them(given: dict[str, Any], told: str):
    settings = Settings(**given)
    assert settings.deciding == told
    drain = Policy.of(settings.drain, commands=settings.exec).drain_seconds
    assert redecide(a_scaled_job(f"0.1.0 {told}".rstrip(), drain), BUILT_IN).whole
    assert redecide(a_scaled_job(f"0.1.0 {told}".rstrip(), drain + 1), BUILT_IN).differences
    assert len(DECIDING) == len(Policy.__struct_fields__), "another setting decides: name it there"


def test_a_rule_that_breaks_is_counted_and_ends_nothing(monkeypatch: pytest.MonkeyPatch):
    log = a_scaled_job()
    monkeypatch.setattr("services.scaler.core.decide.answer_to", lambda *_: 1 / 0)
    assert redecide(log, BUILT_IN).obstacles == {"a broken invariant": 1}


def test_a_decision_with_the_settings_of_a_later_release_is_not_decided_again():
    found = redecide(a_scaled_job("9.9.9 MUSTER_PATIENCE=5"), BUILT_IN)
    assert found.obstacles == {"settings that do not decide here": 1}


@pytest.mark.parametrize("timer", [SEAL, well(Uid("uid-2"), 3)])
def test_a_timer_of_the_watcher_alone_is_no_difference(timer: str):
    gone = log_of([*LIFE, TimePassed(anchor=len(LIFE), timer=timer)])
    assert redecide(gone, BUILT_IN).whole


def cut(log: list[Stored]) -> list[Stored]:
    return log[-1:]


def changed(log: list[Stored]) -> list[Stored]:
    return [msgspec.structs.replace(log[0], time="2031-01-01T00:00:00.000Z"), *log[1:]]


def of_a_later_release(log: list[Stored]) -> list[Stored]:
    last = log[-1]
    later = msgspec.structs.replace(last, subject=last.subject + "Gently", body=last.body.replace(b"Accepted", b"X", 1))
    return [*log[:-1], later]


@pytest.mark.parametrize(
    ("change", "kinds", "obstacle"),
    [
        pytest.param(cut, BUILT_IN, "no basis", id="its beginning is missing"),
        pytest.param(changed, BUILT_IN, "the history is on hold", id="an event was changed"),
        pytest.param(of_a_later_release, BUILT_IN, "not readable", id="a later release decided"),
        pytest.param(list, Kinds([]), "the kind is not known here", id="a plug-in is missing"),
    ],
)
def test_a_decision_that_cannot_be_decided_again_is_counted_with_the_reason(
    change: Callable[[list[Stored]], list[Stored]], kinds: Kinds, obstacle: str
):
    found = redecide(change(a_scaled_job()), kinds)
    assert obstacle in found.obstacles
    assert not found.differences
    assert not found.whole


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        pytest.param([], 0, "different: 0", id="the same"),
        pytest.param(["--with", "MUSTER_DRAIN=5"], 1, "scaler recorded ScaleAccepted  drain=10", id="another drain"),
        pytest.param(["--with", "MUSTER_DRAIN=5", "--json"], 1, '"type":"ScaleAccepted"', id="as JSON"),
        pytest.param(["--with", "MUSTER_SSH=false"], 2, "MUSTER_DRAIN, MUSTER_EXEC", id="another setting"),
        pytest.param(["--with", "MUSTER_DRAIN=soon"], 2, "MUSTER_DRAIN: ", id="no duration"),
        pytest.param(["--verify"], 2, "needs one", id="two questions at once"),
    ],
)
def test_the_command_ends_with_what_it_found(tmp_path: Path, options: list[str], code: int, said: str):
    file = tmp_path / "history"
    file.write_text("".join(f"{line_of(event)}\n" for event in a_scaled_job()))
    ended = CliRunner().invoke(application(), ["replay", str(file), "--decisions", *options])
    assert (ended.exit_code, said in ended.output) == (code, True), ended.output


@pytest.mark.parametrize("text", [pytest.param("hello", id="no history"), pytest.param(None, id="no file")])
def test_a_file_without_a_history_is_bad_input(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "history").write_text(text)
    ended = CliRunner().invoke(application(), ["replay", str(tmp_path / "history"), "--decisions"])
    assert ended.exit_code == 2


def test_a_job_in_the_log_is_decided_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    journal = MemoryJournal()

    @asynccontextmanager
    async def open_log(_: Settings) -> AsyncIterator[MemoryEventLog]:
        journal.events[:] = a_scaled_job()
        yield MemoryEventLog(journal, user="admin")

    monkeypatch.setattr("muster.asking.open_log", open_log)
    decide_again(Path("trainingjob/resnet"), "team-a", Settings(), (), as_json=False, nats=True)
    assert "different: 0" in capsys.readouterr().out
