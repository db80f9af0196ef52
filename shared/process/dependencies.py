"""The settings and connections that a service is built from."""

import msgspec

from shared.cluster import Cluster
from shared.eventlog import Bucket, EventLog
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.process.settings import Settings


class Dependencies(msgspec.Struct, frozen=True):
    settings: Settings
    cluster: Cluster
    eventlog: EventLog
    heads: Bucket
    """The checkpoint bucket: the newest head of each job."""
    identity: str
    """The id of the log."""
    kinds: Kinds = BUILT_IN
    """The frameworks whose jobs this service acts on."""
