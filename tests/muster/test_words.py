"""Events in one line each: plain words for every type of event, whatever its fields hold."""

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.watcher import PodsGone, PodsObserved
from shared.job.naming import Uid
from shared.job.spec import WORKER
from shared.job.views import Slots
from shared.telling.causes.sentences import sentence
from shared.telling.words import details
from tests.kit.builders import a_running_job, exited, scale_in, scale_out, worker
from tests.kit.stories import given


def filled(kind: Any) -> Any:
    """A value of a type with something in every field."""
    origin, of = get_origin(kind), get_args(kind)
    if origin is Literal:
        return of[-1]
    if origin in (Union, types.UnionType):
        return filled(next(each for each in of if each is not type(None)))
    if origin is tuple:
        return tuple(filled(each) for each in of if each is not Ellipsis)
    if origin is Mapping:
        return {filled(of[0]): filled(of[1])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return kind(**{field.name: filled(hints[field.name]) for field in msgspec.structs.fields(kind)})
    kind = getattr(kind, "__supertype__", kind)
    return {str: "Word", int: 3, float: 0.5, bool: True}[kind]


@pytest.mark.parametrize("kind", get_args(AnyEvent), ids=lambda kind: str(kind.__name__))
def test_every_type_of_event_is_said_in_plain_words(kind: Any):
    event = filled(kind)
    said = details(event)
    assert not any(sign in said for sign in "'[{<\""), said
    names = {each.__name__ for each in _structs(event)}
    assert not any(f"{name}(" in said for name in names), said


@pytest.mark.parametrize("kind", get_args(AnyEvent), ids=lambda kind: str(kind.__name__))
def test_every_type_of_event_has_a_sentence(kind: Any):
    job = given(*a_running_job()).job
    said = sentence(filled(kind), job, job)
    assert said.strip()
    assert not any(sign in said for sign in "'[{<\""), said


def _structs(value: Any) -> set[type]:
    if isinstance(value, msgspec.Struct):
        inner = (_structs(getattr(value, name)) for name in value.__struct_fields__)
        return {type(value)}.union(*inner)
    return set().union(*map(_structs, value)) if isinstance(value, tuple) else set()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        pytest.param(a_running_job()[0], "TrainingJob  generation=1  1 launcher, 2 worker", id="what is asked"),
        pytest.param(a_running_job()[2], "worker 0-1  JobCreated", id="slots"),
        pytest.param(scale_out(2), "ScaleOut  scaleout-request-1  owned by its job  resnet by 2", id="more"),
        pytest.param(
            scale_in(names=("resnet-worker-1",)),
            "ScaleIn  scalein-request-1  owned by its job  resnet without worker 1",
            id="without some",
        ),
        pytest.param(JobRestarted(attempt=1, reason="BelowMinimum"), "attempt 2  BelowMinimum", id="an attempt"),
        pytest.param(
            JobRestarted(attempt=2, counted=False, reason="Resumed"),
            "attempt 3  not counted  Resumed",
            id="not counted",
        ),
        pytest.param(
            SlotsAssigned(slots=(Slots(1, WORKER, ((0, 3),)),), reason="JobRestarted"),
            "worker 0-3 of attempt 2  JobRestarted",
            id="slots of a later attempt",
        ),
        pytest.param(
            PodsObserved(pods=(worker(1, phase="Failed", exits=exited(137)),)), "worker-1 Failed(137)", id="an exit"
        ),
        pytest.param(PodsGone(uids=(Uid("a"), Uid("b"))), "2 pods", id="pods that are gone"),
    ],
)
def test_an_event_is_its_fields_in_short(event: AnyEvent, said: str):
    assert details(event) == said
