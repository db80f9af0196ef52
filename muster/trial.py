"""`muster try`: a person's own program as an elastic job on this machine, with their Python and in their folder.

The job is a PyTorchJob: under torchrun where their Python has torch, and otherwise the program alone in each worker.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape

from devcluster.binaries import MissingProgram
from devcluster.child import ChildError
from muster import train
from muster.asking import PAGE_WIDTH, open_log, open_source, report_of
from muster.demo import NAMESPACE, SERVICES, STARTING, Teller, reader
from muster.following import Change, Failed, by_phase, follow
from muster.logs import lines
from muster.page.following import Readable
from muster.page.server import secret_of, serving
from muster.stack import Stack, supervised
from muster.terminal import harmless, has_colours, say, width
from shared.cluster import Applied
from shared.cluster.objects import Custom
from shared.errors import Refused, Trouble
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.installation.plugins import kinds
from shared.ports import free_port
from shared.private import write_private
from shared.telling.targets import Target, parse_target
from shared.telling.timeline import timeline
from shared.untrusted import at, objects

MOST_WORKERS = 8
"""How far the job can be scaled; more if it begins with more."""

RESTARTS = 5
"""How often torchrun begins again: it counts a group that lost a worker, and a program that fails has to end."""

PRIVATE = ("/tmp", "/run", "/dev")  # noqa: S108 - the names alone
"""Of these folders a pod has its own, so what the program needs of them is mounted."""

LAST_LINES_SECONDS = 5.0
"""Seconds after the job's end for the pods' last lines."""

EXAMINE = """
import importlib.util, json, sys
try:
    with open(sys.argv[1], "rb") as file:
        compile(file.read(), sys.argv[1], "exec")
except (SyntaxError, ValueError) as error:
    sys.exit(f"line {getattr(error, 'lineno', 1)} is not Python: {getattr(error, 'msg', error)}")
print(json.dumps([sys.executable, sys.prefix, sys.base_prefix, importlib.util.find_spec("torch") is not None]))
"""


class Program(NamedTuple):
    """A program, and the Python that runs it."""

    file: Path
    arguments: Sequence[str]
    python: str
    prefixes: Sequence[Path]
    """The folders of that Python."""
    has_torch: bool

    @property
    def job(self) -> str:
        """The name of its job: `train` of `train.py`."""
        name = re.sub("[^a-z0-9]+", "-", self.file.stem.lower()).strip("-")[:40].strip("-")
        return name if name[:1].isalpha() else f"job-{name}".strip("-")


def examined(file: Path, arguments: Sequence[str], python: str) -> Program:
    """The program, once its own Python could read it.

    `python` is a path or a command; empty for that of the active environment, else the first `python3` of the PATH
    that is not Muster's own.
    Raises `Refused` for a file that is not there or is no Python, and for a Python that does not run.
    """
    if not file.is_file():
        raise Refused(f"there is no program at {file}", reason="Invalid")
    chosen = python or _python_of_the_person()
    try:
        # Not in the person's folder: a file `json.py` there would be imported.
        ran = subprocess.run(
            [shutil.which(chosen) or chosen, "-c", EXAMINE, file.absolute()],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise Refused(f"{chosen} does not run: {error.strerror}; say --python PATH", reason="Invalid") from error
    if ran.returncode:
        raise Refused(f"{file}: {(ran.stderr.strip() or 'its Python failed').splitlines()[-1]}", reason="Invalid")
    executable, *prefixes, has_torch = json.loads(ran.stdout)
    return Program(file.absolute(), arguments, executable, [*map(Path, prefixes)], has_torch)


def _python_of_the_person() -> str:
    if active := os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX"):
        return f"{active}/bin/python"
    # A tool that runs Muster in an environment of its own puts that first.
    others = os.pathsep.join(folder for folder in os.get_exec_path() if not Path(folder).is_relative_to(sys.prefix))
    return shutil.which("python3", path=others) or sys.executable


def manifest(
    program: Program, workers: int, folder: Path, image: str = "", modules: Path | None = None
) -> dict[str, Any]:
    """The job: for a cluster with an `image` whose working folder has the program, else for pods of this machine.

    `modules` is a folder of this machine that the program imports from, after its own.
    """
    file = os.path.relpath(program.file, folder) if image else str(program.file)
    if program.has_torch:
        command = ["torchrun"] if image else [program.python, "-m", "torch.distributed.run"]
    else:
        command = ["python" if image else program.python]
    container: dict[str, Any] = {"name": "pytorch", "image": image or "none", "command": [*command, file]}
    container["command"] += program.arguments
    pod: dict[str, Any] = {"containers": [container]}
    if not image:
        needed = (program.file.parent, *program.prefixes, *((modules,) if modules else ()))
        mounts = {path: True for path in needed if any(map(path.is_relative_to, PRIVATE))} | {folder: False}
        named = [(f"folder-{number}", path, held) for number, (path, held) in enumerate(mounts.items())]
        container["workingDir"] = str(folder)
        container["volumeMounts"] = [
            {"name": name, "mountPath": str(path), "readOnly": held} for name, path, held in named
        ]
        container["env"] = [{"name": "PYTHONPATH", "value": str(modules)}] if modules else []
        pod["volumes"] = [{"name": name, "hostPath": {"path": str(path)}} for name, path, _ in named]
    most = max(MOST_WORKERS, workers)
    # A group that has its least size would wait half a minute for more members.
    wait = [{"key": "last_call_timeout", "value": "3"}]
    policy = {"minReplicas": 1, "maxReplicas": most, "nProcPerNode": 1, "maxRestarts": RESTARTS, "rdzvConf": wait}
    if not program.has_torch:
        # Without torchrun there is no store to meet at.
        policy["standalone"] = True
    # A program that fails ends the job: a person waits for it.
    worker = {"replicas": workers, "restartPolicy": "Never", "template": {"spec": pod}}
    return {
        "apiVersion": PYTORCHJOB.resource.api_version,
        "kind": PYTORCHJOB.resource.kind,
        "metadata": {"name": program.job},
        "spec": {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}},
    }


def _modules(folder: Path) -> Path:
    """The folder, with `muster.train` alone: a person's Python has no Muster."""
    # Without an `__init__.py` it is a part of a namespace, which yields to a Muster that is installed.
    (folder / "muster").mkdir(parents=True)
    shutil.copy(train.__file__, folder / "muster")
    return folder


class Trial:
    """One run of a program."""

    def __init__(self, data: Path, teller: Teller, program: Program, workers: int, *, keep: bool) -> None:
        self._data = data
        self._teller = teller
        self._program = program
        self._workers = workers
        self._keep = keep
        self._asked = parse_target(f"{PYTORCHJOB.resource.kind.lower()}/{program.job}")

    async def run(self) -> int:
        """Run the program to its end; return 0 if it succeeded, or 1 after a line that says why not."""
        self._teller.doing(STARTING, takes_long=True)
        try:
            async with (
                Stack(self._data, settings=SERVICES, reports=True) as stack,
                open_source(reader(stack), nats=True) as source,
                serving(Readable(source), NAMESPACE, port=free_port(), secret=secret_of(self._data)) as address,
                supervised(stack.programs, self._say),
            ):
                await self._train(stack, address)
        except (ChildError, MissingProgram, Trouble) as error:
            self._teller.still()
            self._teller.plain(harmless(f"muster: {error}"))
            return 1
        finally:
            self._teller.still()
        return 0

    async def _train(self, stack: Stack, address: str) -> None:
        (target,) = self._asked.targets
        variables = stack.reader() | {"PATH": f"{Path(sys.executable).parent}:$PATH"}
        exports = stack.data / "env"
        write_private(exports, "".join(f'export {name}="{value}"\n' for name, value in variables.items()))
        self._say(f"watch it at {address}")
        self._say(f"in another terminal: . {exports}; muster scale {target.label} --to {self._workers + 1}")
        under = "torchrun of " if self._program.has_torch else ""
        self._say(f"{self._workers} x {self._program.file.name}, with {under}{self._program.python}, in {Path.cwd()}")
        self._teller.still()
        made = manifest(self._program, self._workers, Path.cwd(), modules=_modules(stack.data / "modules"))
        job = await stack.kube.create(PYTORCHJOB.resource, NAMESPACE, made)
        printing = asyncio.create_task(self._print_lines(stack))
        reporting = asyncio.create_task(self._print_reports(stack))
        try:
            failed = await self._end(stack, target, job)
            with suppress(TimeoutError):
                await asyncio.wait_for(printing, LAST_LINES_SECONDS)
        finally:
            printing.cancel()
            reporting.cancel()
        await self._draw(stack)
        if self._keep:
            self._say("everything stays up; Ctrl-C ends it")
            await asyncio.Event().wait()
        if failed is not None:
            raise failed

    async def _end(self, stack: Stack, target: Target, job: Custom) -> Failed | None:
        """Print each phase until the job is over; why it failed, if it did."""
        change = Change(target, "", job, by_phase(target, {"Succeeded": True, "Failed": False}))
        try:
            await follow(stack.kube, change, timeout=0, tell=self._say, trouble=self._say)
        except Failed as failure:
            return failure
        return None

    async def _print_lines(self, stack: Stack) -> None:
        found = lines(stack.kube, self._asked, NAMESPACE, follow=True, tail=None, trouble=self._say)
        async with aclosing(found):
            async for line in found:
                self._teller.plain(harmless(f"[{line.pod}] {line.text}"))

    async def _print_reports(self, stack: Stack) -> None:
        """How far the program says that it is, whatever it prints."""
        before: list[dict[str, Any]] = []
        watch = stack.kube.watch(PYTORCHJOB.resource, namespace=NAMESPACE, name=self._program.job)
        async with aclosing(watch) as seen:
            async for each in seen:
                now = objects(at(each.object.status, "trainerStatus", "metrics")) if isinstance(each, Applied) else []
                if now and now != before:
                    before = now
                    self._say("reported: " + ", ".join(f"{known.get('name')} {known.get('value')}" for known in now))

    async def _draw(self, stack: Stack) -> None:
        async with open_log(reader(stack)) as log:
            report = await report_of(log, self._asked, NAMESPACE, kinds())
        for line in timeline(report, width() or PAGE_WIDTH, coloured=has_colours()):
            say(line, coloured=has_colours())

    def _say(self, text: str) -> None:
        self._teller.say(escape(harmless(text)))
