"""Examines the log: the server, the streams, the leases and the histories."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from cryptography import x509

from muster.archive import found_waiting
from muster.asking import open_log
from muster.doctor import log as of_log
from muster.doctor import servers
from muster.doctor.findings import Choices, Finding, ok, part, unknown
from shared.errors import Refused, Trouble
from shared.eventlog import inspection
from shared.eventlog.account import ARCHIVER, STREAM
from shared.eventlog.inspection import server_of
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.setup import must_fit
from shared.eventlog.streams import STREAMS, StreamInfo, differences
from shared.eventlog.tls import Life
from shared.job.fold import Histories
from shared.job.naming import namespace_filters
from shared.process.settings import Settings
from shared.runtime.heads import Anchor, differs
from shared.telling.reading import fold_to_end

REACHED = "log.reached"
ANCHOR = "log.anchor"


class LogExamination:
    """One examination of the log; the services' lag is computed from `ends`."""

    def __init__(self, settings: Settings, choices: Choices) -> None:
        self.ends: dict[str, int] = {}
        """The last sequence of each namespace, and of the whole log under the empty name."""
        self.identity = ""
        self._settings = settings
        self._choices = choices

    async def findings(self) -> list[Finding]:
        return await part(REACHED, "the log at NATS_URL", self._all(), 2 * self._choices.timeout)

    async def _all(self) -> list[Finding]:
        async with open_log(self._settings) as log:
            found = [servers.nats(log.connection.version), *self._of_certificates(log)]
            try:
                identity = await log.identity()
            except Trouble as trouble:
                if isinstance(trouble, Refused) and trouble.reason == "Forbidden":
                    words = f"{log.url} answers, and this user may not read the log: {trouble}"
                    return [*found, unknown(REACHED, words, "set NATS_USER to `reader`, or to a service's user")]
                raise
            self.identity = identity
            found.append(ok(REACHED, f"{log.url} answers, with the log {identity}"))
            seconds = self._choices.timeout
            parts = await asyncio.gather(
                part("log.streams", log.url, self._of_streams(log), seconds),
                self._of_disks(),
                part("services.owners", log.url, self._of_owners(log), seconds),
                part("jobs.histories", log.url, self._of_histories(log, identity), seconds),
                part("log.archive", log.url, self._of_archive(log), seconds),
            )
        return [*found, *(finding for each in parts for finding in each)]

    def _of_certificates(self, log: JetStreamEventLog) -> list[Finding]:
        lives = {"the certificate of the log's server": log.connection.certificate}
        if (ours := self._settings.nats_cert) is not None:
            held = x509.load_pem_x509_certificate(ours.read_bytes())
            lives[f"our certificate {ours}"] = Life(held.not_valid_before_utc, held.not_valid_after_utc)
        now = datetime.now(UTC)
        return [servers.lasting(whose, life, now) for whose, life in lives.items() if life is not None]

    async def _of_streams(self, log: JetStreamEventLog) -> list[Finding]:
        asked = datetime.now(UTC)
        looked = [await inspection.stream(log, name) for name in STREAMS]
        answered = datetime.now(UTC)
        there = [stream for stream in looked if stream is not None]
        if lacking := [name for name in STREAMS if name not in {stream.name for stream in there}]:
            return [of_log.missing(lacking)]
        self.ends[""] = next(stream.state.last_seq for stream in there if stream.name == STREAM)
        unfit = ""
        try:
            await must_fit(log)
        except Refused as refusal:
            if refusal.reason != "Unfit":
                raise
            unfit = str(refusal)
        found = of_log.settings(unfit, differences({stream.name: stream.config for stream in there}))
        found += [*of_log.copies(there), *of_log.room(there)]
        found += of_log.mirrors(await inspection.mirrors(log))
        found += of_log.subscribers(await inspection.copies(log) or {})
        found += await _outlook(log, next(stream for stream in there if stream.name == STREAM), answered)
        if (time := there[-1].ts) is not None:
            reading = servers.Reading(time, asked, answered)
            found.append(servers.difference("clock.nats", "the NATS server", reading))
        return found

    async def _of_archive(self, log: JetStreamEventLog) -> list[Finding]:
        waiting, (held, _) = await found_waiting(log, self._settings.namespace), await inspection.holdings(log)
        oldest = datetime.fromisoformat(waiting[0].since) if waiting else None
        working = any(each.key.partition(".")[0] == ARCHIVER for each in held)
        return [of_log.archive(len(waiting), oldest, datetime.now(UTC), working=working)]

    async def of_anchors(self, anchors: Sequence[Anchor]) -> list[Finding]:
        """Whether the log leads to these anchors of the cluster."""

        async def compared() -> list[Finding]:
            async with open_log(self._settings) as log:
                subjects = namespace_filters(self._settings.namespace)
                return [of_log.anchor(each, await differs(log, each, subjects)) for each in anchors]

        return await part(ANCHOR, "the anchor", compared(), 2 * self._choices.timeout)

    async def _of_disks(self) -> list[Finding]:
        """The findings about each server's disk; a server that does not answer does not affect the others."""
        monitors = self._settings.nats_monitor
        if not monitors:
            return [of_log.unmonitored()]

        async def of(monitor: str) -> list[Finding]:
            return of_log.disk(await server_of(monitor))

        looks = await asyncio.gather(*(part("log.fsync", each, of(each), self._choices.timeout) for each in monitors))
        return [finding for each in looks for finding in each]

    async def _of_owners(self, log: JetStreamEventLog) -> list[Finding]:
        scope = self._settings.namespace
        found = servers.owners(*await inspection.holdings(log), scope=scope)
        if all(finding.status == "ok" for finding in found):
            return found
        # A lease may be changing hands at this moment.
        await asyncio.sleep(inspection.PASSING_SECONDS)
        return servers.owners(*await inspection.holdings(log), scope=scope)

    async def _of_histories(self, log: JetStreamEventLog, identity: str) -> list[Finding]:
        histories, subjects = Histories(), namespace_filters(self._settings.namespace)
        seconds = self._choices.timeout * 0.9
        try:
            async with asyncio.timeout(seconds):
                await fold_to_end(log, histories.fold, subjects)
        except TimeoutError:
            words = f"{histories.position} of {await log.end(subjects)} events were read within {seconds:g} s"
            return [
                unknown("jobs.histories", words, "give it more time with --timeout"),
                *of_log.troubles(histories, identity),
            ]
        for history in histories:
            namespace = history.job.key.namespace
            self.ends[namespace] = max(self.ends.get(namespace, 0), history.sequence)
        return of_log.histories(histories, identity)


async def _outlook(log: JetStreamEventLog, jobs: StreamInfo, now: datetime) -> list[Finding]:
    begin = max(jobs.state.first_seq, jobs.state.last_seq - of_log.LATEST_EVENTS)
    async with aclosing(log.read(after=begin - 1)) as batches:
        async for batch in batches:
            if batch.events:
                since = datetime.fromisoformat(batch.events[0].logged)
                return of_log.outlook(jobs, since, jobs.state.last_seq - batch.events[0].sequence, now)
            break
    return []
