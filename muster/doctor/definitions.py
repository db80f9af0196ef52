"""Findings about definitions: whether they are installed, served, and readable for this release.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.crds import Verdict, compare
from muster.doctor.findings import Finding, fail, ok, unknown, warn
from shared.cluster import Resource, scope
from shared.frameworks.framework import Framework, resources_of

CHECK = "definitions.kinds"
UPGRADE = "`muster setup` upgrades the definitions, and removes nothing"
INSTALL = "`muster setup`, or `muster crds | kubectl apply -f -`, installs the definitions"

Document = Mapping[str, Any]


def wanted(kinds: Iterable[Framework]) -> list[Resource[Any]]:
    """The kinds of job, of request and of runtime whose definitions are examined, each once."""
    return list(dict.fromkeys(each for kind in kinds for each in resources_of(kind)))


def name(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}"


def compared(
    kinds: Sequence[Framework], found: Mapping[str, Document | None], ours: Iterable[Document]
) -> list[Finding]:
    """`found` has the definitions by name, None for a missing one; `ours` are this release's."""
    made = {each["metadata"]["name"]: each for each in ours}
    there = [kind for kind in kinds if found.get(name(kind.resource)) is not None]
    if not there:
        every = ", ".join(name(kind.resource) for kind in kinds)
        return [fail(CHECK, f"none of the kinds of job is installed: {every}", INSTALL)]
    findings = []
    if lacking := [name(each) for each in wanted(there) if found.get(name(each)) is None]:
        findings.append(fail(CHECK, f"not installed are {', '.join(lacking)}", INSTALL))
    for resource in wanted(there):
        definition = found.get(name(resource))
        if definition is not None:
            findings += _troubles(resource, definition, _versions(resource, there))
            findings += _compared(name(resource), definition, made.get(name(resource)))
    if not findings:
        findings.append(ok(CHECK, f"served are {', '.join(name(each) for each in wanted(there))}"))
    if absent := [name(kind.resource) for kind in kinds if kind not in there]:
        # An installation needs only the kinds that its users use.
        findings.append(ok("definitions.absent", f"not installed are {', '.join(absent)}"))
    return findings


def by_discovery(kinds: Sequence[Framework], served: Sequence[Resource[Any]]) -> list[Finding]:
    """The findings without the right to read definitions: whether the API server serves their kinds."""
    there = [kind for kind in kinds if kind.resource in served]
    if not there:
        return [fail(CHECK, "none of the kinds of job is served", INSTALL)]
    if lacking := [name(each) for each in wanted(there) if each not in served]:
        return [fail(CHECK, f"not served are {', '.join(lacking)}", INSTALL)]
    words = f"served are {', '.join(name(each) for each in wanted(there))}; you may not read the definitions themselves"
    return [unknown(CHECK, words, "ask a person who may get customresourcedefinitions")]


def _versions(resource: Resource[Any], kinds: Iterable[Framework]) -> set[str]:
    """The versions that this release can read."""
    for kind in kinds:
        if kind.resource == resource:
            return {resource.version, *(other.resource.version for other in kind.others)}
    return {resource.version}


def _troubles(resource: Resource[Any], definition: Document, readable: set[str]) -> list[Finding]:
    found = []
    served = {one["name"] for one in definition["spec"]["versions"] if one.get("served")}
    if not served & readable:
        words = f"{name(resource)} is served as {_list(served)}, and this release reads {_list(readable)}"
        found.append(fail("definitions.versions", words, INSTALL))
    conditions = (definition.get("status") or {}).get("conditions") or ()
    if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        why = "; ".join(one.get("message", "") for one in conditions if one["status"] == "False")
        words = f"{name(resource)} is not established: {why or 'the API server has not said why'}"
        found.append(fail("definitions.established", words, f"`kubectl describe crd {name(resource)}`"))
    return found


def _compared(which: str, definition: Document, made: Document | None) -> list[Finding]:
    """The findings about a definition that differs from this release's; the API server serves it."""
    if made is None:
        return []
    found = compare(definition, made)
    words = f"{which} is {found.verdict.value}" + (f": {found.why}" if found.why else "")
    match found.verdict:
        case Verdict.SAME | Verdict.MISSING:
            return []
        case Verdict.OLDER:
            return [warn("definitions.release", words, UPGRADE)]
        case Verdict.NEWER:
            return [warn("definitions.release", words, "use the command, and run the services, of that release")]
        case Verdict.DIFFERENT | Verdict.FOREIGN:
            remedy = "run `muster setup --take-crds` once no other operator needs it; its jobs are served until then"
            return [warn("definitions.release", words, remedy)]


def claims(annotations: Iterable[Mapping[str, str]], namespace: str, identity: str) -> Finding:
    """The finding about claims on this installation's scope: a `namespace`, or the whole cluster without one."""
    check, place = "services.installations", scope.in_words(scope.key(namespace))
    held, others = False, dict[str, str]()
    for each in annotations:
        held = held or scope.is_held(each, namespace, identity)
        others |= scope.conflicting(each, namespace, identity)
    if others:
        words = f"another installation claims the scope of this one, {place}: {scope.described(others)}"
        return fail(check, words, "run one of them; `muster setup --release` there gives its claim up")
    return ok(check, f"{place} is claimed by this log" if held else f"no installation claims {place}")


def _list(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions)) or "nothing"
