"""Every document is accepted and goes through the core, or is refused for a stated reason that names its field."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random

import msgspec
import pytest

from services.watcher.core.observed import ObservedJob, ObservedRequest
from services.watcher.core.views import MOST_PROBLEMS, observed_job, observed_request
from shared.cluster.decoding import read_object
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.eventlog import MAX_BODY
from shared.frameworks.runtimes import joined
from shared.job.spec import Problem
from tests.crds.admission import refusals, schema
from tests.frameworks.full import SECRET
from tests.input.generated import document_of, hostile_document
from tests.input.kinds import KINDS, Kind
from tests.input.life import Life
from tests.kit.trainer import A_RUNTIME

DOCUMENTS = int(os.environ.get("MUSTER_DOCUMENTS", "100"))
"""Of each kind, in each of the two tests."""
FIRST = int(os.environ.get("MUSTER_FIRST_DOCUMENT", "0"))
"""The seed of the first; that of a failure is told."""
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)

BEYOND_SCHEMAS: Mapping[str, str] = {
    "AboveMaximum": "the rule spares a resource that has a status: it is older than the rule",
    "BelowMinimum": "a maximum stands for a minimum that is not there",
    "FieldNotSupported": "the field of an earlier version is declared, so that it is refused and not dropped",
    "InitializerNotSupported": "the field is kept for people who move on, and no initializer runs",
    "InvalidEnvironment": "characters that no process takes in its environment, and variables that a program runs",
    "InvalidName": "how long a name may be depends on roles and numbers; the rule spares a resource that has a status",
    "InvalidPath": "a pattern of the definition cannot follow dots and slashes to the folder that a path means",
    "InvalidRendezvous": "the form of an address, and of what is written beside it",
    "InvalidScript": "a shell would take the path for an option; a file that shows the request itself",
    "ManagedByAnother": "the API server admits the job for its other controller",
    "NoReplicas": "the sum over roles; the rule spares a resource that has a status",
    "NoScheduler": "the role is there, with no replicas, which a definition takes for every role",
    "ReplicatedJobNotFound": "the names are those of another resource, the runtime",
    "ReservedVariable": "the names depend on the policy of the runtime",
    "TorchTuneNotSupported": "a command of two words is one as any other to a definition",
    "TrainingRuntimeNotSupported": "as upstream: a kind of another package may come to be one",
    "UnknownReplicaType": "this operator's own definition takes any word",
    "UnsupportedChief": "which role may be the chief depends on the roles",
}
"""Reasons for which a document is refused that its definition allows, with why the definition cannot say so."""

TOO_DEEP = ("InvalidValue", "spec.runtimePatches")
"""Reason and field of a patch with more levels than are merged; a definition bounds no depth."""

Seen = ObservedJob | ObservedRequest


def read(kind: Kind, raw: bytes) -> tuple[Custom, Seen]:
    """As the watcher gets it from the API server, and what the watcher keeps of it."""
    manifest = read_object(kind.resource, raw)
    if kind.framework is None:
        seen: Seen = observed_request(kind.resource.kind, manifest)  # type: ignore[arg-type]
    else:
        kind.framework.ours(manifest)
        if kind.framework.runtimes:
            manifest = joined(manifest, A_RUNTIME)
        seen = observed_job(kind.framework, manifest)
    told = msgspec.json.encode(seen.observed if isinstance(seen, ObservedJob) else [seen.spec, seen.problems])
    assert len(told) < MAX_BODY, f"{len(told)} bytes"
    return manifest, seen


def problems_of(seen: Seen) -> tuple[Problem, ...]:
    """All checked: each has a reason, a field, and a sentence that repeats no secret."""
    problems = seen.problems if isinstance(seen, ObservedRequest) else seen.observed.problems
    spec = seen.spec if isinstance(seen, ObservedRequest) else seen.observed.spec
    assert (spec is None) == bool(problems)
    assert len(problems) <= MOST_PROBLEMS
    for problem in problems:
        assert problem.reason.isalpha()
        assert problem.reason[0].isupper()
        assert problem.field
        assert problem.message
    assert SECRET not in msgspec.json.encode(problems).decode(), problems
    return problems


def play(kind: Kind, manifest: Custom, seen: Seen) -> Life | None:
    """The life of a job; a request waits for one."""
    if kind.framework is None or not isinstance(seen, ObservedJob) or not seen.key.name:
        return None
    life = Life(kind.framework, manifest, seen, schema(kind.full))
    life.live()
    return life


@contextmanager
def told_with(seed: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"MUSTER_FIRST_DOCUMENT={seed} MUSTER_DOCUMENTS=1 repeats it")
        raise


@each_kind
def test_what_a_definition_allows_gets_pods_or_is_refused_for_a_stated_reason(kind: Kind):
    pods = refused = 0
    for seed in range(FIRST, FIRST + DOCUMENTS):
        with told_with(seed):
            document = document_of(kind, Random(seed))
            manifest, seen = read(kind, msgspec.json.encode(document))
            problems = problems_of(seen)
            unstated = [
                known
                for known in problems
                if ".template" not in known.field
                and known.reason not in BEYOND_SCHEMAS
                and (known.reason, known.field) != TOO_DEEP
            ]
            # Rules are evaluated slowly, so only where the answer counts.
            assert not unstated or refusals(document), unstated
            life = play(kind, manifest, seen)
            refused += bool(problems)
            pods += life is not None and bool(life.pods)
    print(f"{kind}: {DOCUMENTS} documents, {refused} refused, {pods} got pods")
    if DOCUMENTS >= 50:
        assert refused
        assert pods or kind.framework is None


@each_kind
def test_what_no_definition_allows_is_played_or_refused_with_its_field(kind: Kind):
    for seed in range(FIRST, FIRST + DOCUMENTS):
        with told_with(seed):
            try:
                manifest, seen = read(kind, hostile_document(kind, Random(seed)))
            except Refused:
                continue
            problems_of(seen)
            play(kind, manifest, seen)


@each_kind
def test_the_full_document_of_a_kind_gets_pods(kind: Kind):
    assert refusals(kind.full) == []
    manifest, seen = read(kind, msgspec.json.encode(kind.full))
    assert problems_of(seen) == ()
    life = play(kind, manifest, seen)
    assert life is None or (life.pods and life.rendered)
