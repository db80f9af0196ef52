"""A demo that stays up starts its killed processes again; a second start on the same folder begins the story anew."""

import os
import signal
import sys
from pathlib import Path

import pytest

from devcluster import binaries
from devcluster.binaries import MissingProgram
from devcluster.node.rootfs import PRIVATE
from muster import train
from tests.kit.clusters import eventually
from tests.kit.commands import run
from tests.kit.controlplane import require_control_plane
from tests.kit.demo import child, demo, until
from tests.kit.traces import nothing_running

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120.0

LAST = "tail -f"
"""The last line that a demo prints before it stays."""

OURS = {
    "nats/server.conf": "the NATS server",
    "copies/server.conf": "the NATS server of the copies",
    "services.scheduler": "the scheduler",
    "devcluster.node": "node-0",
}
EMBEDDED = {**OURS, "devcluster.apiserver": "the API server"}
REAL = {**OURS, **{name: name for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")}}
"""A word of each program's command line, and its name in the demo's lines; the store last: others may end with it."""


@pytest.mark.parametrize(
    ("cluster", "programs"),
    [
        pytest.param("embedded", EMBEDDED, id="embedded"),
        pytest.param("real", REAL, id="real", marks=pytest.mark.real),
    ],
)
async def test_every_killed_program_is_named_and_started_again(tmp_path: Path, cluster: str, programs: dict[str, str]):
    if cluster == "real":
        require_control_plane()
    kubectl = _kubectl()
    with demo(tmp_path, "--cluster", cluster, "--keep") as process:
        printed = until(process, LAST)
        if cluster == "embedded" and not any(map(Path(train.__file__).is_relative_to, PRIVATE)):
            # Of which step says the machine: the history is read as soon as the job has ended.  A program that does not
            # see Muster, as of a checkout in a folder of which each pod has one of its own, reports nothing.
            assert any("ProgressReported" in line and "total=420" in line for line in printed), "\n".join(printed)
        for words, name in programs.items():
            os.kill(child(process, words), signal.SIGKILL)
            until(process, f"{name} ended; starting it again")
            until(process, f"{name} runs again")

        exports = [line for line in printed if line.startswith("export ") and not line.startswith("export PATH")]
        (again,) = [line for line in printed if "# all of it again" in line]
        prepared = "\n".join([*exports, f"export PATH={kubectl.parent}:$PATH"])

        async def phase(request: str) -> str:
            asked = f"{prepared}\nkubectl get {request} -o jsonpath='{{.status.phase}}'"
            return (await run("bash", "-c", asked)).out

        async def does(command: str) -> str:
            done = await run("bash", "-c", f"{prepared}\n{command}", patience=PATIENCE_SECONDS)
            assert done.code == 0, done
            return done.out

        delete, apply = again.split(";")
        await does(delete)
        # Until the watcher's watches are back, it takes a request for the next job as one for the job that it knows.
        jobs = f"{sys.executable} -m muster get"
        await eventually(lambda: does(jobs), lambda shown: "digits" not in shown, patience=PATIENCE_SECONDS)
        await does(apply)
        for request in ("scaleout/digits-out", "scalein/digits-in"):
            await eventually(
                lambda request=request: phase(request), lambda now: now == "ScaleSucceeded", patience=PATIENCE_SECONDS
            )
    assert nothing_running(tmp_path) == []


def _kubectl() -> Path:
    try:
        return binaries.kubectl()
    except MissingProgram as missing:
        pytest.skip(f"this test speaks as a user of kubectl does: {missing}")


def test_a_second_start_on_the_same_data_begins_the_story_again(tmp_path: Path):
    data = tmp_path / "data"
    for told in ("applied trainingjob/digits", "deleted trainingjob/digits of an earlier start"):
        with demo(tmp_path, "--data", str(data)) as process:
            until(process, told)
            until(process, "trainingjob/digits is Running")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_SECONDS)
    assert nothing_running(tmp_path) == []


def test_a_second_start_beside_the_first_is_refused_and_harms_nothing(tmp_path: Path):
    data = tmp_path / "data"
    with demo(tmp_path, "--data", str(data), "--keep") as first:
        until(first, "up: NATS")
        with demo(tmp_path, "--data", str(data)) as second:
            said, _ = second.communicate(timeout=PATIENCE_SECONDS)
        assert second.returncode == 1
        assert said.splitlines()[-1].startswith(f"muster demo: the process {first.pid} keeps its log in {data}")
        until(first, "trainingjob/digits is Running")
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=PATIENCE_SECONDS)
    assert nothing_running(tmp_path) == []
