"""The archiver on a real NATS server: what is sealed leaves the log once its copy was read back, and is still told."""

from muster.history import Part, known_by_log, lines
from services.archive.archiving import Archiver
from services.archive.probes import ArchiveFigures
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.frameworks.kinds import BUILT_IN
from shared.job.naming import history_filters
from shared.telling.targets import parse_target
from tests.kit.nats import a_namespace, connected, read_to_end
from tests.kit.sealed import Life, a_key


def archiver(log: JetStreamEventLog, **options: object) -> Archiver:
    return Archiver(log, BUILT_IN, ArchiveFigures(), **options)


async def noted(made: Archiver, log: JetStreamEventLog) -> Archiver:
    for stored in await read_to_end(log, "jobs.*.*.*.status.JobSealed"):
        made.note(stored)
    await log.end()
    return made


async def told(log: JetStreamEventLog, name: str, namespace: str, uid: str = "") -> list[str]:
    known = known_by_log(log, parse_target(f"trainingjob/{name}"), namespace, uid=uid)
    return [line async for line in lines(known, Part(as_json=True))]


async def test_a_sealed_history_leaves_the_log_and_is_told_from_the_archive(nats_server: NatsServer):
    namespace = a_namespace()
    key = a_key(namespace)
    async with connected(nats_server, "admin") as log, connected(nats_server, "archiver") as mine:
        await (life := Life(log, key)).live()
        sealed = await life.seal()
        before = await told(log, key.name, namespace)
        await (made := await noted(archiver(mine), mine)).turn(lambda: True)
        [left] = await read_to_end(log, *history_filters(key))
        assert left.sequence == sealed.sequence
        assert [*made.sealed.values()][-1].trouble == ""
    async with connected(nats_server, "reader") as reader:
        assert await told(reader, key.name, namespace) == before
        assert await told(reader, key.name, namespace, key.uid) == before
