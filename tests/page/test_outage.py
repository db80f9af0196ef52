"""The log goes, and the page's own server, while a browser has a job open: it says so, and goes on by itself."""

from pathlib import Path

import pytest

from muster.asking import open_source
from muster.page.following import Readable
from muster.page.server import serving
from shared.eventlog.account import ADMIN, READER
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.job.events.status import JobFailed
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.process.settings import Settings
from tests.history.conftest import record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected
from tests.page.browser import PROGRAM, opened
from tests.page.conftest import SECRET

pytestmark = [
    pytest.mark.page,
    pytest.mark.nats,
    pytest.mark.skipif(not PROGRAM, reason="no Chromium is installed (apt-get install chromium)"),
]
TROUBLE = "document.querySelector('.trouble').textContent"
HEADING = "(document.querySelector('.heading')?.textContent ?? '')"


async def test_a_job_is_shown_on_through_an_outage_of_the_log_and_of_the_page_itself(tmp_path: Path):
    history = History(JobKey("team-a", "resnet", Uid("uid-resnet")))
    async with NatsServer(tmp_path / "nats") as nats, opened() as tab:
        await set_up(nats.url, user=ADMIN, password=nats.users[ADMIN])
        async with connected(nats, ADMIN) as log:
            await record(log, a_running_job(2), history)
        settings = Settings(nats_url=nats.url, nats_user=READER, nats_password=nats.users[READER])
        async with open_source(settings, nats=True) as source:
            async with serving(Readable(source), "", port=0, secret=SECRET) as address:
                await tab.go(f"{address}jobs/team-a/trainingjob/resnet")
                await tab.until(f"{HEADING}.includes('Running')")
                nats.kill()
                assert "no connection" in await tab.until(TROUBLE)
                # What was known stays in sight.
                assert await tab.run(f"{HEADING}.includes('Running')")
                await nats.restart()
                await tab.until(f"{TROUBLE} === ''")
            assert "does not answer" in await tab.until(TROUBLE)
            async with connected(nats, ADMIN) as log:
                await record(log, [JobFailed(reason="Crash", message="too hot")], history)
            port = int(address.split(":")[2].partition("/")[0])
            async with serving(Readable(source), "", port=port, secret=SECRET):
                await tab.until(f"{HEADING}.includes('Failed') && {TROUBLE} === ''")
