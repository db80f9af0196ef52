"""The types of facts: the content of events, by their author.

`docs/events.md` says what each means; a later release may add types and fields.
"""

from shared.job.events.catalog import AUTHORS
from shared.job.events.event import *  # noqa: F403
from shared.job.events.scaler import *  # noqa: F403
from shared.job.events.scheduler import *  # noqa: F403
from shared.job.events.status import *  # noqa: F403
from shared.job.events.watcher import *  # noqa: F403

__all__ = [kind.__name__ for kind in AUTHORS]
