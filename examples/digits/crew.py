"""The launcher's view of its workers: who is listed, who answers, and one session with each of those.

Who is listed comes from the hosts script once a second; who answers is found out by calling. A worker
that does not answer is called again every second and never delays the others.
What the workers do together is the business of `group.py`.
"""

import asyncio

import hosts
from hosts import Host, HostsError
from wire import Message, WireError, receive, send

INTERVAL_SECONDS = 1.0
CALL_SECONDS = 0.8
"""How long a worker may take to say `welcome`: less than the interval, so that the list stays fresh."""


LEAVING = "is leaving"
"""Why a session ends whose worker said goodbye."""


class SessionLostError(Exception):
    """The session with a worker is over."""


class Session:
    """A worker that said `welcome`. Its answers are read at once, so its end is noticed at any time."""

    def __init__(self, host: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host = host
        self.address: tuple[str, int] = writer.get_extra_info("peername")[:2]
        self.lost = ""
        self._writer = writer
        self._answers: asyncio.Queue[Message | None] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(reader))

    async def ask(self, question: Message, seconds: float) -> Message:
        """The answer to a question of this generation; `SessionLostError` when there is none within the bound."""
        try:
            async with asyncio.timeout(seconds):
                await send(self._writer, question)
                while (answer := await self._answers.get()) is not None:
                    # Answers to questions that were given up come late and say nothing any more.
                    if answer["generation"] == question["generation"]:
                        return answer
        except TimeoutError:
            self.close(f"no answer within {seconds:g} s")
        except (OSError, WireError) as error:
            self.close(str(error))
        raise SessionLostError(f"{self.host.name}: {self.lost}")

    def close(self, why: str = "") -> None:
        """End the session; a reason is news and is printed, the end of all training is not."""
        if self.lost:
            return
        self.lost = why or "closed"
        if why:
            print(f"{self.host.name}: {why}", flush=True)
        self._reading.cancel()
        self._writer.close()
        self._answers.put_nowait(None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await receive(reader)).kind != "leaving":
                self._answers.put_nowait(message)
            self.close(LEAVING)
        except (OSError, EOFError, WireError) as error:
            self.close("connection closed" if isinstance(error, EOFError) else str(error))


class Crew:
    """All listed workers that answer."""

    def __init__(self, script: str, port: int, name: str) -> None:
        self._script = script
        self._port = port
        self._name = name
        self._listed: tuple[Host, ...] = ()
        self._sessions: dict[str, Session] = {}
        self._said: dict[str, str] = {}

    def members(self) -> tuple[Session, ...]:
        """In the order of the list, which is the order of the ranks."""
        found = ((host, self._sessions.get(host.name)) for host in self._listed)
        return tuple(session for host, session in found if session and session.host == host and not session.lost)

    def listed(self) -> str:
        return " ".join(map(str, self._listed)) or "none"

    async def watch(self) -> None:
        """Keep list and sessions up to date, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                due = loop.time() + INTERVAL_SECONDS
                await self._refresh()
                await asyncio.sleep(due - loop.time())
        finally:
            for session in self._sessions.values():
                session.close()

    async def _refresh(self) -> None:
        # By the list of a second ago: since then the group has re-formed without those who left it, and
        # closing their sessions breaks no step.
        known = {host.name: host for host in self._listed}
        for name, session in list(self._sessions.items()):
            if known.get(name) != session.host:
                session.close("no longer listed")
            if session.lost:
                del self._sessions[name]
        try:
            self._listed = await hosts.discover(self._script)
            self._say("hosts", self.listed())
        except HostsError as error:
            self._say("hosts", f"{error}; still using {self.listed()}")
        new = [host for host in self._listed if host.name not in self._sessions]
        answers = await asyncio.gather(*(self._call(host) for host in new))
        # Shown together: two new workers are one re-forming, not two.
        self._sessions.update({session.host.name: session for session in answers if session is not None})

    async def _call(self, host: Host) -> Session | None:
        """A new session; a worker that is not up yet, or not any more, is called again at the next refresh."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reader, writer = await asyncio.open_connection(host.name, self._port)
                await send(writer, Message("hello", {"session": self._name}))
                answer = await receive(reader)
            trouble = "" if answer.kind == "welcome" else f"is {answer.kind} with another launcher"
        except (OSError, EOFError, WireError) as error:
            trouble = f"does not answer: {str(error) or type(error).__name__}"
        if writer is not None and not trouble:
            self._said.pop(host.name, None)
            return Session(host, reader, writer)
        if writer is not None:
            writer.close()
        self._say(host.name, trouble)
        return None

    def _say(self, subject: str, text: str) -> None:
        """A line when there is something new; the same trouble every second is one line."""
        if self._said.get(subject) != text:
            self._said[subject] = text
            print(f"{subject}: {text}", flush=True)
