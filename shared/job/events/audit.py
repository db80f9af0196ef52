"""The facts of the audit service: who made a change, as the API server's audit says."""

from shared.job.events.event import Event


class ChangeAttributed(Event, frozen=True, tag="ChangeAttributed"):
    """The API server's audit names who made a change that the watcher recorded."""

    of: int
    """The sequence of the watcher's event: a `JobObserved`, `ScaleRequested`, `JobDeleting` or `JobGone`."""
    user: str
    """The user whom the API server authenticated."""
    write: int = 0
    """Of a `JobObserved` one of its `writes`: several may be recorded together.  0 for a creation and a deletion."""
    groups: tuple[str, ...] = ()
    """The user's groups, the first 50."""
    acting_as: str = ""
    """The user whom this user impersonated; empty without."""
    agent: str = ""
    """The `User-Agent` of the request, which the client chose itself."""
    audit: str = ""
    """The id of the request in the API server's audit, cut; a client can choose it with the header `Audit-ID`."""


Fact = ChangeAttributed
"""All facts of this author; `catalog` takes them from here."""
