"""Commands in launchers: scripts of requests, and checks of which workers are still in use.

The outcome is a fact that only the scaler knows.  Scripts, their environment and their output are neither kept nor
logged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from posixpath import basename
from typing import TypeVar

import structlog

from services.scaler.core import commands
from services.scaler.core.effects import CheckDrain, LinkHosts, RunScript
from shared.backoff import doubled
from shared.cluster import Cluster, Execution
from shared.cluster.kinds import PODS
from shared.errors import Refused, Transient, Trouble
from shared.frameworks.scale_requests import REQUESTS, parse_scale
from shared.job import reasons
from shared.job.events.scaler import DrainChecked, ScriptFinished
from shared.job.evolve_requests import SCRIPT_OUTCOME_UNKNOWN
from shared.job.naming import DISCOVER_HOSTS, EDL_FOLDER, JobKey
from shared.job.scaling import TIMED_OUT
from shared.job.state import Job
from shared.runtime.ownership import is_there

T = TypeVar("T")

log = structlog.get_logger()

LOOKS_AT_ONCE = 8

LOOK_SECONDS = 5.0
"""Seconds for one check, its wait for a turn included; a check that times out is repeated later."""

BUSY = frozenset({"TooManyRequests", "ServiceUnavailable", "InternalError"})
"""Refusals after which the next check may succeed."""

MOST_ARGUMENTS = 4 << 20
"""Bytes: the arguments of a few hundred processes that each list a thousand workers."""

HOSTS = ("sh", f"{EDL_FOLDER}/{DISCOVER_HOSTS}")
"""Prints the hosts file; it needs only a shell, as the script does."""

LINK = (
    'while [ $# -gt 1 ]; do [ ! -e "$1" ] || { ln -sf "$2" "$1.new" && mv -f "$1.new" "$1"; } || exit 1; shift 2; done'
)
"""Replaces each existing file by a link, with a rename: a reader gets the old content or the new one."""

LISTED_AGAIN_SECONDS = 0.1
LONGEST_LISTED_AGAIN_SECONDS = 2.0
SPARE_SECONDS = 2.0
"""Seconds to read the request and to wait for the files; more are taken off the script's timeout."""

READS = 4
READ_AGAIN_SECONDS = 0.5


class LauncherCommands:
    def __init__(self, cluster: Cluster, *, allowed: bool = True) -> None:
        """Unless commands are `allowed`, each one is refused before anything is asked of the cluster."""
        self._cluster = cluster
        self._allowed = allowed
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def run(self, job: Job, effect: RunScript) -> ScriptFinished:
        loop = asyncio.get_running_loop()
        key, begun = job.key, loop.time()
        try:
            command = await _insisting(lambda: self._read(key, effect))
            if effect.kind == "ScaleOut" and not await self._listed(job, effect):
                return ScriptFinished(request=effect.request, reason=reasons.HOSTS_NOT_WRITTEN)
            await _insisting(lambda: self._must_be_launcher(job, effect.pod, effect.pod_uid))
        except Refused as refusal:
            return ScriptFinished(request=effect.request, reason=refusal.reason)
        except Trouble:
            return ScriptFinished(request=effect.request, reason="Unreachable")
        # If the preparation takes long, the script's end has to be known in time all the same.
        timeout = effect.timeout - max(loop.time() - begun - SPARE_SECONDS, 0.0)
        if timeout <= 0:
            return ScriptFinished(request=effect.request, reason="Unreachable")
        begun = loop.time()
        try:
            ended = await self._cluster.execute(key.namespace, effect.pod, effect.container, command, timeout=timeout)
        except Refused as refusal:
            return ScriptFinished(request=effect.request, reason=refusal.reason)
        except Trouble as trouble:
            # A difference of two times may be rounded below the timeout.
            late = loop.time() >= begun + timeout
            log.info("the script's end was not seen", job=str(key), request=effect.name, why=str(trouble))
            return ScriptFinished(request=effect.request, reason=TIMED_OUT if late else SCRIPT_OUTCOME_UNKNOWN)
        return ScriptFinished(request=effect.request, exit_code=ended.exit_code)

    async def check_drain(self, job: Job, effect: CheckDrain) -> DrainChecked:
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._looks:
                ended = await self._look(job, effect.pod, effect.pod_uid, effect.container, commands.LOOK)
        except Refused as refusal:
            reason = TIMED_OUT if refusal.reason in BUSY else refusal.reason
            return DrainChecked(request=effect.request, reason=reason)
        except (Trouble, TimeoutError):
            return DrainChecked(request=effect.request, reason=TIMED_OUT)
        used = commands.in_use(ended.output, effect.workers)
        return DrainChecked(request=effect.request, in_use=used, reason="" if used else _doubt(ended))

    async def link(self, job: Job, effect: LinkHosts, files: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Link each of `files` to its file of the ConfigMap, once that has the `wanted` content.

        Raises `Transient` until then, and `Refused` if the launcher's image lacks the programs.
        """
        shown = next(iter(files.values()))
        said = await self._ask(job, effect, "cat", shown)
        if said.exit_code == 0 and said.output.decode(errors="replace") != wanted[basename(shown)]:
            raise Transient("the launcher does not show the newest hosts files yet")
        if said.exit_code == 0:
            pairs = [path for pair in files.items() for path in pair]
            said = await self._ask(job, effect, "sh", "-c", LINK, "link", *pairs)
        if said.exit_code:
            raise Refused("the launcher's hosts files cannot be made links", reason="CannotExecute")

    async def _ask(self, job: Job, effect: LinkHosts, *command: str) -> Execution:
        return await self._look(job, effect.name, effect.uid, effect.container, command)

    async def _look(self, job: Job, pod: str, uid: str, container: str, command: Sequence[str]) -> Execution:
        await self._must_be_launcher(job, pod, uid)
        return await self._cluster.execute(
            job.key.namespace, pod, container, command, timeout=LOOK_SECONDS, most=MOST_ARGUMENTS
        )

    async def _must_be_launcher(self, job: Job, pod: str, uid: str) -> None:
        if not self._allowed:
            raise Refused("commands in launchers are switched off", reason=reasons.EXEC_OFF)
        if not await is_there(self._cluster, PODS, job, pod, uid):
            raise Refused("the launcher is gone", reason=reasons.NO_LAUNCHER)

    async def _listed(self, job: Job, effect: RunScript) -> bool:
        """Wait until the kubelet has brought the new workers into the launcher's hosts files.

        There is no wait if the check is refused: the script then reports what is wrong.
        """
        loop = asyncio.get_running_loop()
        until, looks = loop.time() + effect.timeout / 2, 0
        while True:
            try:
                shown = await self._look(job, effect.pod, effect.pod_uid, effect.container, HOSTS)
            except Refused:
                return True
            except Trouble:
                pass
            else:
                if shown.exit_code or {*effect.hosts.encode().split(b",")} <= {*shown.output.split()}:
                    return True
            if loop.time() >= until:
                return False
            looks += 1
            await asyncio.sleep(doubled(LISTED_AGAIN_SECONDS, looks, LONGEST_LISTED_AGAIN_SECONDS))

    async def _read(self, key: JobKey, effect: RunScript) -> list[str]:
        request = await self._cluster.get(REQUESTS[effect.kind], key.namespace, effect.name)
        if request is None or request.metadata.uid != effect.request:
            raise Refused("the request is gone, and its script with it", reason=reasons.REQUEST_DELETED)
        # Another definition may let requests change after they were accepted.
        parsed = parse_scale(effect.kind, request)
        if isinstance(parsed, tuple) or not parsed.script or not isinstance(request.spec, dict):
            raise Refused("the request has changed", reason="RequestChanged")
        environment = request.spec.get("env") or ()
        if any(each.get("valueFrom") for each in environment):
            raise Refused("a value is not in the request", reason="InvalidEnvironment")
        variables = [(each["name"], each.get("value") or "") for each in environment]
        return commands.script_command(request.spec["script"], variables, effect.hosts)


async def _insisting(read: Callable[[], Awaitable[T]]) -> T:
    """Read once more after trouble that may pass: nothing has started yet."""
    for _ in range(READS - 1):
        try:
            return await read()
        except Transient as trouble:
            await asyncio.sleep(trouble.retry_after or READ_AGAIN_SECONDS)
    return await read()


def _doubt(ended: Execution) -> str:
    """Why an output without any worker's name proves nothing; empty if it proves that none is in use."""
    # The output always has the process that prints it.  That ends with 1 if files are not there, or with their number
    # (uutils), and with more than 128 if a signal ended it before it came to all.
    if not ended.output or ended.exit_code > 128:
        return "NoAnswer"
    return "TooLong" if len(ended.output) >= MOST_ARGUMENTS else ""
