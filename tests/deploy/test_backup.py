"""The CronJobs that back the log up and export the archive: their containers' commands, on a real NATS server."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from shared.eventlog.account import ADMIN, ARCHIVER, READER
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from tests.archive.test_archiver import archive
from tests.deploy.charts import require
from tests.history.conftest import record
from tests.kit.builders import a_running_job
from tests.kit.commands import Ended, run
from tests.kit.nats import a_namespace, connected, read_to_end
from tests.kit.sealed import a_key, a_sealed_life

pytestmark = pytest.mark.nats

MANIFEST = Path(__file__).parents[2] / "deploy/backup/backup.yaml"
KEPT = 14


async def test_a_log_is_backed_up_each_night_and_restored_event_by_event(tmp_path: Path) -> None:
    nats = require("nats")
    claim, job = yaml.safe_load_all(MANIFEST.read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert {"claimName": claim["metadata"]["name"]} in [each.get("persistentVolumeClaim") for each in pod["volumes"]]
    [container] = pod["containers"]
    backups, password = tmp_path / "backups", tmp_path / "password"
    backups.mkdir()
    for day in range(10, 10 + KEPT + 3):
        (backups / f"2020-01-{day}T024700Z").mkdir()
    (backups / "2020-02-01T024700Z.part").mkdir()
    async with NatsServer(tmp_path / "nats") as server:
        await set_up(server.url, user=ADMIN, password=server.users[ADMIN])
        async with connected(server, ADMIN) as log:
            await record(log, a_running_job(2), History(JobKey("team-a", "resnet", Uid("uid-1"))))
            known = await read_to_end(log, ">"), await log.identity()
        password.write_text(server.users[ADMIN])
        given = {each["name"]: each["value"] for each in container["env"] if each["name"] != "NATS_CA"}
        given |= {
            **{"NATS_URL": server.url, "PASSWORD_FILE": str(password), "BACKUPS": str(backups), "HOME": str(tmp_path)},
            "PATH": f"{nats.parent}{os.pathsep}{os.environ['PATH']}",
        }

        async def told(*command: str, **more: str) -> Ended:
            ended = await run(*command, environment={**given, **more})
            assert ended.code == 0, ended.out + ended.complaint
            return ended

        await told(*container["command"])
        found = sorted(path.name for path in backups.iterdir())
        assert len(found) == KEPT
        assert found[0] == "2020-01-14T024700Z"
        assert not [name for name in found if name.endswith(".part")]
        login = {"NATS_PASSWORD": server.users[ADMIN]}
        for stream in ("JOBS", "KV_HEADS", "ARCHIVE"):
            await told("nats", "stream", "rm", "-f", stream, **login)
            await told("nats", "stream", "restore", str(backups / found[-1] / stream), "--no-progress", **login)
        async with connected(server, ADMIN) as log:
            assert (await read_to_end(log, ">"), await log.identity()) == known
        # A log that is not there makes no backup that looks whole, and takes none away.
        await told("nats", "stream", "rm", "-f", "KV_HEADS", **login)
        failed = await run(*container["command"], environment=given)
        assert failed.code != 0
        assert [path.name for path in sorted(backups.iterdir()) if not path.name.endswith(".part")] == found


async def test_archived_histories_are_written_as_files_each_night(nats_server: NatsServer, tmp_path: Path) -> None:
    [job] = yaml.safe_load_all((MANIFEST.parent / "export.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["initContainers"]
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key := a_key(a_namespace()))
        await archive(mine, key.namespace)
    assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in container["volumeMounts"]}
    (password := tmp_path / "password").write_text(nats_server.users[READER])
    given = {each["name"]: each["value"] for each in container["env"] if each["name"] != "NATS_CA"}
    given |= {"NATS_URL": nats_server.url, "NATS_PASSWORD_FILE": str(password)}
    arguments = [str(tmp_path) if each == "/histories" else each for each in container["args"]]
    ended = await run(sys.executable, "-m", "muster", *arguments, environment=given)
    assert ended.code == 0, ended.out + ended.complaint
    assert (tmp_path / key.namespace / key.name / f"{key.uid}.jsonl").exists()
