"""What is under way: the machine's memory of effects, so that a wake-up does not repeat them at once.

Forgetting it costs calls, never correctness: effects are safe to repeat.
"""

import msgspec

from shared.job.steps import Effect
from shared.job.timing import back_off

FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 30.0
LEAST_REST_SECONDS = 0.1
LONGEST_REST_SECONDS = 1.0
REST = 5.0
"""A target rests so many times as long as its last change took, so that a busy API server is asked less."""


class Wish(msgspec.Struct):
    """One effect on one target, and how far it got."""

    effect: Effect
    begun: float = 0.0
    """The loop's time."""
    running: bool = True
    not_before: float = 0.0
    """The loop's time before which it is not carried out again."""
    not_below: int = 0
    """The sequence that has to be folded before it is carried out again: that of its recorded refusal."""
    rests_until: float = 0.0
    """The loop's time before which only what is urgent changes its target again."""
    tries: int = 0
    """Transient failures in a row."""
    refusals: int = 0
    """Refusals in a row."""


class Wishes:
    """The wishes of one job, by target."""

    def __init__(self) -> None:
        self._by_target: dict[str, Wish] = {}

    def __len__(self) -> int:
        return len(self._by_target)

    def due(self, wanted: list[Effect], now: float, sequence: int) -> list[Wish]:
        """Those of `wanted` to carry out now, marked as running; what is no longer wanted is forgotten."""
        targets = {effect.target: effect for effect in wanted}
        for target in [
            target for target, wish in self._by_target.items() if target not in targets and not wish.running
        ]:
            del self._by_target[target]
        return [wish for effect in targets.values() if (wish := self._begin(effect, now, sequence)) is not None]

    def _begin(self, effect: Effect, now: float, sequence: int) -> Wish | None:
        known = self._by_target.get(effect.target)
        if known is not None:
            if known.running or sequence < known.not_below:
                return None
            if now < known.rests_until and not effect.urgent(known.effect):
                return None
            # After a transient failure any wish on that target waits; after success only the same one.
            if now < known.not_before and (known.tries or known.effect == effect):
                return None
        wish = Wish(effect, begun=now)
        if known is not None:
            wish.tries, wish.refusals = known.tries, known.refusals
        self._by_target[effect.target] = wish
        return wish


def succeeded(wish: Wish, now: float) -> float:
    """It is done; the same wish is not repeated until its outcome had time to be seen.

    Return the seconds for which its target rests.
    """
    took = (now - wish.begun) * REST
    rest = min(max(took, LEAST_REST_SECONDS), LONGEST_REST_SECONDS) if wish.effect.rests else 0.0
    wish.running, wish.tries, wish.refusals, wish.not_before = False, 0, 0, now + wish.effect.settle
    wish.rests_until = now + rest
    return rest


def failed(wish: Wish, now: float, jitter: float, retry_after: float | None) -> float:
    """It may work later; return the seconds until then.  `jitter` is between 0 and 1."""
    delay = min(FIRST_RETRY_SECONDS * 1.6**wish.tries, LONGEST_RETRY_SECONDS) * (0.5 + jitter)
    delay = max(delay, retry_after or 0.0)
    wish.running, wish.tries, wish.not_before = False, min(wish.tries + 1, 16), now + delay
    return delay


def refused(wish: Wish, now: float, sequence: int) -> float:
    """It was refused, and the log says so at `sequence`: the decider's turn.

    Return the seconds until the same wish is carried out again, should the decider insist.
    """
    wish.running, wish.tries, wish.not_below = False, 0, sequence
    wish.refusals += 1
    delay = float(back_off(wish.refusals))
    wish.not_before = now + delay
    return delay
