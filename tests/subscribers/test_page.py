"""The examples of `docs/events.md` as they stand there, against a real server, with a subscriber's password alone.

`MUSTER_KILLS=100` kills the server more often under them.
"""

import asyncio
import os
import re
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from devcluster import binaries
from shared.eventlog.account import SUBSCRIBER
from tests.docs.events_page import page
from tests.kit.nats import READY, a_decision, connected
from tests.kit.subscribers import TEAM_A, Log, a_log_for_subscribers, write

OLDER_GO = Path(__file__).with_name("older.go")
WRITTEN = Path(__file__).parents[2] / "docs" / "events.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)
HERE = Path(__file__).parent
SHOWN = Path(__file__).parents[2] / "examples" / "events"
PROGRAMS = [path.read_text() for path in (SHOWN / "ordered.py", SHOWN / "durable.py", HERE / "pushed.py")]
IN_GO = [path.read_text() for path in (SHOWN / "durable.go", HERE / "ordered.go")]
"""Those that the page links to, and one each of a kind that it leaves out."""

COMMANDS = [code for language, code in BLOCKS if language == "sh" and "nats " in code]
NAMES = ("resumed", "pulled", "pushed")
NAMES_IN_GO = ("durable", "ordered")

KILLS = int(os.environ.get("MUSTER_KILLS", "5"))

NEVER_BEHIND = ("resumed", "ordered in Go")
"""Programs whose consumers are ordered."""

IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"

pytestmark = pytest.mark.nats


def test_the_page_is_written_from_the_models():
    assert WRITTEN.read_text() == page(), "run `make pages` and review the diff"


def test_every_program_is_run():
    assert len(PROGRAMS) == len(NAMES)
    assert len(IN_GO) == len(NAMES_IN_GO)
    assert len(COMMANDS) == 1
    assert {language for language, _ in BLOCKS} == {"sh"}


@pytest.fixture(params=[SUBSCRIBER, TEAM_A.user])
def user(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def as_subscriber(server: Log, user: str) -> dict[str, str]:
    password = server.copies.users[user]
    return {"NATS_URL": server.copies.url, "NATS_USER": user, "NATS_PASSWORD": password, "PATH": os.environ["PATH"]}


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


async def sequences(
    command: tuple[str, ...], server: Log, number: int, user: str = SUBSCRIBER, **environment: str
) -> list[int]:
    """The sequences of the first events that the program prints."""
    await server.forgets()
    program = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stdin=DEVNULL, env=as_subscriber(server, user) | environment
    )
    assert program.stdout is not None
    try:
        async with asyncio.timeout(READY):
            return [int((await program.stdout.readline()).split()[0]) for _ in range(number)]
    finally:
        program.kill()
        await program.wait()
        server.left()


async def prints_and_goes_on(command: tuple[str, ...], name: str, directory: Path, user: str) -> None:
    """A durable consumer whose program is killed may send an event again, behind later ones; none is left out."""
    async with a_log_for_subscribers(directory) as server:
        first = await write(server, 3)
        await write(server, 1, "team-b")
        assert await sequences(command, server, 3, user) == first
        later = await write(server, 3)
        seen: dict[int, None] = {}
        async with asyncio.timeout(READY):
            while missing := {*later} - seen.keys():
                found = await sequences(command, server, len(missing), user, POSITION=str(first[-1]))
                seen |= dict.fromkeys(found)
        assert seen.keys() <= {*first, *later}
        if name in NEVER_BEHIND:
            assert [*seen] == later


@pytest.mark.parametrize(("code", "name"), [*zip(PROGRAMS, NAMES, strict=True)], ids=NAMES)
async def test_a_program_of_the_page_prints_the_events_and_goes_on_where_it_was(
    tmp_path: Path, code: str, name: str, user: str
):
    await prints_and_goes_on(python(code), name, tmp_path, user)


Build = Callable[..., tuple[str, ...]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a program in Go."""
    try:
        # The module of the NATS command line pins nats.go, which is on this machine once that was built.
        binaries.find("nats")
    except binaries.MissingProgram as missing:
        pytest.skip(str(missing))

    def build(code: str, name: str = "subscriber") -> tuple[str, ...]:
        source, program = tmp_path / f"{name}.go", tmp_path / name
        source.write_text(code)
        subprocess.run(["go", "build", "-o", program, source], cwd=binaries.HERE / "nats", check=True)
        return (str(program),)

    return build


@pytest.mark.parametrize(("code", "name"), [*zip(IN_GO, NAMES_IN_GO, strict=True)], ids=NAMES_IN_GO)
async def test_a_program_in_go_prints_the_events_and_goes_on_where_it_was(
    tmp_path: Path, build: Build, code: str, name: str, user: str
):
    await prints_and_goes_on(build(code), f"{name} in Go", tmp_path / "nats", user)


async def test_kills_of_the_servers_cost_no_program_an_event(tmp_path: Path, build: Build):
    """All programs of the page live through them, some on each copy; after deduplication each event is seen once."""
    programs = dict(zip(NAMES, map(python, PROGRAMS), strict=True))
    programs |= {f"{name} in Go": build(code, name) for name, code in zip(NAMES_IN_GO, IN_GO, strict=True)}
    # So that each copy is read by an ordered and by a durable consumer.
    users = dict(zip(programs, (SUBSCRIBER, TEAM_A.user, SUBSCRIBER, SUBSCRIBER, TEAM_A.user), strict=True))
    written: list[int] = []
    seen: dict[str, dict[int, None]] = {}

    async def follow(name: str, server: Log) -> None:
        found = seen[name] = {}
        command, environment = programs[name], as_subscriber(server, users[name])
        # On a busy machine a program may end before it began, and is started again, as whoever runs it does.
        while not found:
            program = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stdin=DEVNULL, env=environment)
            assert program.stdout is not None
            try:
                async for line in program.stdout:
                    found[int(line.split()[0])] = None
            finally:
                with suppress(ProcessLookupError):
                    program.kill()
                await program.wait()
        raise AssertionError(f"{name} ended")

    async def append(until: asyncio.Task[None], server: Log) -> None:
        async with connected(server) as log:
            while not until.done():
                written.append(await log.append(a_decision(number=len(written)), expect=written[-1] if written else 0))
                await asyncio.sleep(0.02)

    async def kill(server: Log) -> None:
        for _ in range(KILLS):
            for each in (server.copies, server):
                await asyncio.sleep(0.3)
                each.kill()
                await each.start()

    async def all_seen() -> None:
        while len(seen) < len(programs) or any(found.keys() != {*written} for found in seen.values()):
            await asyncio.sleep(0.05)

    async with a_log_for_subscribers(tmp_path / "nats") as server, asyncio.TaskGroup() as tasks:
        async with asyncio.timeout(2 * READY + 4 * KILLS):
            following = [tasks.create_task(follow(name, server)) for name in programs]
            written.extend(await write(server, 1))
            await all_seen()
            await append(tasks.create_task(kill(server)), server)
            await all_seen()
        for each in following:
            each.cancel()
    # What a durable consumer has sent and was not told of comes again later, behind other events.
    assert all([*found] == written for name, found in seen.items() if name in NEVER_BEHIND)


async def test_the_older_functions_of_nats_go_read_the_events(tmp_path: Path, build: Build, user: str):
    program = build(OLDER_GO.read_text())
    async with a_log_for_subscribers(tmp_path / "nats") as server:
        wanted = await write(server, 3)
        await write(server, 1, "team-b")
        assert await sequences((*program, "ordered"), server, 3, user) == wanted
        assert await sequences((*program, "ordered", str(wanted[1])), server, 2, user) == wanted[1:]
        for durable in ("pushed", "pulled"):
            assert await sequences((*program, durable), server, len(wanted), user) == wanted
            later = await write(server, 2)
            # One of them may have been on its way to the program that ended, and comes again behind the other.
            assert sorted(await sequences((*program, durable), server, 2, user)) == later
            wanted += later


async def test_the_command_line_reads_the_events(tmp_path: Path, user: str):
    try:
        program = binaries.find("nats")
    except binaries.MissingProgram as missing:
        pytest.skip(str(missing))
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, 4)
        await write(server, 1, "team-b")
        shell = await asyncio.create_subprocess_exec(
            *python(IN_A_TERMINAL),
            "sh",
            "-ec",
            COMMANDS[0],
            stdout=PIPE,
            stdin=DEVNULL,
            env=as_subscriber(server, user)
            | {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"},
        )
        output, _ = await asyncio.wait_for(shell.communicate(), READY)
    assert shell.returncode == 0, output.decode()
    assert output.count(b"jobs.team-a.resnet.u-1.scheduler.SlotsAssigned") == 4 + 3 + 4 + 4
    assert b"team-b" not in output
