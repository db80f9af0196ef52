"""What a service is built from."""

import msgspec

from shared.cluster import Cluster
from shared.eventlog import Bucket, EventLog
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.process.settings import Settings


class Dependencies(msgspec.Struct, frozen=True):
    """A process's settings and its connections."""

    settings: Settings
    cluster: Cluster
    eventlog: EventLog
    heads: Bucket
    """The checkpoint bucket: the newest head of each job."""
    identity: str
    """Of the log."""
    kinds: Kinds = BUILT_IN
    """The frameworks whose jobs are taken on."""
