"""The documentation as the page serves it: the archive that `make site` packs, and wheels and images have."""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from aiohttp import web

from shared.process.bounds import PIECE
from shared.process.http import write

ARCHIVE = Path(__file__).parent / "docs.zip"
MISSING = "these pages are not part of this installation: `make site` builds them in a checkout"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""What is none of these is shown as text."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Styles within a page are those of tables and of the search; no word in these pages comes from a job."""
KEPT = "private, max-age=600"
"""What the pages load has its content's hash in its name; a page of another release comes after ten minutes."""


@lru_cache(1)
def _opened(archive: Path, changed: float) -> ZipFile:
    """The archive, as it was written at this time."""
    return ZipFile(archive)


async def page(request: web.Request) -> web.StreamResponse:
    """The file of the archive that the path names; of a folder its page."""
    path = request.match_info["path"]
    try:
        archive = _opened(ARCHIVE, ARCHIVE.stat().st_mtime)
    except FileNotFoundError as missing:
        raise web.HTTPNotFound(text=MISSING) from missing
    if f"{path}/index.html" in archive.NameToInfo:
        raise web.HTTPFound(f"{request.path}/")
    if path == "" or path.endswith("/"):
        path += "index.html"
    if (file := archive.NameToInfo.get(path)) is None:
        raise web.HTTPNotFound
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": KEPT, "ETag": f'"{file.CRC:08x}"'}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    response = web.StreamResponse(headers=headers)
    response.content_type, response.charset = TYPES.get(PurePosixPath(path).suffix, "text/plain"), "utf-8"
    response.content_length = file.file_size
    await response.prepare(request)
    with suppress(ConnectionError), archive.open(file) as content:
        # A slow reader holds one part, and not the file.
        while request.method != "HEAD" and (part := content.read(PIECE)):
            await write(response, part)
        await response.write_eof()
    return response
