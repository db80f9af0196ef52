"""Bad weather for one watcher, drawn from a seed: plain data, that ends by itself."""

import random

import msgspec

from services.watcher.watches import LISTS_THAT_WENT_BACK
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.faultproxy import ANSWERS, DISTURBANCES, Fault, Plan, Spell, Trouble, Verb

WATCHED = (TRAININGJOBS, SCALEINS, SCALEOUTS, PODS, SERVICES, CONFIGMAPS, SECRETS)
PLURALS = tuple(resource.plural for resource in WATCHED)

_LIST = (*ANSWERS, "reset", "late", *["old"] * 4)
_WATCH = (*ANSWERS, "reset", "late", *DISTURBANCES * 3)


class Incident(msgspec.Struct, frozen=True):
    """What happens to the process itself."""

    what: str
    """`pause` stops it for `seconds`, `kill` starts it again at once."""
    begin: float
    """Seconds after the weather began."""
    seconds: float = 0.0


class Weather(msgspec.Struct, frozen=True):
    seed: int
    plan: Plan
    incidents: tuple[Incident, ...] = ()


def weather(seed: int) -> Weather:
    """Faults for the lists, watches and gets of every kind, perhaps a spell, perhaps an incident."""
    chance = random.Random(seed)
    faults: dict[tuple[Verb, str], tuple[Fault, ...]] = {}
    for plural in PLURALS:
        lists = _some(chance, _LIST, chance.randint(0, 3))
        # An answer that stays old is that of a restored store, by all that anybody can see.
        stays_old = len(lists) >= LISTS_THAT_WENT_BACK and all(fault.what == "old" for fault in lists)
        faults["list", plural] = lists[1:] if stays_old else lists
        faults["watch", plural] = _some(chance, _WATCH, chance.randint(2, 6))
    faults["get", TRAININGJOBS.plural] = _some(chance, (*ANSWERS, "late"), chance.randint(0, 6))
    spells = [
        Spell(_spelled(chance), _seconds(chance, 1, 6), _seconds(chance, 1, 4), chance.choice(("", *PLURALS)))
        for _ in range(chance.randint(0, 2))
    ]
    incidents = [Incident("kill", _seconds(chance, 2, 9)) for _ in range(chance.randint(0, 2))]
    if chance.random() < 0.3:
        incidents.append(Incident("pause", _seconds(chance, 1, 3), _seconds(chance, 5, 7)))
    return Weather(seed, Plan(faults, tuple(spells)), tuple(sorted(incidents, key=lambda incident: incident.begin)))


def _spelled(chance: random.Random) -> Trouble:
    whats: tuple[Trouble, ...] = ("unavailable", "throttled", "unauthorized", "expired", "reset", "forbidden")
    return chance.choice((*whats, "not served"))


def _some(chance: random.Random, kinds: tuple[str, ...], count: int) -> tuple[Fault, ...]:
    drawn = [(chance.choice(kinds), chance.randint(0, 12), _seconds(chance, 0.1, 3)) for _ in range(count)]
    return tuple(msgspec.convert({"what": what, "after": after, "seconds": s}, Fault) for what, after, s in drawn)


def _seconds(chance: random.Random, least: float, most: float) -> float:
    return round(chance.uniform(least, most), 1)
