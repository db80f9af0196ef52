"""A cache that a test shows to the watcher, and the histories that come of it.

Only the pure part: `seen` is what `observe` says now, `settle` folds it as the log would until nothing is left to say.
"""

import msgspec

from services.watcher.core.cache import Cache
from services.watcher.core.observe import Observed, observe
from services.watcher.core.observed import ObservedJob, ObservedRequest
from services.watcher.core.questions import UNANSWERED, Answers, Confirm, Presence
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.catalog import AnyEvent, Fact
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import JobSpec, Problem, ScaleSpec
from shared.job.state import Job
from shared.job.views import ChildView, PodView
from tests.kit.builders import a_running_job, a_spec, launcher, observed, worker
from tests.kit.histories import KEY, stored

WAITING = JobKey(KEY.namespace, KEY.name, NO_UID)
MOST_FACTS = 200
"""A watcher that records more of one resource repeats itself for ever."""

replace = msgspec.structs.replace


def a_resource(
    spec: JobSpec | None = None,
    *,
    version: int = 5,
    generation: int = 1,
    problems: tuple[Problem, ...] = (),
    deleting: bool = False,
    orphan: bool = False,
    finalizers: tuple[str, ...] = (),
    key: JobKey = KEY,
) -> ObservedJob:
    resource = observed(spec or a_spec(), generation=generation)
    return ObservedJob(
        key=key,
        observed=replace(resource, version=version, problems=problems, spec=None if problems else resource.spec),
        deleting=deleting,
        orphan=orphan,
        finalizers=finalizers,
        log="",
        head=None,
        accept="",
    )


def a_request(
    name: str, *, created: str = "2030-01-01T00:00:00Z", version: int = 9, owner: str = ""
) -> ObservedRequest:
    return ObservedRequest(
        kind="ScaleOut",
        namespace=KEY.namespace,
        name=name,
        uid=Uid(name),
        version=version,
        created=created,
        job=KEY.name,
        owner=Uid(owner),
        spec=ScaleSpec(kind="ScaleOut", job=KEY.name, count=1),
        problems=(),
    )


class Watching:
    """What there is, and what the log knows of it."""

    def __init__(self, *events: AnyEvent, version: int = 1_000) -> None:
        """A job with a history of `events`; every resource was listed, up to `version`, and nothing found."""
        self.cache = Cache()
        self.answers = UNANSWERED
        self.histories = Histories()
        self.listed(version)
        for event in events:
            self.fold(KEY, event)

    def listed(self, version: int) -> None:
        self.cache.held_back = False
        for listing in self.cache.listings():
            listing.version, listing.blind = version, False

    def restarted(self, version: int = 1_000) -> None:
        """Another process, which saw nothing yet and lists everything anew."""
        self.cache = Cache()
        self.listed(version)

    def job(self, key: JobKey = KEY) -> Job:
        return self.histories[key].job

    def history(self, key: JobKey = KEY) -> History:
        return self.histories[key]

    def fold(self, key: JobKey, event: AnyEvent) -> None:
        history = self.histories[key]
        self.histories.fold(stored(history, event, sequence=self.histories.position + 1))
        assert not history.held, history.held

    def show(self, resource: ObservedJob | None) -> None:
        self.cache.set_job(TRAININGJOBS, (KEY.namespace, KEY.name), resource)

    def show_pods(self, *views: PodView, key: JobKey = KEY) -> None:
        for view in views:
            self.cache.set_pod((key.namespace, view.name), (key, view))

    def take_pods(self, *names: str) -> None:
        for name in names:
            self.cache.set_pod((KEY.namespace, name), None)

    def show_child(self, child: ChildView, key: JobKey = KEY) -> None:
        self.cache.set_child(child.kind, (KEY.namespace, child.name), (key, child))

    def show_requests(self, *requests: ObservedRequest) -> None:
        for request in requests:
            self.cache.set_request(request.kind, (KEY.namespace, request.name), request)

    def take_request(self, name: str) -> None:
        self.cache.set_request("ScaleOut", (KEY.namespace, name), None)

    def look(self, key: JobKey = KEY) -> Observed:
        return observe(self.job(key), self.cache, self.answers, self.histories)

    def seen(self, key: JobKey = KEY) -> list[Fact]:
        return [*self.look(key).facts]

    def answer(self, *, there: bool) -> None:
        """The GET of the job answers, if it is asked now."""
        for question in self.look().questions:
            if isinstance(question, Confirm):
                self.answers = Answers(presence=(question, Presence(there=there)))

    def settle(self, *keys: JobKey) -> list[Fact]:
        """All that is said, by turns, until nothing is left."""
        told: list[Fact] = []
        while True:
            before = len(told)
            for key in keys or (KEY,):
                if facts := self.seen(key):
                    self.fold(key, facts[0])
                    told.append(facts[0])
            if len(told) == before:
                return told
            assert len(told) < MOST_FACTS, f"the watcher repeats itself: {told[-3:]}"


def watching_a_running_job(*more: AnyEvent, version: int = 1_000) -> Watching:
    """A running job of two workers to which this happened since, and a cache that shows all that its log knows of it.

    Of requests it shows none.
    """
    watching = Watching(*a_running_job(workers=2), *more, version=version)
    watching.show(a_resource(version=1))
    watching.show_pods(worker(0), worker(1), launcher())
    for child in watching.job().objects.children.values():
        watching.show_child(child)
    return watching
