"""Real launchers and workers of the digits example on this machine: one loopback address for each worker."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

from shared.ports import free_port

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
PATIENCE_SECONDS = 60.0
"""For a line that must come; generous, because machines that run tests are busy."""


class Program:
    """A running `worker.py` or `launcher.py` and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []

    async def line(self, pattern: str) -> re.Match[str]:
        """The next line that matches."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self._process.stdout.readline()).decode():
                self.lines.append(line.rstrip())
                if match := re.search(pattern, line):
                    return match
        raise AssertionError(f"no line matches {pattern!r}:\n" + "\n".join(self.lines))

    async def ended(self) -> int:
        """The exit code, once all it printed was read."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                self.lines += (await self._process.stdout.read()).decode().splitlines()
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            raise AssertionError("it did not end:\n" + "\n".join(self.lines)) from None

    def send(self, name: signal.Signals) -> None:
        self._process.send_signal(name)

    def running(self) -> bool:
        return self._process.returncode is None

    def matches(self, pattern: str) -> list[str]:
        """The first group of every line that matches, in order."""
        return [match[1] for line in self.lines if (match := re.search(pattern, line))]


class Yard:
    """Workers, a hosts script that prints what the test wants, and launchers that ask it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[Program] = []
        self._script = folder / "discover_hosts.sh"
        self._script.write_text(f"#!/bin/sh\ncat '{folder / 'hosts'}'\n")
        self._script.chmod(0o755)
        # Not 9009: two test runs on one machine stay apart.
        self._port = str(free_port())
        self.list_hosts()

    async def say(self, number: int, words: bytes) -> bytes:
        """What a worker answers to a stranger who says `words` and no more."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(f"127.0.0.{number}", int(self._port))
            writer.write(words)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

    def list_hosts(self, *numbers: int) -> None:
        self.print_hosts("".join(f"127.0.0.{number}:1\n" for number in numbers))

    def print_hosts(self, output: str) -> None:
        new = self._folder / "hosts.new"
        new.write_text(output)
        new.rename(self._folder / "hosts")

    async def workers(self, *numbers: int) -> list[Program]:
        """Workers on 127.0.0.<number>, all listening."""
        workers = [await self._start("worker.py", "--host", f"127.0.0.{number}") for number in numbers]
        for worker in workers:
            await worker.line("listening")
        return workers

    async def launcher(self, *arguments: str) -> Program:
        return await self._start("launcher.py", "--hosts", str(self._script), *arguments)

    async def end(self) -> None:
        """Everything ends when it is asked to, and nothing that ran here had an error that it did not expect."""
        for program in self._programs:
            if program.running():
                program.send(signal.SIGCONT)
                program.send(signal.SIGTERM)
        for program in self._programs:
            await program.ended()
            assert not program.matches("(Traceback|Error in)"), "\n".join(program.lines)

    async def _start(self, *command: str) -> Program:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--port",
            self._port,
            cwd=DIGITS,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._programs.append(Program(process))
        return self._programs[-1]
