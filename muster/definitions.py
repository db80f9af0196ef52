"""Makes, upgrades and claims the definitions in a cluster.

`muster/crds.py` compares an installed definition with ours; `shared/cluster/scope.py` has the claims.
"""

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple

import typer

from muster.crds import Verdict, compare, manifests, merged
from shared.cluster import Cluster, Manifest, scope
from shared.cluster.kinds import DEFINITIONS
from shared.cluster.objects import Custom, plain
from shared.errors import Conflict, Refused, Transient, accepting
from shared.frameworks.kinds import Kinds
from shared.release import MARK, is_older, this_release

TRIES = 5
"""The number of tries to write a definition while other clients change it."""
SERVED_SECONDS = 30.0
"""Seconds until the API server serves a new definition; it usually takes less than one."""
LOOK_SECONDS = 0.1


class _Step(NamedTuple):
    """The change of one definition."""

    word: str
    """The outcome, in a word."""
    spec: dict[str, Any] | None = None
    """The new spec; None if it stays."""
    why: str = ""
    ours: bool = True
    """True if the definition is this release's afterwards."""


def step(found: Custom | None, ours: Manifest, *, take: bool) -> _Step:
    """The step of a set-up; with `take` a person allows it to replace the installed definition."""
    if found is None:
        return _Step("created", dict(ours["spec"]))
    verdict, why = compare(plain(found), ours)
    if verdict is Verdict.SAME:
        return _Step("unchanged")
    new = merged(plain(found), ours)
    if verdict is Verdict.OLDER:
        return _Step("upgraded", new, why)
    if take:
        return _Step("replaced", new, f"it was {verdict.value}: {why}")
    hint = "" if verdict is Verdict.NEWER else "; `muster setup --take-crds` puts ours there"
    return _Step("left alone", None, f"it is {verdict.value}: {why}{hint}", ours=False)


class Definitions:
    """The definitions of an installation's kinds, for one namespace or, without one, for the whole cluster."""

    def __init__(
        self, cluster: Cluster, kinds: Kinds, namespace: str, *, known: Kinds, check: bool, take: bool
    ) -> None:
        """`kinds` are the chosen ones of all `known`; claims in the definitions of the others are given up."""
        self._cluster = cluster
        # All set-ups use the same order, so that of two concurrent ones the first definition decides.
        self._ours = sorted(manifests(kinds), key=_name)
        names = {_name(ours) for ours in self._ours}
        self._rest = [each for each in sorted(manifests(known), key=_name) if _name(each) not in names]
        self._namespace = namespace
        self._scope = scope.in_words(scope.key(namespace))
        self._check = check
        self._take = take

    async def must_be_free(self, identity: str) -> None:
        """Raise `Refused(reason="ScopeTaken")` if another installation has claimed this scope."""
        for ours in self._ours:
            if (found := await self._get(ours)) is not None:
                self._must_be_free(found, identity)

    async def apply(self, identity: str, url: str, *, take_scope: bool) -> bool:
        """Make, upgrade and claim the definitions, and print a line for each; return True if anything changed.

        Without an `identity`, because the log does not exist yet, it can only check.
        """
        changes = False
        claimed: list[Manifest] = []
        for ours in self._ours:
            try:
                done, mine = await self._apply(ours, identity, url, take_scope=take_scope)
            except Refused as refusal:
                if refusal.reason == "ScopeTaken":
                    # Another set-up claimed the scope meanwhile: remove the claims of this one.
                    for each in claimed:
                        await self._release(each, identity, forced=False)
                raise
            claimed += [ours] if mine else []
            changes = changes or mine or done.spec is not None
            would = "would be " * (self._check and done.spec is not None)
            why = f" ({done.why})" if done.why else ""
            typer.echo(f"definition {ours['metadata']['name']} {would}{done.word}{why}", err=not done.ours)
        for each in self._rest:
            if await self._release(each, identity, forced=False):
                changes = True
                would = "would be " * self._check
                typer.echo(f"definition {_name(each)} {would}given up (its kind is not chosen)")
        would = "would be " * (self._check and bool(claimed))
        typer.echo(f"scope {self._scope} {would}claimed by the log {identity or 'that is not there yet'}")
        return changes

    async def release(self, identity: str, *, forced: bool) -> str:
        """Give the scope up if this log holds it, or `forced` if another does; return a sentence about it."""
        # Force applies only to the chosen kinds.
        given_up = [await self._release(ours, identity, forced=forced) for ours in self._ours]
        given_up += [await self._release(each, identity, forced=False) for each in self._rest]
        return f"scope {self._scope} {'given up' if any(given_up) else 'was not held'}"

    async def _get(self, ours: Manifest) -> Custom | None:
        return await self._cluster.get(DEFINITIONS, "", ours["metadata"]["name"])

    def _must_be_free(self, found: Custom, identity: str) -> None:
        if claims := scope.conflicting(found.metadata.annotations, self._namespace, identity):
            raise Refused(
                f"set up {self._scope}: {found.metadata.name}: {scope.why_excluded(claims, identity)}",
                reason="ScopeTaken",
            )

    async def _apply(self, ours: Manifest, identity: str, url: str, *, take_scope: bool) -> tuple[_Step, bool]:
        """The step that was taken, and True if the claim is new."""
        name = ours["metadata"]["name"]
        for _ in range(TRIES):
            found = await self._get(ours)
            if found is not None and not take_scope:
                self._must_be_free(found, identity)
            todo = step(found, ours, take=self._take)
            held = (found and found.metadata.annotations) or {}
            notes: dict[str, str | None] = dict.fromkeys(scope.conflicting(held, self._namespace, identity))
            if mine := not scope.is_held(held, self._namespace, identity):
                notes[scope.key(self._namespace)] = scope.holder(identity, url)
            if todo.ours and (is_older(held.get(MARK, ""), this_release()) or todo.word == "replaced"):
                notes[MARK] = this_release()
            if self._check or not (notes or todo.spec):
                return todo, mine
            # Another client may have written meanwhile, perhaps another set-up.
            with suppress(Conflict), accepting("AlreadyExists"):
                await self._write(found, ours, todo.spec, notes)
                await until_served(self._cluster, name)
                return todo, mine
        raise Transient(f"set up {name}: others write to it all the time")

    async def _write(
        self, found: Custom | None, ours: Manifest, spec: dict[str, Any] | None, notes: dict[str, str | None]
    ) -> None:
        name = ours["metadata"]["name"]
        if found is None:
            kept = {key: value for key, value in notes.items() if value is not None}
            await self._cluster.create(DEFINITIONS, "", {**ours, "metadata": {"name": name, "annotations": kept}})
            return
        metadata = {"resourceVersion": found.metadata.resource_version, "annotations": notes}
        patch = {"metadata": metadata} | ({"spec": spec} if spec is not None else {})
        await self._cluster.patch(DEFINITIONS, "", name, patch)

    async def _release(self, ours: Manifest, identity: str, *, forced: bool) -> bool:
        for _ in range(TRIES):
            found = await self._get(ours)
            key = scope.key(self._namespace)
            held = (found and found.metadata.annotations) or {}
            if found is None or key not in held:
                return False
            if not forced and not scope.is_held(held, self._namespace, identity):
                return False
            if self._check:
                return True
            try:
                await self._write(found, ours, None, {key: None})
            except Conflict:
                continue
            return True
        raise Transient(f"give up the scope in {ours['metadata']['name']}: others write to it all the time")


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


async def until_served(cluster: Cluster, name: str) -> None:
    """Wait until the API server serves the kind of this definition.  Raises `Transient` after `SERVED_SECONDS`."""
    try:
        async with asyncio.timeout(SERVED_SECONDS):
            while not is_served(await cluster.get(DEFINITIONS, "", name)):
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError as error:
        raise Transient(f"{name} is not served after {SERVED_SECONDS:.0f} s") from error


def is_served(definition: Custom | None) -> bool:
    """True if the API server serves the definition.  Raises `Refused` if another definition has one of its names."""
    conditions = ((definition and definition.status) or {}).get("conditions") or ()
    states = {one["type"]: one for one in conditions}
    names = states.get("NamesAccepted", {})
    if definition is not None and names.get("status") == "False":
        raise Refused(
            f"make {definition.metadata.name}: {names.get('message')}; remove the definition that has the name",
            reason="NameConflict",
        )
    return bool(states.get("Established", {}).get("status") == "True")
