"""A real browser, driven by its DevTools protocol over a websocket: without a package of its own."""

import asyncio
import shutil
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

PATIENCE_SECONDS = 60.0
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""


class Tab:
    """One tab; what its scripts complain of is kept."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._count = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            elif found["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(found["params"]["exceptionDetails"].get("exception")))
            elif found["method"] == "Log.entryAdded":
                entry = found["params"]["entry"]
                # That a server went is no fault of a script.
                if entry["level"] == "error" and entry["source"] != "network":
                    self.complaints.append(str(entry))

    async def send(self, method: str, **params: Any) -> Any:
        self._count += 1
        answer = self._answers[self._count] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._count, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await answer
        assert "error" not in found, (method, found)
        return found["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        found = None
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (found := await self.run(script)):
                    await asyncio.sleep(0.05)
                return found
        raise AssertionError(f"never true: {script}; complaints: {self.complaints}")

    async def go(self, address: str) -> None:
        await self.send("Page.navigate", url=address)
        await self.until(
            f"location.href.startsWith({address.partition('?')[0]!r}) && document.readyState == 'complete'"
        )

    async def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    async def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "buttons": 1, "clickCount": 1}
            await self.mouse(kind, x, y, **button)

    async def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture(self, path: Path) -> None:
        found = await self.send("Page.captureScreenshot", captureBeyondViewport=False)
        await asyncio.to_thread(path.write_bytes, b64decode(found["data"]))

    async def size(self, width: int, height: int) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def dark(self, on: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def close(self) -> None:
        await self._socket.close()
        await self._reading


@asynccontextmanager
async def opened() -> AsyncIterator[Tab]:
    """A headless browser with one tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The sandbox needs a user other than root.
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        flags += ["--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={folder}"]
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(PROGRAM, *flags, "about:blank", stdout=nowhere, stderr=nowhere)
        try:
            async with aiohttp.ClientSession() as session:
                port = await _port(Path(folder) / "DevToolsActivePort")
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    page = next(each for each in await answer.json() if each["type"] == "page")
                # A picture is one message.
                async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=2**27) as socket:
                    tab = Tab(socket)
                    for domain in ("Page", "Runtime", "Log"):
                        await tab.send(f"{domain}.enable")
                    await tab.size(1440, 1000)
                    yield tab
                    await tab.close()
        finally:
            process.terminate()
            await process.wait()


async def _port(path: Path) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(OSError, IndexError, ValueError):
                return int((await asyncio.to_thread(path.read_text)).splitlines()[0])
            await asyncio.sleep(0.05)
