"""What was told so far of a job: the links that may be causes of what comes.  Pure."""

from muster.causes.link import Link
from muster.causes.pods import PodCauses
from muster.causes.words import because
from shared.job.events.catalog import AnyEvent
from shared.job.naming import Uid

UNRECORDED = "what led to it is not in this log"


class Ledger:
    """Each link is the newest of its kind."""

    def __init__(self) -> None:
        self.pods = PodCauses()
        self.at: dict[int, Link] = {}
        """What an event was about, by sequence: timers name their anchors so."""
        self.phase: Link | None = None
        self.spec: Link | None = None
        """The resource as it was seen last."""
        self.pause: Link | None = None
        """Where the wish for a pause changed last."""
        self.restart: Link | None = None
        """Where a restart was asked for."""
        self.attempt: Link | None = None
        self.going: Link | None = None
        """The resource was deleted, or is about to be."""
        self.expired: Link | None = None
        self.broken: Link | None = None
        self.another: Link | None = None
        self.below: Link | None = None
        """Where a running job fell below its minimum."""
        self.hosts: Link | None = None
        """The hosts files that were published last."""
        self.sized: Link | None = None
        """Those that carried the change of a request."""
        self.in_place: dict[int, Link] = {}
        """Hosts files that were seen in the cluster, by version."""
        self.requests: dict[Uid, list[Link]] = {}
        """What each request came to, in log order."""
        self.request_ended: Link | None = None
        self.timers: dict[tuple[int, str], Link] = {}
        self.refusals: dict[str, Link] = {}

    def asks(self, uid: Uid, link: Link) -> None:
        """A request begins."""
        self.requests[uid] = [link]

    def add(self, uid: Uid, link: Link) -> None:
        """A request came to this; of one that is not known nothing is told."""
        if uid in self.requests:
            self.requests[uid].append(link)

    def last(self, event: AnyEvent) -> Link | None:
        """What the request of this event came to before."""
        return self.last_of(getattr(event, "request", Uid("")))

    def last_of(self, uid: Uid) -> Link | None:
        links = self.requests.get(uid)
        return links[-1] if links else None

    @staticmethod
    def decided(here: Link, text: str, cause: Link | None, reason: str = "", message: str = "") -> Link:
        """A decision: there is always something that led to it."""
        return here.says(text + because(reason, message), cause, unknown="" if cause else UNRECORDED)
