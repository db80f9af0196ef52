"""Serves the page: its handlers, and who is let in on 127.0.0.1, where the address has a secret.

Other users of the machine reach the port, too, and so does every page in the person's browser.  So each request has to
name this host, as a page of another name that leads here would not, and begins with a secret of the person.
`viewers.py` lets people in by their tokens.
"""

import asyncio
import secrets
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from muster.asking import open_source
from muster.page import docs
from muster.page.drawing import TYPES, asset, news_since, pieces
from muster.page.following import MOST_OPEN, NOT_FOLDED, Bounds, Followed, News, Places, Readable, View, in_thread
from muster.terminal import say
from shared.errors import Refused, Transient, Trouble
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import Kinds
from shared.history_api import NDJSON
from shared.job.fold import History
from shared.job.naming import key_of
from shared.private import write_private
from shared.process.bounds import Budget, sockets_at
from shared.process.http import BoundedServer, know, write
from shared.process.serving import opened
from shared.process.settings import Settings
from shared.runtime.appends import stamp
from shared.telling.reading import as_json_text, line_of
from shared.telling.report import report_lines
from shared.telling.shown import Shown
from shared.telling.targets import Asked, parse_target
from shared.telling.timeline import timeline

HOST = "127.0.0.1"
SECRET_BYTES = 24
TEXT_WIDTH = 120
SEND_SECONDS, SEND_RATE = 60.0, 2**15
"""The most seconds for an answer about a job, and the bytes for one more: it has a turn, for which others wait."""
RETRY = b"retry: 30000"
"""A browser comes again so late, in milliseconds, after a stream that was refused."""
ROWS_AT_ONCE = 100
"""The most jobs of one piece of news: a slow browser's stream holds no more of them."""
FIRST_LOOK_SECONDS = 1.0
"""So long the table without scripts waits for the first of the jobs."""
PARTING_SECONDS = 0.1
"""Seconds for answers on their way at the end; without a limit, streams to browsers would last for ever."""
EVENTS_AT_ONCE = 500
"""Events of a part of an answer: others are answered between two of them."""
MOST_TEXT_ROWS = 500
"""The most jobs of the table for browsers without scripts."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
HTML, JSON = "text/html; charset=utf-8", "application/json"
END = "</noscript></main>"
UI = Budget(
    port="ui",
    reached_by="programs on its machine",
    connections=256,
    strangers=64,
    of_one=64,
    of_network=64,
    patience=1.0,
    head_bytes=2**14,
    cancels=True,
)
STATUSES = {"NotFound": 404, "Forbidden": 403, "Denied": 403, "Invalid": 400, "TooLarge": 413, "TooManyRequests": 429}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Admit = Callable[[web.Request], AbstractAsyncContextManager[View]]
"""What the one who asks may see, while the context lasts.  Raises `web.HTTPException` for who is not let in."""
VIEW = web.RequestKey("view", View)


def root_of(request: web.Request) -> str:
    """The first part of the path, below which all addresses of a page stand."""
    return request.path.split("/")[1]


class Page:
    """The handlers; all of them only read."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit

    def application(self) -> web.Application:
        made = web.Application(middlewares=[self._guarded])
        made.on_response_prepare.append(_with_headers)
        root, job = "/{root}", "/{root}/%s/{namespace}/{kind}/{name}"
        made.add_routes(
            [
                web.get(f"{root}/", self._jobs),
                web.get(f"{root}/fleet", self._fleet),
                web.get(job % "jobs", _in_turn(self._job, HTML, at_once=_head_of_job)),
                web.get(f"{root}/static/{{name}}", _asset),
                web.get(f"{root}/docs/{{path:.*}}", docs.page),
                web.get(f"{root}/api/jobs", self._rows),
                web.get(job % "api/jobs", _in_turn(self._drawing, JSON)),
                web.get(f"{job % 'api/jobs'}/news", self._news),
                web.get(f"{job % 'api/jobs'}/events", _in_turn(self._events, NDJSON)),
                web.get(f"{job % 'api/jobs'}/at/{{sequence:[0-9]{{1,18}}}}", _in_turn(self._at, JSON)),
            ]
        )
        return made

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with self._admit(request) as view:
                request[VIEW] = view
                return await handler(request)
        except Refused as refusal:
            return web.json_response({"error": str(refusal)}, status=STATUSES.get(refusal.reason, 400))
        except Transient as trouble:
            return web.json_response({"error": str(trouble)}, status=503)

    async def _jobs(self, request: web.Request) -> web.Response:
        table = request[VIEW].table
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await table.news.later(0)
        rows = sorted((row for _, row in table.rows.values()), key=lambda row: (row.namespace, row.name, row.uid))
        cells = (
            (row.namespace, f"{row.called}/{row.name}", row.phase, f"{row.ready}/{row.wanted}", row.note, row.uid)
            for row in rows[:MOST_TEXT_ROWS]
        )
        lines = "".join(
            f'<tr><td>{escape(namespace)}<td><a href="jobs/{escape(namespace)}/{escape(job)}'
            f'?uid={escape(uid)}">{escape(job)}</a><td>{escape(phase)}<td>{ready}<td>{escape(note)}'
            for namespace, job, phase, ready, note, uid in cells
        )
        more = f"<p>and {len(rows) - MOST_TEXT_ROWS} more: `muster get -A`</p>" if len(rows) > MOST_TEXT_ROWS else ""
        heading = "<tr><th>Namespace<th>Job<th>Phase<th>Ready<th>Note"
        note = table.news.trouble or ("" if rows else "No jobs so far: load this page again.")
        return _shell(request, "Jobs", "jobs", f"<p>{escape(note)}</p><table>{heading}{lines}</table>{more}")

    async def _fleet(self, request: web.Request) -> web.Response:
        return _shell(request, "Fleet", "fleet", "<p>The fleet is drawn by scripts; the jobs are a table without.</p>")

    async def _job(self, request: web.Request) -> AsyncGenerator[bytes, None]:
        view = request[VIEW]
        try:
            asked, namespace, uid = _asked(request)
            async with view.job(asked, namespace, uid) as job:
                found = (await job.drawing(asked, view.source.kinds)).report
        except Trouble as trouble:
            told = str(trouble)
        else:
            told = "\n".join((*timeline(found, TEXT_WIDTH), "", *report_lines(found, as_json=False)))
        yield f"<pre>{escape(told)}</pre>{END}".encode()

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        table = request[VIEW].table

        def told(seen: int) -> tuple[int, Any]:
            reached, rows = table.since(seen, ROWS_AT_ONCE)
            return reached, {"rows": rows, "trouble": table.news.trouble}

        return await _stream(request, table.news, told)

    async def _drawing(self, request: web.Request) -> AsyncGenerator[bytes, None]:
        view, (asked, namespace, uid) = request[VIEW], _asked(request)
        async with view.job(asked, namespace, uid) as job:
            drawing = await job.drawing(asked, view.source.kinds)
        for piece in pieces(await in_thread(partial(news_since, drawing, request.query.get("since", "")))):
            yield piece

    async def _news(self, request: web.Request) -> web.StreamResponse:
        async with request[VIEW].job(*_asked(request)) as job:

            def told(_: int) -> tuple[int, Any]:
                return job.news.version, {"events": len(job.events), "trouble": job.news.trouble}

            return await _stream(request, job.news, told)

    async def _events(self, request: web.Request) -> AsyncGenerator[bytes, None]:
        async with request[VIEW].job(*_asked(request)) as job:
            for at in range(0, len(job.events), EVENTS_AT_ONCE):
                yield "".join(f"{line_of(stored)}\n" for stored in job.events[at : at + EVENTS_AT_ONCE]).encode()

    async def _at(self, request: web.Request) -> AsyncGenerator[bytes, None]:
        async with request[VIEW].job(*_asked(request)) as job:
            sequence, kinds = int(request.match_info["sequence"]), request[VIEW].source.kinds
            found = await in_thread(partial(_state_at, job, sequence, kinds))
        yield msgspec.json.encode(found)


def _shell(request: web.Request, title: str, view: str, without_scripts: str) -> web.Response:
    return web.Response(text=f"{_head(request, title, view)}{without_scripts}{END}", content_type="text/html")


def _head_of_job(request: web.Request) -> bytes:
    waits = "<p>its timeline and its report follow here once its events are drawn</p>"
    return f"{_head(request, request.match_info['name'], 'job')}{waits}".encode()


def _head(request: web.Request, title: str, view: str) -> str:
    """The page up to what a browser without scripts shows."""
    root, now = f"/{root_of(request)}", stamp(datetime.now(UTC))
    links = "".join(
        f'<a href="{root}/{path}"{" aria-current=page" if view == name else ""}>{name.title()}</a>'
        for name, path in (("jobs", ""), ("fleet", "fleet"), ("docs", "docs/"))
        if name != "docs" or docs.ARCHIVE.exists()
    )
    return (
        f'<!doctype html><html lang="en" data-view="{view}" data-root="{root}" data-now="{now}"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)} - Muster</title>'
        f'<link rel="icon" href="data:,"><link rel="stylesheet" href="{root}/static/page.css">'
        f'<body><header><a class="brand" href="{root}/">Muster</a><nav aria-label="Views">{links}</nav></header>'
        # `async`: a module runs before the rest has come, and what it needs stands above it.
        f'<main id="main"><script type="module" async src="{root}/static/page.js"></script>'
        f"<noscript><h1>{escape(title)}</h1>"
    )


def _state_at(job: Followed, sequence: int, kinds: Kinds) -> dict[str, str]:
    """The event, and what the fold and the status were after it."""
    count = bisect_right(job.events, sequence, key=lambda stored: stored.sequence)
    if not count:
        raise Refused(f"the job has no event up to {sequence}", reason="NotFound")
    # Another thread that asks meanwhile, or for an earlier event, folds for itself.
    (folded, then), job.then = job.then, NOT_FOLDED
    if then is None or folded > count:
        folded, then = 0, History(key_of(Subject.parse(job.events[0].subject)))
    for stored in job.events[folded:count]:
        then.fold(stored)
    status = msgspec.json.format(msgspec.json.encode(Shown.of(then, kinds).status)).decode()
    event = msgspec.json.format(line_of(job.events[count - 1]).encode()).decode()
    found = {"event": event, "status": status, "state": as_json_text(then.job)}
    job.then = count, then
    return found


def _asked(request: web.Request) -> tuple[Asked, str, str]:
    named = request.match_info
    asked = parse_target(f"{named['kind']}/{named['name']}")
    if asked.is_request:
        raise Refused("the page draws jobs; `muster why` explains a request", reason="Invalid")
    return asked, named["namespace"], request.query.get("uid", "")


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


async def _stream(request: web.Request, news: News, told: Callable[[int], tuple[int, Any]]) -> web.StreamResponse:
    """Server-sent events until the browser goes: what is new after a version, and the version that this reaches."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    seen = -1
    with suppress(ConnectionError, Refused):
        while not (news.over and seen == news.version):
            await news.later(seen)
            await request[VIEW].source.must_be_known()
            line = RETRY if news.over else b":"
            if seen != news.version:
                seen, found = told(seen)
                line += b"\ndata: " + msgspec.json.encode(found)
            await write(response, line + b"\n\n")
    return response


def _in_turn(
    parts: Callable[[web.Request], AsyncGenerator[bytes, None]],
    content: str,
    at_once: Callable[[web.Request], bytes] = lambda _: b"",
) -> Handler:
    """Sends these parts, with no other answer in its place until the browser has them; `at_once` waits for no place."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content})
        with suppress(ConnectionError):
            if first := at_once(request):
                await response.prepare(request)
                if request.method != "HEAD":
                    await write(response, first)
            async with request[VIEW].answering(), aclosing(parts(request)) as found:
                try:
                    await _sent(request, response, found)
                except TimeoutError:
                    if request.transport is not None:
                        request.transport.abort()
        return response

    return answer


async def _sent(request: web.Request, response: web.StreamResponse, parts: AsyncGenerator[bytes, None]) -> None:
    """Send all parts.  Raises `TimeoutError` if the browser takes them too slowly."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as patience:
        async for part in parts:
            patience.reschedule((patience.when() or loop.time() + SEND_SECONDS) + len(part) / SEND_RATE)
            if not response.prepared:
                await response.prepare(request)
            if request.method == "HEAD":
                break
            await write(response, part)
            # A part that fits into the buffers lets no other answer run.
            await asyncio.sleep(0)
        await response.write_eof()


async def _asset(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in TYPES:
        raise web.HTTPNotFound
    return web.Response(text=asset(name), content_type=TYPES[name])


def secret_of(folder: Path) -> str:
    """The secret of the person's addresses: the same one each time, so that they open later as well."""
    path = folder / "muster" / "page-secret"
    with suppress(OSError):
        if len(known := path.read_text()) >= SECRET_BYTES:
            return known
    made = secrets.token_urlsafe(SECRET_BYTES)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, made)
    return made


def let_in(view: View, secret: str, port: int) -> Admit:
    """Who names this host and knows the secret sees what the person may."""
    hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    @asynccontextmanager
    async def admit(request: web.Request) -> AsyncIterator[View]:
        if request.headers.get("Host", "") not in hosts:
            raise web.HTTPMisdirectedRequest(text="this is not the address that `muster ui` printed")
        if not secrets.compare_digest(root_of(request).encode(), secret.encode()):
            raise web.HTTPForbidden(text="open the address that `muster ui` printed, with all its letters")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise web.HTTPForbidden(text="another site may not ask here")
        know(request)
        yield view

    return admit


@asynccontextmanager
async def serving(source: Readable, namespace: str, *, port: int, secret: str) -> AsyncIterator[str]:
    """Serve while the context lasts; gives the address.  Raises `Refused` if another program has the port."""
    try:
        sockets = sockets_at(HOST, port)
    except OSError as error:
        words = f"serve on {HOST}:{port}: {error.strerror}; say another --port, or 0 for any"
        raise Refused(words, reason="InUse") from error
    view, port = View(source, namespace, Bounds(Places(MOST_OPEN, MOST_OPEN))), sockets[0].getsockname()[1]
    try:
        async with running(let_in(view, secret, port)) as runner:
            assert runner.server is not None
            server = BoundedServer(runner.server.request_handler, UI)
            async with opened(server, UI, sockets, PARTING_SECONDS):
                yield f"http://{HOST}:{port}/{secret}/"
    finally:
        await view.close()


@asynccontextmanager
async def running(admit: Admit) -> AsyncIterator[web.AppRunner]:
    """What answers, while the context lasts; it has no port yet."""
    application = Page(admit).application()
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=PARTING_SECONDS)
    await runner.setup()
    try:
        yield runner
    finally:
        await runner.cleanup()


async def ui(settings: Settings, namespace: str, *, nats: bool, port: int) -> None:
    """Print the address, and serve until Ctrl-C."""
    folder = Path.home() / ".local" / "state"
    async with (
        open_source(settings, nats=nats) as source,
        serving(Readable(source), namespace, port=port, secret=secret_of(folder)) as address,
    ):
        say(f"{address}\nwhoever has this address sees what you may read; Ctrl-C ends it")
        await asyncio.Event().wait()
