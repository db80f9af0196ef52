"""Asks kube-apiserver whether a person may have an answer, and believes its word for some seconds."""

import time
from collections.abc import Callable
from functools import partial

import msgspec

from services.history.core.trust import Person
from shared.cluster.examination import Review
from shared.cluster.kube import KubeCluster
from shared.cluster.verdicts import Verdicts
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
        self._turns = Turns(ASKED_AT_ONCE, of_namespace=ASKED_AT_ONCE // 2)
        self._verdicts = Verdicts[bool](BELIEVED_SECONDS, MOST_VERDICTS, clock)

    async def allows(self, person: Person, question: Question) -> bool:
        """True if Kubernetes' rights allow the answer.  Raises `Trouble` if kube-apiserver does not say."""
        asked = (person, question.verb, question.namespace, question.name, question.part)
        return await self._verdicts.of(asked, partial(self._ask, person, question))

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
        async with self._turns.turn(*person.share):
            answer = await self._cluster.ask(REVIEWS, what=what, review=review)
        try:
            return msgspec.json.decode(answer.body, type=Review).status.allowed
        except MALFORMED as error:
            raise Transient(f"{what}: {error}") from error
