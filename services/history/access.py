"""Asks kube-apiserver whether a person may have an answer, and believes its word for some seconds."""

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

import msgspec

from services.history.core.trust import Person
from shared.cluster.examination import Review
from shared.cluster.kube import KubeCluster
from shared.errors import Transient
from shared.flow import Turns
from shared.history_api import GROUP, PLURAL, VERSION, Question
from shared.untrusted import MALFORMED

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

BELIEVED_SECONDS = 10.0
"""Seconds for which a verdict counts: a right that is taken away holds for as long."""
MOST_VERDICTS = 4096
ASKED_AT_ONCE = 8
"""Verdicts that are asked for at once, at most half of them for one tenant."""


class Access:
    def __init__(self, cluster: KubeCluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._turns = Turns(ASKED_AT_ONCE, of_one=ASKED_AT_ONCE // 2)
        self._verdicts: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()

    async def allows(self, person: Person, question: Question) -> bool:
        """True if Kubernetes' rights allow the answer.  Raises `Trouble` if kube-apiserver does not say."""
        asked = (person, question.verb, question.namespace, question.name, question.part)
        # A digest, because a person has any number of groups, and a question a name of any length.
        key = sha256(msgspec.msgpack.encode(asked)).digest()
        kept = self._verdicts.get(key)
        if kept is not None and self._clock() - kept[0] < BELIEVED_SECONDS:
            return kept[1]
        async with self._turns.turn(person.tenant):
            verdict = await self._ask(person, question)
        self._verdicts.pop(key, None)
        self._verdicts[key] = self._clock(), verdict
        while len(self._verdicts) > MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict

    async def _ask(self, person: Person, question: Question) -> bool:
        what = "ask kube-apiserver for the rights of a reader"
        wanted = {"group": GROUP, "version": VERSION, "resource": PLURAL, "subresource": question.part}
        wanted |= {"verb": question.verb, "namespace": question.namespace, "name": question.name}
        spec = {
            "user": person.name,
            "uid": person.uid,
            "groups": person.groups,
            "extra": dict(person.extra),
            "resourceAttributes": wanted,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._cluster.ask(REVIEWS, what=what, review=review)
        try:
            return msgspec.json.decode(answer.body, type=Review).status.allowed
        except MALFORMED as error:
            raise Transient(f"{what}: {error}") from error
