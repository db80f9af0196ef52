"""Checkpoints: the newest head of each job that a status was about to show, kept beside the log.

The watcher asks them about a head that the log does not lead to: a stranger wrote one that they do not show.
"""

from shared.errors import Conflict
from shared.eventlog import Bucket, Revised
from shared.job.chain import Head, checkpoint_of, checkpointed
from shared.job.naming import Uid


class Checkpoints:
    """Those of one log."""

    def __init__(self, bucket: Bucket, identity: str) -> None:
        self._bucket = bucket
        self._identity = identity
        self._kept: dict[Uid, Revised] = {}
        """As this process left them."""

    async def reach(self, uid: Uid, head: Head) -> None:
        """The checkpoint of this job is at `head`, or further on: who stood still and woke up sets none back.

        Raises `Conflict` when another process wrote it meanwhile, and what the bucket raises.
        """
        kept = self._kept.get(uid) or await self._bucket.get(uid)
        log, newest = checkpointed(kept.value.decode() if kept is not None else "")
        if log == self._identity and newest is not None and (newest.sequence > head.sequence or newest == head):
            return
        value = checkpoint_of(self._identity, head).encode()
        try:
            revision = await self._bucket.put(uid, value, expect=kept.revision if kept is not None else 0)
        except Conflict:
            self.forget(uid)
            raise
        self._kept[uid] = Revised(value, revision)

    def forget(self, uid: Uid) -> None:
        """What this process knows of it; the checkpoint itself stays."""
        self._kept.pop(uid, None)
