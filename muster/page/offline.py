"""`muster report --html`: one file with the drawing of a job, which opens without a server and loads nothing."""

import asyncio
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from pathlib import Path

import msgspec

from muster.history import events_now
from muster.page.assets import asset
from muster.page.drawing import Drawing, drawn
from shared.errors import Refused
from shared.process.settings import Settings
from shared.runtime.appends import stamp
from shared.telling.report import report_lines
from shared.telling.targets import Asked, known_kinds

START = """
const view = new JobView();
document.getElementById("main").replaceChildren(view.root);
view.show(JSON.parse(document.getElementById("drawing").textContent));
"""


async def write(path: Path, asked: Asked, namespace: str, settings: Settings, *, uid: str, nats: bool) -> None:
    """Write the drawing of a job as it is now.  Raises `Trouble` as `muster report` does."""
    events = await events_now(asked, namespace, settings, uid=uid, nats=nats)
    text = written(drawn(events, asked, namespace, known_kinds(), uid=uid, until=stamp(datetime.now(UTC))))
    try:
        await asyncio.to_thread(path.write_text, text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"write {path}: {error.strerror}", reason="NotWritten") from error


def written(drawing: Drawing) -> str:
    """The file.  Its policy lets run these scripts alone, by their hashes."""
    script, style = f"{asset('draw.js')}{START}", asset("page.css")
    # Inside of a script's element only `<` can end it.
    data = msgspec.json.encode(drawing).decode().replace("<", "\\u003c")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src blob: data:"
    text = "\n".join(report_lines(drawing.report, as_json=False))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(drawing.report.job.name)} - Muster</title><style>{style}</style>"
        f'<body><main id="main"><pre>{escape(text)}</pre></main>'
        f'<script type="application/json" id="drawing">{data}</script><script type="module">{script}</script>'
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
