"""`muster forward` from a real NATS server to a real web server: nothing is lost, whatever fails."""

import asyncio
import base64
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from muster.commands.events import ForwardOptions
from muster.forward import forward
from muster.outgoing import Sent, secret_of, signature
from shared.errors import Refused
from shared.eventlog import durable
from shared.eventlog.account import READER, SUBSCRIBER, Copy
from shared.eventlog.setup import set_up
from shared.ports import HOST, free_port
from shared.process.settings import Settings
from tests.kit.commands import Ended, run
from tests.kit.nats import READY, a_decision, connected
from tests.kit.subscribers import COPY_BYTES, Log, a_log_for_subscribers, stranger, write

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "forward.md").read_text()
SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()

Answer = Callable[[web.Request, bytes], web.StreamResponse]


def taking(_: web.Request, __: bytes) -> web.StreamResponse:
    return web.Response(status=204)


class Receiver:
    """A web server that notes each request, and answers as a test says."""

    def __init__(self) -> None:
        self.port = free_port()
        self.requests: list[tuple[dict[str, str], bytes]] = []
        """All of them, also those that were not taken."""
        self.taken: list[str] = []
        """The ids of events that were answered with 2xx."""
        self.answer: Answer = taking
        self.slow = 0.0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://user:hidden@{HOST}:{self.port}/secret/path"

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/secret/path", self._asked)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def until(self, number: int) -> None:
        """Wait until so many different events were taken."""
        async with asyncio.timeout(READY):
            while len({*self.taken}) < number:
                await asyncio.sleep(0.02)

    async def _asked(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        if self.slow:
            await asyncio.sleep(self.slow)
        answer = self.answer(request, body)
        if answer.status < 300:
            self.taken += ids(request, body)
        return answer


def ids(request: web.Request, body: bytes) -> list[str]:
    if request.content_type == "application/cloudevents-batch+json":
        return [each["id"] for each in json.loads(body)]
    return [request.headers.get("ce-id") or json.loads(body).get("id", "")]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log_for_subscribers(tmp_path / "nats") as server:
        yield server


async def test_who_sees_one_namespace_is_told_so_when_asking_for_another():
    options = ForwardOptions(to="http://127.0.0.1:9", namespaces=["team-a", "team-b"])
    with pytest.raises(
        Refused, match="NATS_USER=subscriber-team-a sees the events of team-a alone, and none of team-b"
    ):
        await forward(Settings(nats_user="subscriber-team-a"), options)


def environment(server: Log, user: str = SUBSCRIBER) -> dict[str, str]:
    return {"NATS_URL": server.copies.url, "NATS_USER": user, "NATS_PASSWORD": server.copies.users[user]}


@asynccontextmanager
async def forwarding(server: Log, receiver: Receiver, *options: str) -> AsyncIterator[Process]:
    """The command, which has made its position."""
    await server.forgets()
    command = (sys.executable, "-m", "muster", "forward", "--to", receiver.url, *options)
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=os.environ | environment(server))
    assert process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stderr.readline(), READY)
        assert line.startswith(b"muster: sends events to http://127.0.0.1:"), line
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        server.left()


async def ended(process: Process) -> tuple[int | None, str]:
    """How it ends after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(process.communicate(), READY)
    return process.returncode, said.decode()


async def written(server: Log, number: int, namespace: str = "team-a") -> list[str]:
    """Append so many events; their ids."""
    await server.forgets()
    async with connected(server) as log:
        sequence = await log.end((f"jobs.{namespace}.>",))
        found = []
        for _ in range(number):
            event = a_decision(namespace, sequence)
            sequence = await log.append(event, expect=sequence)
            found.append(event.event_id)
        return found


async def behind(server: Log, name: str) -> tuple[int, int]:
    """How many events the position has before it, and how many are in hand."""
    async with stranger(server) as client:
        info = await client.jetstream().consumer_info("JOBS", name)
        return info.num_pending or 0, info.num_ack_pending or 0


async def test_each_event_is_posted_once_in_order_as_a_cloud_event(server: Log, receiver: Receiver):
    async with forwarding(server, receiver, "--name", "a", "--all", "-n", "team-a") as process:
        wanted = await written(server, 20)
        await written(server, 3, "team-b")
        await receiver.until(20)
        code, said = await ended(process)
    assert (receiver.taken, code) == (wanted, 130)
    assert "20 events sent" in said
    headers, body = receiver.requests[0]
    event = from_http_event(HTTPMessage(headers=headers, body=body))
    assert (event.get_type(), event.get_subject()) == ("dev.muster.SlotsAssigned", "team-a/resnet/u-1")
    assert "hidden" not in said
    assert await behind(server, "a") == (0, 0)


async def test_a_new_position_begins_now_and_an_old_one_goes_on(server: Log, receiver: Receiver):
    await written(server, 3)
    options = ("-n", "team-a", "--format", "structured")
    async with forwarding(server, receiver, *options) as process:
        first = await written(server, 2)
        await receiver.until(2)
        assert (await ended(process))[0] == 130
    second = await written(server, 2)
    async with forwarding(server, receiver, *options) as process:
        await receiver.until(4)
        await ended(process)
    assert receiver.taken == first + second


async def test_batches_are_signed_and_whole(server: Log, receiver: Receiver, tmp_path: Path):
    (tmp_path / "secret").write_text(SECRET)
    wanted = await written(server, 250)
    async with forwarding(
        server, receiver, "--batch", "100", "--all", "-n", "team-a", "--secret-file", str(tmp_path / "secret")
    ) as process:
        await receiver.until(250)
        await ended(process)
    assert receiver.taken == wanted
    assert 3 <= len(receiver.requests) <= 10
    for headers, body in receiver.requests:
        found = {name.lower(): value for name, value in headers.items()}
        sent = Sent(found["webhook-id"], body, {})
        proof = signature(sent, secret_of(SECRET), int(found["webhook-timestamp"]))
        assert proof.items() <= found.items()


async def test_killed_between_delivery_and_acknowledgement_an_event_comes_again_with_its_id(
    server: Log, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    wanted = await written(server, 30)
    async with forwarding(server, receiver, "--name", "killed", "--all", "-n", "team-a") as process:

        def kill_at_the_tenth(request: web.Request, _: bytes) -> web.StreamResponse:
            if request.headers["ce-id"] == wanted[10] and process.returncode is None:
                process.kill()
            return web.Response(status=204)

        receiver.answer = kill_at_the_tenth
        await process.wait()
    receiver.answer = taking
    async with stranger(server) as client:
        # What the killed process had in hand comes again after a minute; here at once.
        info = await client.jetstream().consumer_info("JOBS", "killed")
        info.config.ack_wait = 1
        await client.jetstream().add_consumer("JOBS", info.config)
    await asyncio.sleep(1.5)
    async with forwarding(server, receiver, "--name", "killed", "--all", "-n", "team-a") as process:
        await receiver.until(30)
        await ended(process)
    assert {*receiver.taken} == {*wanted}
    assert receiver.taken.count(wanted[10]) == 2
    assert len(receiver.taken) == 31
    assert await behind(server, "killed") == (0, 0)


async def test_what_is_in_hand_at_the_end_goes_to_the_next_process_soon(server: Log, receiver: Receiver):
    wanted = await written(server, 50)
    receiver.slow = 0.1
    async with forwarding(server, receiver, "--all", "-n", "team-a") as process:
        await receiver.until(5)
        await ended(process)
    receiver.slow = 0.0
    assert 5 <= len(receiver.taken) < 50
    async with forwarding(server, receiver, "--all", "-n", "team-a") as process:
        async with asyncio.timeout(20):
            await receiver.until(50)
        await ended(process)
    assert sorted(receiver.taken) == sorted(wanted)


async def test_a_receiver_that_is_away_or_in_trouble_is_waited_for(server: Log, receiver: Receiver):
    troubles = iter([503, 429])

    def sick(_: web.Request, __: bytes) -> web.StreamResponse:
        status = next(troubles, 204)
        return web.Response(
            status=status, text="not\x1b[31m now", headers={"Retry-After": "1"} if status == 429 else {}
        )

    await receiver.stop()
    wanted = await written(server, 5)
    async with forwarding(server, receiver, "--all", "-n", "team-a") as process:
        await asyncio.sleep(1.0)
        receiver.answer = sick
        await receiver.start()
        await receiver.until(5)
        _, said = await ended(process)
    assert receiver.taken == wanted
    assert "Cannot connect to host 127.0.0.1" in said
    assert "503 not" in said
    assert "\x1b" not in said
    assert said.count(" takes events\n") == 1


async def test_a_receiver_that_never_answers_is_asked_again(server: Log, receiver: Receiver):
    wanted = await written(server, 2)
    receiver.slow = 30
    async with forwarding(server, receiver, "--all", "-n", "team-a", "--timeout", "0.3") as process:
        async with asyncio.timeout(READY):
            while len(receiver.requests) < 2:
                await asyncio.sleep(0.02)
        receiver.slow = 0
        await receiver.until(2)
        _, said = await ended(process)
    assert receiver.taken == wanted
    assert "no answer within 0.3 s" in said
    first, second = (headers["ce-id"] for headers, _ in receiver.requests[:2])
    assert first == second


async def test_what_is_not_taken_becomes_a_dead_letter_and_the_others_go_on(
    server: Log, receiver: Receiver, tmp_path: Path
):
    wanted = await written(server, 10)
    letters = tmp_path / "letters.jsonl"

    def picky(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(status=400, text="bad") if wanted[4] in ids(request, body) else web.Response()

    receiver.answer = picky
    options = ("--batch", "10", "--all", "-n", "team-a", "--tries", "2", "--dead-letters", str(letters))
    async with forwarding(server, receiver, *options) as process:
        await receiver.until(9)
        _, said = await ended(process)
    assert sorted(receiver.taken) == sorted({*wanted} - {wanted[4]})
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert (letter["why"], letter["event"]["id"], letter["event"]["data"]) == ("400 bad", wanted[4], {})
    assert "hidden" not in letters.read_text() + said
    assert letters.stat().st_mode & 0o777 == 0o600
    assert "it is a dead letter now" in said


async def test_without_a_file_for_dead_letters_it_ends_and_loses_nothing(server: Log, receiver: Receiver):
    wanted = await written(server, 3)
    receiver.answer = lambda _, __: web.Response(status=404)
    async with forwarding(server, receiver, "--all", "-n", "team-a", "--tries", "1") as process:
        _, said = await asyncio.wait_for(process.communicate(), READY)
    assert process.returncode == 1
    assert said.decode().count("--dead-letters") == 1
    receiver.answer = taking
    async with forwarding(server, receiver, "--all", "-n", "team-a"):
        await receiver.until(3)
    assert sorted({*receiver.taken}) == sorted(wanted)


async def test_of_a_batch_that_ends_it_the_rest_is_given_back_at_once(server: Log, receiver: Receiver):
    wanted = await written(server, 6)
    receiver.answer = lambda _, __: web.Response(status=404)
    async with forwarding(server, receiver, "--batch", "6", "--all", "-n", "team-a", "--tries", "1") as process:
        await asyncio.wait_for(process.communicate(), READY)
    receiver.answer = taking
    async with forwarding(server, receiver, "--batch", "6", "--all", "-n", "team-a"):
        async with asyncio.timeout(durable.ACK_SECONDS / 2):
            await receiver.until(6)
    assert sorted({*receiver.taken}) == sorted(wanted)


async def test_a_redirect_is_not_followed(server: Log, receiver: Receiver):
    await written(server, 1)
    receiver.answer = lambda request, _: web.Response(status=307, headers={"Location": str(request.url)})
    async with forwarding(server, receiver, "--all", "-n", "team-a", "--tries", "1") as process:
        _, said = await asyncio.wait_for(process.communicate(), READY)
    assert (process.returncode, len(receiver.requests)) == (1, 1)
    assert b"307" in said


async def test_a_slow_receiver_has_few_events_in_hand_however_many_are_behind(server: Log, receiver: Receiver):
    """The server sends no more than a request's worth: what is behind stays there."""
    number = 3 * durable.IN_HAND
    await written(server, number)
    receiver.slow = 0.05
    async with forwarding(server, receiver, "--name", "slow", "--all", "-n", "team-a"):
        await receiver.until(10)
        pending, in_hand = await behind(server, "slow")
        assert in_hand <= durable.IN_HAND
        assert pending + in_hand + len(receiver.taken) >= number


async def test_an_outage_of_nats_and_a_lost_consumer_cost_no_event(server: Log, receiver: Receiver):
    async with forwarding(server, receiver, "--name", "lost", "--all", "-n", "team-a") as process:
        wanted = await written(server, 10)
        await receiver.until(10)
        server.kill()
        await asyncio.sleep(1.0)
        await server.start()
        wanted += await written(server, 10)
        await receiver.until(20)
        async with stranger(server) as client:
            await client.jetstream().delete_consumer("JOBS", "lost")
        wanted += await written(server, 10)
        await receiver.until(30)
        await ended(process)
    # An acknowledgement may be lost with a killed server, and then its event comes again.
    assert [*dict.fromkeys(receiver.taken)] == wanted


async def test_events_that_left_the_copy_are_told_here_and_to_the_receiver(server: Log, receiver: Receiver):
    small, large = 2**20, b'{"padding":"%s"}' % (b"x" * 8000)
    options = ("--name", "stopped", "--batch", "50", "--all")
    async with forwarding(server, receiver, *options) as process:
        known = (await write(server, 3))[-1]
        await receiver.until(known)
        await ended(process)
    await set_up(server.url, password=server.users["admin"], subscribers={Copy(): small})
    before = len(receiver.requests)
    last = (await write(server, 200, body=large))[-1]
    async with forwarding(server, receiver, *options) as process:
        async with asyncio.timeout(READY):
            while not receiver.taken[-1].endswith(f"-{last - 1}"):
                await asyncio.sleep(0.02)
        _, said = await ended(process)
    told, *events = (one for _, body in receiver.requests[before:] for one in json.loads(body))
    lost = told["data"]
    assert (told["type"], lost["first"]) == ("dev.muster.EventsLost", known + 1)
    assert int(events[0]["sequence"]) == lost["last"] + 1
    assert lost["most"] + len(events) == 200
    assert f"up to {lost['most']} events, with the sequences {known + 1} to {lost['last']}, left the copy" in said
    assert "`muster history`" in said


async def test_what_answers_no_http_is_told_without_the_path(server: Log):
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"garbage\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(garbage, HOST, 0) as listening:
        to = f"http://{HOST}:{listening.sockets[0].getsockname()[1]}/secret/path?token=abc"
        command = (sys.executable, "-m", "muster", "forward", "--to", to, "--all")
        process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=os.environ | environment(server))
        assert process.stderr is not None
        try:
            await written(server, 1)
            said = b""
            async with asyncio.timeout(READY):
                while b"no HTTP answer" not in said:
                    said += await process.stderr.readline()
        finally:
            process.kill()
            await process.communicate()
        assert b"secret" not in said
        assert b"token" not in said


async def test_a_chat_is_told_of_failures_alone(server: Log, receiver: Receiver):
    async with forwarding(server, receiver, "--format", "slack", "--phase", "Failed", "--all"):
        await written(server, 3)
        async with connected(server, "status") as log:
            failed = a_decision("team-a", 99, job="vgg", body=b'{"type":"JobFailed","reason":"Crash"}')
            subject = "jobs.team-a.vgg.u-1.status.JobFailed"
            await log.append(type(failed)(subject=subject, event_id="f", time=failed.time, body=failed.body), expect=0)
        async with asyncio.timeout(READY):
            while not receiver.requests:
                await asyncio.sleep(0.02)
    ((_, body),) = receiver.requests
    assert json.loads(body) == {"text": "team-a/vgg  JobFailed  Crash"}


async def test_the_receiver_of_the_page_believes_what_is_signed(server: Log, tmp_path: Path):
    program = (ROOT / "examples" / "events" / "receiver.py").read_text()
    (make,) = re.findall(r"^(echo .*) > secret$", PAGE, re.MULTILINE)
    secret = (await run("sh", "-c", make)).out
    (tmp_path / "secret").write_text(secret)
    await written(server, 3)
    there = Receiver()
    environ = os.environ | {"SECRET": secret.strip(), "PORT": str(there.port)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE, env=environ)
    assert process.stdout is not None
    try:
        options = ("--batch", "10", "--all", "-n", "team-a", "--secret-file", str(tmp_path / "secret"))
        async with forwarding(server, there, *options), asyncio.timeout(READY):
            lines = [(await process.stdout.readline()).decode().split() for _ in range(3)]
    finally:
        process.kill()
        await process.wait()
    assert [line[1:] for line in lines] == [["team-a/resnet/u-1", "dev.muster.SlotsAssigned"]] * 3


async def said_by(server: Log, *words: str, **changed: str) -> Ended:
    return await run(sys.executable, "-m", "muster", "forward", *words, environment=environment(server) | changed)


async def test_what_cannot_work_is_said_in_one_line(server: Log, tmp_path: Path):
    to = ("--to", "http://127.0.0.1:1/x")
    for words, changed, code, complaint in (
        (to, {"NATS_PASSWORD": "wrong"}, 1, "does not know this user"),
        (
            to,
            {"NATS_USER": READER, "NATS_URL": server.url, "NATS_PASSWORD": server.users[READER]},
            1,
            "NATS_USER=subscriber",
        ),
        ((*to, "--secret-file", "/none"), {}, 1, "cannot be read"),
        (("--to", "ftp://x/y"), {}, 2, "say where events are posted"),
        ((*to, "--phase", "Done"), {}, 2, "is no phase"),
        ((*to, "--type", "Nothing"), {}, 2, "no event has the type"),
        ((*to, "-n", "a.>"), {}, 2, "is no name"),
        ((*to, "--batch", "2", "--format", "binary"), {}, 2, "no binary mode"),
    ):
        said = await said_by(server, *words, **changed)
        assert (said.code, complaint in " ".join(said.complaint.split())) == (code, True), said
        assert code == 2 or said.complaint.count("\n") == 1, said


async def test_without_a_copy_it_says_how_to_make_one(tmp_path: Path):
    async with Log(tmp_path) as server:
        await set_up(server.url, password=server.users["admin"])
        said = await said_by(server, "--to", "http://127.0.0.1:1/x")
        assert (said.code, said.complaint.count("\n")) == (1, 1)
        assert "muster setup --subscribers BYTES" in said.complaint
        await set_up(server.url, password=server.users["admin"], subscribers={Copy(): COPY_BYTES})
