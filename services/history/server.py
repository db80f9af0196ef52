"""The HTTPS server: who asks, whether they may, which kube-apiserver says, and the answer.

A request without the front proxy's certificate is refused.  Discovery needs no right beyond that, and no log: it
answers while the log is away, because `kubectl` and the deletion of namespaces need the discovery of every API.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial

import msgspec
import structlog
from aiohttp import web
from msgspec.structs import replace

from services.history import documents
from services.history.answers import Answer, Answers, Busy, place
from services.history.core import Person, Trust
from services.history.documents import Json
from services.history.probes import HistoryFigures
from services.history.streams import STREAMS, WATCHES, Progress, Streams
from services.history.view import COME_AGAIN_SECONDS, Folding
from shared.cluster.decoding import read_answer
from shared.cluster.examination import Review
from shared.cluster.kube import KubeCluster
from shared.cluster.verdicts import Verdicts
from shared.errors import Refused, Trouble
from shared.flow import Shares, Turns
from shared.history_api import GROUP, NDJSON, PEOPLE, PLURAL, ROOT, VERSION, WHOLE, Question, parse, path_of, with_query
from shared.process.bounds import Budget
from shared.process.http import common_name, know, send, write
from shared.process.serving import Certificate, listening

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
        return read_answer(Review, answer.body, what).status.allowed


EVENTS_SECONDS = 50.0
"""The most seconds of a stream of events: kube-apiserver ends a request that is no watch after 60."""
WATCH_SECONDS = 1800.0
"""The most seconds of a watch, as of kube-apiserver's own."""
QUESTIONS = 200
"""Questions that are asked and not answered, which tenants share, and namespaces."""
STRANGERS = 56
"""Connections of clients that have not shown who they are."""
UNSENT_BYTES = 64 * 1024 * 1024
"""Bytes of answers that their readers have not taken, which tenants share."""
TEND_SECONDS = 10.0
"""Seconds between two looks whether the reader is there and may read, and between two bookmarks."""
log = structlog.get_logger()
HTTPS = Budget(
    port="history",
    reached_by="kube-apiserver, which shows the front proxy's certificate",
    connections=QUESTIONS + STREAMS + WATCHES + STRANGERS,
    strangers=STRANGERS,
    of_one=40,
    of_network=48,
    patience=1.0,
    head_bytes=2**17,
    head_lines=1200,
)
CODES = {"NotFound": 404, "Ambiguous": 400, "Invalid": 400, "TooLarge": 413, "Expired": 410, "NoRight": 403}
"""The HTTP status of a refusal; any other one is the log's."""
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 410: "Expired", 413: "RequestEntityTooLarge"}


class Sending:
    """One stream."""

    def __init__(self, request: web.BaseRequest, question: Question, *, as_table: bool) -> None:
        self.progress = Progress()
        self._request = request
        self._question = question
        self._as_table = as_table
        self._of_events = bool(question.part)
        self._limit = asyncio.timeout(None)
        self._why: Exception | None = None
        """Why it ended before its time."""

    async def run(
        self,
        told: AsyncGenerator[bytes, None],
        allowed: Callable[[], Awaitable[bool]],
        status: Callable[[Exception], Json],
    ) -> web.StreamResponse:
        """Send everything that is told.  `status` is the last word of a watch that fails."""
        media = NDJSON if self._of_events else "application/json"
        response = web.StreamResponse(headers={"Content-Type": media})
        await response.prepare(self._request)
        longest = EVENTS_SECONDS if self._of_events else WATCH_SECONDS
        seconds = min(self._question.seconds or longest, longest)
        tending = asyncio.create_task(self._tend(response, allowed))
        try:
            try:
                async with self._limit:
                    self._limit.reschedule(asyncio.get_running_loop().time() + seconds)
                    async for chunk in told:
                        if chunk:
                            await write(response, chunk)
            except TimeoutError:
                pass
            except Trouble as trouble:
                self._why = trouble
            finally:
                tending.cancel()
            if self._why is not None and not self._of_events:
                await write(response, documents.failure(status(self._why)))
            await response.write_eof()
        except ConnectionError:
            # It left, or was cut off, because it takes too little.
            pass
        return response

    def end(self) -> None:
        """End it now, as if its time were over."""
        if self._limit.when() is not None and not self._limit.expired():
            # It may have ended in this moment.
            with suppress(RuntimeError):
                self._limit.reschedule(asyncio.get_running_loop().time())

    async def _tend(self, response: web.StreamResponse, allowed: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await asyncio.sleep(TEND_SECONDS)
            transport = self._request.transport
            if transport is None or transport.is_closing():
                return self.end()
            try:
                if not await allowed():
                    self._why = Refused("the right to read it was taken away", reason="NoRight")
                    return self.end()
                if self._question.bookmarks and self.progress.reached:
                    await write(response, documents.bookmark(self.progress.reached, as_table=self._as_table))
            except Trouble:
                # kube-apiserver, which passes this stream on, does not say; it is asked again.
                continue
            except ConnectionError:
                return self.end()


class Server:
    """The handler of all requests; `trust` is that of now."""

    def __init__(self, answers: Answers, access: Access, trust: Callable[[], Trust], figures: HistoryFigures) -> None:
        self._answers = answers
        self._streams = Streams(answers)
        self._by_tenant, self._by_namespace, self._unsent = Shares(QUESTIONS), Shares(QUESTIONS), Shares(UNSENT_BYTES)
        self._sending: set[Sending] = set()
        self._access = access
        self._trust = trust
        self._figures = figures

    @property
    def waiting(self) -> int:
        """The questions that have no answer yet."""
        return self._by_tenant.taken

    @property
    def streams(self) -> int:
        return self._streams.open

    @asynccontextmanager
    async def serving(self, certificate: Certificate) -> AsyncIterator[int]:
        """Serve while the context lasts, as `listening` does."""
        async with listening(self.handle, HTTPS, certificate, lambda name: self._trust().trusts(name)) as port:
            try:
                yield port
            finally:
                for sending in self._sending:
                    sending.end()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        began = time.monotonic()
        response = await self._handle(request)
        # A stream takes as long as its reader likes.
        seconds = time.monotonic() - began if isinstance(response, web.Response) else None
        self._figures.answered(response.status, seconds)
        return response

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            person = self._trust().person(common_name(request.transport), request.headers.items())
        except Refused as refusal:
            return _failed(400, REASONS[400], str(refusal))
        if person is None:
            return _failed(401, "Unauthorized", "ask kube-apiserver, which passes the question on")
        know(request)
        if request.method != "GET":
            return _failed(405, "MethodNotAllowed", "a history can only be read")
        if (described := documents.described(request.path)) is not None:
            return web.Response(body=msgspec.json.encode(described), content_type="application/json")
        if request.path == "/apis":
            # kube-apiserver asks for aggregated discovery first; after this answer it reads the list of resources.
            return _failed(406, "NotAcceptable", f"ask for {ROOT}")
        question = parse(request.path)
        if question is None:
            return _failed(404, "NotFound", "the server could not find the requested resource")
        return await self._answer(request, person, question)

    async def _answer(self, request: web.BaseRequest, person: Person, question: Question) -> web.StreamResponse:
        as_table = not question.part and "as=Table" in request.headers.get("Accept", "")
        try:
            question = with_query(question, request.query)
            with place(self._by_tenant, "questions", *person.share):
                if not await self._access.allows(person, question):
                    return _failed(403, "Forbidden", _forbidden(person, question), question.name)
                if question.part in WHOLE:
                    question = replace(question, people=await self._access.allows(person, _of_people(question)))
                if not question.watch:
                    with place(self._by_namespace, "questions", question.namespace, *person.share):
                        answer = await self._answers.answer(question, person.share, as_table=as_table)
                        return await self._sent(request, person, answer)
            return await self._stream(request, person, question, as_table=as_table)
        except Exception as error:  # noqa: BLE001  told as a status, and logged there
            code, reason, words = _told(error, question)
            again = COME_AGAIN_SECONDS if code == 429 or isinstance(error, Folding) else 0
            return _failed(code, reason, words, question.name, again)

    async def _sent(self, request: web.BaseRequest, person: Person, answer: Answer) -> web.Response:
        """Send an answer, whose bytes take memory until its reader has them."""
        headers = {"Link": f'<{answer.go_on}>; rel="next"'} if answer.go_on else None
        response = web.Response(body=answer.body, content_type=answer.media, charset="utf-8", headers=headers)
        way = place(self._unsent, "bytes of answers on their way", *person.share, amount=len(answer.body))
        with way, suppress(ConnectionError):
            await send(request, response)
        return response

    async def _stream(
        self, request: web.BaseRequest, person: Person, question: Question, *, as_table: bool
    ) -> web.StreamResponse:
        """Send what changes.  Raises as `Answers.answer` before it begins."""
        sending = Sending(request, question, as_table=as_table)
        told = (
            self._streams.events(question, person.share)
            if question.part
            else self._streams.changes(question, sending.progress, person.share, as_table=as_table)
        )
        with self._streams.place(person.share, question.namespace, watch=not question.part):
            async with aclosing(told):
                await anext(told)
                self._sending.add(sending)
                try:
                    return await sending.run(
                        told,
                        lambda: self._access.allows(person, _of_people(question) if question.people else question),
                        lambda error: documents.status(*_told(error, question)),
                    )
                finally:
                    self._sending.discard(sending)


def _of_people(question: Question) -> Question:
    """The question whose right allows to know who made a change."""
    return replace(question, part=PEOPLE)


def _forbidden(person: Person, question: Question) -> str:
    resource = f"{PLURAL}/{question.part}" if question.part else PLURAL
    what = f'"{question.name}" is forbidden' if question.name else "is forbidden"
    where = f'in the namespace "{question.namespace}"' if question.namespace else "at the cluster scope"
    cannot = f'User "{person.name}" cannot {question.verb} resource "{resource}" in API group "{GROUP}" {where}'
    return f"{PLURAL}.{GROUP} {what}: {cannot}"


def _told(error: Exception, question: Question) -> tuple[int, str, str]:
    """The HTTP status of a failure, its reason and its words."""
    match error:
        case Refused(reason="LogReplaced" | "LogTruncated") if question.watch:
            return 410, REASONS[410], str(error)
        case Refused(reason=reason) if code := CODES.get(reason):
            return code, REASONS[code], str(error)
        case Busy():
            return 429, "TooManyRequests", str(error)
        case Folding():
            return 503, "ServiceUnavailable", str(error)
        case Trouble():
            # Without `Retry-After`: kubectl would ask ten times before it shows the words.
            words = f"the history cannot be read now, jobs run on; ask again, or tell an administrator: {error}"
            return 503, "ServiceUnavailable", words
    log.error("a question was not answered", path=path_of(question), exc_info=error)
    words = "this question cannot be answered because of a fault here; tell an administrator, who reads the log"
    return 500, "InternalError", words


def _failed(code: int, reason: str, message: str, name: str = "", retry_after: int = 0) -> web.Response:
    body = documents.status(code, reason, message, name=name, retry_after=retry_after)
    response = web.Response(body=msgspec.json.encode(body), status=code, content_type="application/json")
    if retry_after:
        response.headers["Retry-After"] = str(retry_after)
    return response
