"""The digits example, run as its users run it: real processes that train over TCP."""

import asyncio
import json
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.examples.yard import DIGITS, Yard

LEARNT = r"^(epoch=\d+ step=\d+ loss=\S+ accuracy=\S+)"
WORKERS = r"^epoch=.* workers=(\d+)"


async def _undisturbed(yard: Yard) -> list[str]:
    """What one worker learns in 15 epochs when nothing happens."""
    yard.list_hosts(2)
    launcher = await yard.launcher("--epochs", "15")
    assert await launcher.ended() == 0
    learnt = launcher.matches(LEARNT)
    assert len(learnt) == 15
    return learnt


def _message(**fields: object) -> bytes:
    text = json.dumps(fields).encode()
    return struct.pack("!II", len(text), 0) + text


async def test_two_workers_learn_to_read_digits(yard: Yard) -> None:
    await yard.workers(2, 3)
    yard.list_hosts(2, 3)
    launcher = await yard.launcher("--epochs", "15")
    assert await launcher.ended() == 0
    assert float(launcher.matches(r"^accuracy=(.*)")[0]) >= 0.95
    assert set(launcher.matches(WORKERS)) == {"2"}


async def test_it_grows_and_shrinks_while_it_trains_and_takes_every_step_once(yard: Yard) -> None:
    workers = await yard.workers(2, 3, 4, 5)
    yard.list_hosts(2, 3)
    launcher = await yard.launcher("--epochs", "15", "--epoch-seconds", "0.3")
    await launcher.line("epoch=2 .*workers=2")
    yard.list_hosts(2, 3, 4, 5)
    changed = asyncio.get_running_loop().time()
    await launcher.line("group generation=2 workers=4 ")
    # One second between two looks at the list, one step of 0.02 s, and room for a busy machine.
    assert asyncio.get_running_loop().time() - changed < 5
    await launcher.line("epoch=.*workers=4")
    yard.list_hosts(2, 3, 4)
    await launcher.line("group generation=3 workers=3 ")
    workers[3].send(signal.SIGTERM)
    assert await workers[3].ended() == 0
    assert await launcher.ended() == 0
    assert launcher.matches(LEARNT) == await _undisturbed(yard)
    assert sorted(set(launcher.matches(WORKERS))) == ["2", "3", "4"]
    assert not launcher.matches("(broke)")


async def test_a_killed_worker_costs_nothing_but_itself(yard: Yard) -> None:
    workers = await yard.workers(2, 3, 4)
    yard.list_hosts(2, 3, 4)
    launcher = await yard.launcher("--epochs", "15", "--epoch-seconds", "0.2")
    await launcher.line("epoch=3 ")
    workers[1].send(signal.SIGKILL)
    await launcher.line("group generation=2 workers=2 .*ranks=127.0.0.2,127.0.0.4")
    await launcher.line("epoch=6 ")
    workers[2].send(signal.SIGTERM)
    await launcher.line("127.0.0.4: is leaving")
    assert await launcher.ended() == 0
    assert launcher.matches(WORKERS)[-1] == "1"
    # One line for the member that says goodbye, and none for what its neighbours lost.
    assert not launcher.matches("(broke.*is leaving)")
    assert launcher.matches(LEARNT) == await _undisturbed(yard)


async def test_a_worker_that_hangs_is_left_out_until_it_answers_again(yard: Yard) -> None:
    workers = await yard.workers(2, 3, 4)
    yard.list_hosts(2, 3, 4)
    launcher = await yard.launcher("--epochs", "1000", "--epoch-seconds", "0.2", "--patience", "0.5")
    await launcher.line("epoch=2 .*workers=3")
    workers[1].send(signal.SIGSTOP)
    await launcher.line("127.0.0.3: no answer within 1 s")
    await launcher.line("group .* workers=2 .*ranks=127.0.0.2,127.0.0.4")
    workers[1].send(signal.SIGCONT)
    await launcher.line("group .* workers=3 .*ranks=127.0.0.2,127.0.0.3,127.0.0.4")
    await launcher.line("epoch=.*workers=3")


@pytest.mark.parametrize(("told", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)])
async def test_a_lost_launcher_leaves_idle_workers_that_serve_the_next_one(
    yard: Yard, told: signal.Signals, code: int
) -> None:
    workers = await yard.workers(2, 3)
    yard.list_hosts(2, 3)
    first = await yard.launcher("--epochs", "1000")
    await first.line("epoch=2 ")
    first.send(told)
    assert await first.ended() == code
    await workers[0].line("idle")
    second = await yard.launcher("--epochs", "15")
    assert await second.ended() == 0


async def test_a_second_launcher_does_not_disturb_the_first(yard: Yard) -> None:
    await yard.workers(2)
    yard.list_hosts(2)
    first = await yard.launcher("--epochs", "1000", "--epoch-seconds", "0.1")
    await first.line("epoch=1 ")
    second = await yard.launcher("--wait", "0.5")
    await second.line("127.0.0.2: is busy with another launcher")
    assert await second.ended() == 1
    await first.line("epoch=.* workers=1")
    assert not first.matches("(broke)")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"", id="a readiness probe"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: digits\r\n\r\n", id="a browser"),
        pytest.param(struct.pack("!II", 4, 0) + b"[{}]", id="no object"),
        pytest.param(_message(kind="neighbour", session="", generation=1), id="a neighbour of no ring"),
        pytest.param(_message(kind="hello"), id="a launcher without a name"),
    ],
)
async def test_strangers_are_hung_up_on(yard: Yard, words: bytes) -> None:
    workers = await yard.workers(2)
    assert await yard.say(2, words) == b""
    assert workers[0].running()


async def test_the_number_of_workers_does_not_change_what_is_learnt(yard: Yard, tmp_path: Path) -> None:
    await yard.workers(2, 3, 4)
    learnt = []
    for numbers in ((2,), (2, 3, 4)):
        yard.list_hosts(*numbers)
        file = tmp_path / f"{len(numbers)}.npy"
        launcher = await yard.launcher("--epochs", "6", "--save", str(file))
        await launcher.ended()
        assert set(launcher.matches(WORKERS)) == {str(len(numbers))}
        learnt.append(np.load(file))
    np.testing.assert_allclose(learnt[0], learnt[1], rtol=0, atol=1e-10)


async def test_too_little_training_is_a_failure(yard: Yard) -> None:
    await yard.workers(2)
    yard.list_hosts(2)
    launcher = await yard.launcher("--epochs", "1")
    assert await launcher.ended() == 1
    assert launcher.matches("^(accuracy=0)")


async def test_without_any_worker_it_says_so_and_fails_within_its_bound(yard: Yard) -> None:
    yard.list_hosts(6)
    launcher = await yard.launcher("--wait", "0.5")
    assert await launcher.ended() == 1
    assert launcher.matches(r"(error: no step for 0.5 s, giving up \(listed: 127.0.0.6:1\))")


async def test_a_bad_hosts_list_is_reported_and_the_last_good_one_stays(yard: Yard) -> None:
    await yard.workers(2, 3)
    yard.list_hosts(2, 3)
    launcher = await yard.launcher("--epochs", "1000", "--epoch-seconds", "0.1")
    await launcher.line("epoch=1 ")
    yard.print_hosts("127.0.0.2:1\n127.0.0.3:")
    await launcher.line("hosts: '127.0.0.3:' is not host:slots; still using 127.0.0.2:1 127.0.0.3:1")
    await launcher.line("epoch=.* workers=2")
    yard.list_hosts(3)
    await launcher.line("group generation=2 workers=1 ")
    assert not launcher.matches("(broke)")


def test_the_manifests_run_the_programs_of_this_folder() -> None:
    job, out, into = (
        yaml.safe_load((DIGITS / name).read_text()) for name in ("training_job.yaml", "scale_out.yaml", "scale_in.yaml")
    )
    for replicas in job["spec"]["etReplicaSpecs"].values():
        _, program = replicas["template"]["spec"]["containers"][0]["command"]
        assert (DIGITS / program).exists()
    assert out["spec"]["selector"]["name"] == into["spec"]["selector"]["name"] == job["metadata"]["name"]
    workers = job["spec"]["etReplicaSpecs"]["worker"]
    largest = workers["replicas"] + out["spec"]["toAdd"]["count"]
    assert largest <= workers["maxReplicas"]
    assert largest - into["spec"]["toDelete"]["count"] >= workers["minReplicas"]
