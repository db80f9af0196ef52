"""The catalogue of events, made from the unions of each author's file: facts, decisions, and who may write which."""

from typing import get_args

from shared.job.events import audit, scaler, scheduler, status, watcher
from shared.job.events.event import Author, Event
from shared.job.events.refused import EffectRefused
from shared.job.events.setup import EventDisowned, LogCreated

Fact = LogCreated | EventDisowned | watcher.Fact | scheduler.Fact | scaler.Fact | audit.Fact | EffectRefused
Decision = scheduler.Decision | scaler.Decision | status.Decision
AnyEvent = Fact | Decision

_BY_AUTHOR: dict[Author, tuple[type[Event], ...]] = {
    "setup": (LogCreated, EventDisowned),
    "watcher": get_args(watcher.Fact),
    "scheduler": (*get_args(scheduler.Fact | scheduler.Decision), EffectRefused),
    "scaler": (*get_args(scaler.Fact | scaler.Decision), EffectRefused),
    "status": (*get_args(status.Decision), EffectRefused),
    "audit": (audit.ChangeAttributed,),
}

AUTHORS: dict[type[Event], frozenset[Author]] = {
    kind: frozenset(author for author, kinds in _BY_AUTHOR.items() if kind in kinds) for kind in get_args(AnyEvent)
}
"""The authors of each type.  NATS enforces the author in the subject, the fold that this author may write the type."""

FACTS: frozenset[type[Event]] = frozenset(get_args(Fact))
"""The types with subjects under `facts.`; all others are decisions, under `jobs.`"""

FOR_PEOPLE = frozenset({str(audit.ChangeAttributed.__struct_config__.tag)})
"""The types by which no service acts: one that cannot be read holds no job."""
