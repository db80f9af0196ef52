"""The waits of a job: before pods and attempts that failed begin again, and before refused effects are tried again.

Pure.  Both double with each failure: those of pods and attempts up to five minutes, those of effects up to one.
"""

import re

from shared.backoff import doubled
from shared.job.events.refused import EffectRefused
from shared.job.reasons import NAME_HELD
from shared.job.state import Job, Refusal, refusal_key
from shared.job.views import each

_WORD = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[0-9]+")

FIRST_START_SECONDS = 10
"""The kubelet's first wait for containers that crash; pods and attempts that failed begin again after it."""

FIRST_EFFECT_SECONDS = 1
"""The wait after the first refusal of an effect."""

LONGEST_SECONDS = 300
"""The kubelet's longest wait for containers that crash."""

LONGEST_EFFECT_SECONDS = 60
"""The longest wait of a refused effect: once a policy or a quota is changed, jobs begin within a minute."""


def before_start(failures: int) -> int:
    """Seconds before the next pod or attempt after so many failures: 0, then 10, 20, ... 300."""
    return doubled(FIRST_START_SECONDS, failures, LONGEST_SECONDS)


def before_effect(refusals: int) -> int:
    """Seconds before the next try after so many refusals in a row: 1, 2, 4, ... 60."""
    return doubled(FIRST_EFFECT_SECONDS, refusals, LONGEST_EFFECT_SECONDS)


def told_already(job: Job, event: EffectRefused) -> bool:
    """True if a refusal after the longest back-off is the one that the job knows, in the same words.

    It needs no event: its service tries the effect again after the longest back-off.  Other numbers
    are no news: those of a quota change whenever another pod begins.
    """
    known = job.refusals.get(refusal_key(event.effect, event.reason))
    if known is None:
        return False
    if event.reason == NAME_HELD:
        return _knows_names(job, known, event)
    if before_effect(known.count) < LONGEST_EFFECT_SECONDS:
        return False
    told = (known.reason, known.field, known.permanent, _NUMBER.sub("0", known.message))
    return told == (event.reason, event.field, event.permanent, _NUMBER.sub("0", event.message))


def _knows_names(job: Job, known: Refusal, event: EffectRefused) -> bool:
    """True if the job knows of these names that are held, and its message speaks of one that still is."""
    if not event.slots:
        return known.message == event.message
    spoken = set(_WORD.findall(known.message))
    return each(event.slots) <= known.slots and any(job.pod_name(slot) in spoken for slot in known.slots)
